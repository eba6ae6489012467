// SPDX-License-Identifier: Apache-2.0
// libevent with owners: the loop, timers, signals, readable descriptors, buffered streams. Used by gpumemd.
//
// Everything belongs to the loop's one thread. An object's callback is never called after its destructor; callbacks may
// destroy their own object. What a callback throws is logged and goes no further: libevent is C. Times are seconds.
#pragma once

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>

#include <functional>
#include <memory>

namespace gpumem {

template <auto release>
struct Release {
  template <class T>
  void operator()(T* object) const { release(object); }
};

using EventBase = std::unique_ptr<event_base, Release<event_base_free>>;
using BufferEvent = std::unique_ptr<bufferevent, Release<bufferevent_free>>;
using Listener = std::unique_ptr<evconnlistener, Release<evconnlistener_free>>;

EventBase make_event_base();

// Runs `work`, logging what it throws. For every entry from libevent.
void guarded(const std::function<void()>& work) noexcept;

// An event with a callback; the base of the three below.
class Event {
 public:
  Event() = default;
  Event(event_base* base, int fd, short what, std::function<void()> callback);
  Event(Event&&) = default;
  Event& operator=(Event&&) = default;

  // Waits for it; with `timeout_s` >= 0 at most so long (then the callback runs too).
  void start(double timeout_s = -1);
  void stop();

 private:
  struct State {
    std::function<void()> callback;
    event* handle = nullptr;
    ~State();
  };
  std::unique_ptr<State> state_;
};

// Calls back once per start(), after that time.
class Timer : public Event {
 public:
  Timer() = default;
  Timer(event_base* base, std::function<void()> callback) : Event(base, -1, 0, std::move(callback)) {}
};

// Calls back at every arrival, once started.
class SignalEvent : public Event {
 public:
  SignalEvent() = default;
  SignalEvent(event_base* base, int signal, std::function<void()> callback)
      : Event(base, signal, EV_SIGNAL | EV_PERSIST, std::move(callback)) {}
};

// Calls back whenever the descriptor can be read, once started.
class ReadEvent : public Event {
 public:
  ReadEvent() = default;
  ReadEvent(event_base* base, int fd, std::function<void()> callback)
      : Event(base, fd, EV_READ | EV_PERSIST, std::move(callback)) {}
};

}  // namespace gpumem
