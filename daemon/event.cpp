// SPDX-License-Identifier: Apache-2.0
// Owners of libevent's objects.
#include "daemon/event.h"

#include <spdlog/spdlog.h>

#include <exception>

namespace gpumem {

EventBase make_event_base() { return EventBase(event_base_new()); }

void guarded(const std::function<void()>& work) noexcept {
  try {
    work();
  } catch (const std::exception& error) {
    spdlog::error("a callback failed: {}", error.what());
  } catch (...) {
    spdlog::error("a callback failed");
  }
}

Event::State::~State() {
  if (handle != nullptr) event_free(handle);
}

Event::Event(event_base* base, int fd, short what, std::function<void()> callback) : state_(std::make_unique<State>()) {
  state_->callback = std::move(callback);
  // The argument is the State itself: it lives as long as the event does.
  state_->handle = event_new(
      base, fd, what,
      [](evutil_socket_t, short, void* argument) {
        // A copy, since the callback may destroy its Event and with it the State.
        const std::function<void()> work = static_cast<State*>(argument)->callback;
        guarded(work);
      },
      state_.get());
}

void Event::start(double timeout_s) {
  if (!state_ || state_->handle == nullptr) return;
  if (timeout_s < 0) {
    event_add(state_->handle, nullptr);
    return;
  }
  timeval timeout{};
  timeout.tv_sec = static_cast<time_t>(timeout_s);
  timeout.tv_usec = static_cast<suseconds_t>((timeout_s - static_cast<double>(timeout.tv_sec)) * 1e6);
  event_add(state_->handle, &timeout);
}

void Event::stop() {
  if (state_ && state_->handle != nullptr) event_del(state_->handle);
}

}  // namespace gpumem
