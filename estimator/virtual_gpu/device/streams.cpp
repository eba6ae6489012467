// SPDX-License-Identifier: Apache-2.0
// Streams, events, capture. Part of libgpumem_vgpu.so, preloaded into jobs. See Note [Simulated clock] in streams.h.

#include "estimator/virtual_gpu/device/streams.h"

#include "estimator/virtual_gpu/device/contents.h"
#include "estimator/virtual_gpu/device/objects.h"

namespace gpumem::virtual_gpu {
namespace {

uint64_t next_id = 1;

uint64_t *clock_of(Stream stream) {
  StreamObject *object = find_stream(stream);
  if (object != nullptr) return &object->clock_ns;
  return &state.devices[thread_state.device].clock_ns;
}

void advance(Stream stream, uint64_t by_ns) { __atomic_add_fetch(clock_of(stream), by_ns, __ATOMIC_RELAXED); }

// Living streams by id, for what waits for them; ids of default streams are their device's number plus one.
constexpr uint64_t kFirstStreamId = 256;
constexpr size_t kMostStreams = 1024;
struct Streams {
  Lock lock;
  StreamObject *all[kMostStreams];
  size_t count;
  uint32_t questions;    // unanswered since work was last queued
};
constinit Streams streams = {};

uint64_t id_of(Stream stream) {
  const StreamObject *object = find_stream(stream);
  return object != nullptr ? object->id + kFirstStreamId : static_cast<uint64_t>(thread_state.device) + 1;
}

// Under the lock; nullptr for a stream that is gone, whose work is done.
Progress *progress_locked(uint64_t id) {
  if (id != 0 && id <= book::kMaxDevices) return &state.devices[id - 1].progress;
  for (size_t n = 0; n < streams.count; ++n)
    if (streams.all[n]->id + kFirstStreamId == id) return &streams.all[n]->progress;
  return nullptr;
}

// Work up to `until` is done, and so is what it had waited for. Chains are short; a limit keeps circles out.
void complete_locked(uint64_t id, uint64_t until) {
  for (int depth = 0; depth < 16; ++depth) {
    Progress *progress = progress_locked(id);
    if (progress == nullptr) return;
    if (until > progress->queued) until = progress->queued;
    if (until > progress->completed) progress->completed = until;
    if (progress->waits_for == 0) return;
    id = progress->waits_for;
    until = progress->waits_until;
    progress->waits_for = 0;
  }
}

// An answer to who asks without waiting.
Error answer_locked(uint64_t id, uint64_t until) {
  const Progress *progress = progress_locked(id);
  if (progress == nullptr || progress->completed >= until) return cuda::kSuccess;
  if (++streams.questions < kMostQuestions) return cuda::kNotReady;
  complete_locked(id, until);
  return cuda::kSuccess;
}

void queue_lagging(Stream stream) {
  const uint64_t id = id_of(stream);
  Locked locked(streams.lock);
  streams.questions = 0;
  Progress *progress = progress_locked(id);
  if (progress == nullptr) return;
  ++progress->queued;
  if (progress->queued - progress->completed > kMostQueued) complete_locked(id, progress->queued - kMostQueued);
}

}  // namespace

uint64_t take_id() { return __atomic_fetch_add(&next_id, 1, __ATOMIC_RELAXED); }

void advance_clock(Stream stream, uint64_t nanoseconds) { advance(stream, nanoseconds); }

StreamObject *find_stream(Stream stream) { return find<StreamObject>(stream, kStreamObject); }

bool is_stream(Stream stream) { return reinterpret_cast<uintptr_t>(stream) <= 2 || find_stream(stream) != nullptr; }

Error check_stream(Stream stream) {
  const Error error = check_current();
  if (error != cuda::kSuccess) return error;
  return is_stream(stream) ? cuda::kSuccess : cuda::kInvalidHandle;
}

Error create_stream(unsigned flags, int priority, Stream *stream) {
  if (stream == nullptr) return cuda::kInvalidValue;
  const Error error = check_current();
  if (error != cuda::kSuccess) return error;
  StreamObject *object = make<StreamObject>(kStreamObject);
  if (object == nullptr) return cuda::kOperatingSystem;
  object->device = thread_state.device;
  object->flags = flags;
  object->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
  object->id = take_id();
  if (state.lagging) {
    Locked locked(streams.lock);
    if (streams.count < kMostStreams) streams.all[streams.count++] = object;  // what does not fit is never behind
  }
  *stream = object;
  return cuda::kSuccess;
}

Error destroy_stream(Stream stream) {
  StreamObject *object = find_stream(stream);
  if (object == nullptr) return cuda::kInvalidHandle;
  if (state.lagging) {
    Locked locked(streams.lock);
    for (size_t n = 0; n < streams.count; ++n)
      if (streams.all[n] == object) streams.all[n] = streams.all[--streams.count];
  }
  delete_object(object);
  return cuda::kSuccess;
}

Error create_event(unsigned flags, void **event) {
  if (event == nullptr) return cuda::kInvalidValue;
  const Error error = check_current();
  if (error != cuda::kSuccess) return error;
  Event *object = make<Event>(kEventObject);
  if (object == nullptr) return cuda::kOperatingSystem;
  object->device = thread_state.device;
  object->flags = flags;
  *event = object;
  return cuda::kSuccess;
}

Error destroy_event(void *event) {
  Event *object = find<Event>(event, kEventObject);
  if (object == nullptr) return cuda::kInvalidHandle;
  delete_object(object);
  return cuda::kSuccess;
}

Error record_event(void *event, Stream stream) {
  Event *object = find<Event>(event, kEventObject);
  if (object == nullptr) return cuda::kInvalidHandle;
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return error;
  ++thread_state.events_recorded;
  const StreamObject *owner = find_stream(stream);
  object->capture = owner != nullptr ? active_capture(owner) : nullptr;
  object->capture_id = object->capture != nullptr ? owner->capture_id : 0;
  uint64_t *clock = clock_of(stream);
  const uint64_t now = now_ns();
  uint64_t time = __atomic_load_n(clock, __ATOMIC_RELAXED);
  // The device cannot have begun before the host asked. Nor may queued time run away from it: an hour of launches in
  // a second would make the next idle gap look negative.
  if (time < now) time = now;
  __atomic_store_n(clock, time + 1, __ATOMIC_RELAXED);
  object->time_ns = time;
  if (state.lagging) {
    object->stream = id_of(stream);
    Locked locked(streams.lock);
    const Progress *progress = progress_locked(object->stream);
    object->after = progress != nullptr ? progress->queued : 0;
  }
  object->recorded = 1;
  return cuda::kSuccess;
}

Error wait_event(Stream stream, const void *event) {
  const Event *object = find<Event>(event, kEventObject);
  if (object == nullptr) return cuda::kInvalidHandle;
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return error;
  StreamObject *waiting = find_stream(stream);
  if (waiting != nullptr && object->capture != nullptr && object->capture->open_capture == object->capture_id) {
    waiting->capture = object->capture;
    waiting->capture_id = object->capture_id;
  } else if (object->recorded) {
    if (state.lagging && object->stream != id_of(stream)) {
      Locked locked(streams.lock);
      if (Progress *progress = progress_locked(id_of(stream)); progress != nullptr) {
        progress->waits_for = object->stream;
        progress->waits_until = object->after;
      }
    }
    uint64_t *clock = clock_of(stream);
    if (__atomic_load_n(clock, __ATOMIC_RELAXED) < object->time_ns) __atomic_store_n(clock, object->time_ns, __ATOMIC_RELAXED);
  }
  return cuda::kSuccess;
}

Error elapsed_ms(float *milliseconds, const void *start, const void *end) {
  const Event *from = find<Event>(start, kEventObject), *to = find<Event>(end, kEventObject);
  if (milliseconds == nullptr) return cuda::kInvalidValue;
  constexpr uint32_t kDisableTiming = 2;  // cudaEventDisableTiming
  if (from == nullptr || to == nullptr || !from->recorded || !to->recorded || ((from->flags | to->flags) & kDisableTiming))
    return cuda::kInvalidHandle;
  if (query_event(from) != cuda::kSuccess || query_event(to) != cuda::kSuccess) return cuda::kNotReady;
  const double ns = to->time_ns >= from->time_ns ? static_cast<double>(to->time_ns - from->time_ns)
                                                 : -static_cast<double>(from->time_ns - to->time_ns);
  *milliseconds = static_cast<float>((ns == 0 ? 1 : ns) * 1e-6);
  return cuda::kSuccess;
}

void synchronize_stream(Stream stream) {
  if (!state.lagging) return;
  Locked locked(streams.lock);
  complete_locked(id_of(stream), ~uint64_t{0});
}

void synchronize_event(const Event *event) {
  if (!state.lagging || !event->recorded) return;
  Locked locked(streams.lock);
  complete_locked(event->stream, event->after);
}

void synchronize_device(int device) {
  if (!state.lagging) return;
  Locked locked(streams.lock);
  for (int d = 0; d < state.visible_count; ++d)
    if (device < 0 || d == device) complete_locked(static_cast<uint64_t>(d) + 1, ~uint64_t{0});
  for (size_t n = 0; n < streams.count; ++n)
    if (device < 0 || streams.all[n]->device == device) complete_locked(streams.all[n]->id + kFirstStreamId, ~uint64_t{0});
}

Error query_stream(Stream stream) {
  if (!state.lagging) return cuda::kSuccess;
  const uint64_t id = id_of(stream);
  Locked locked(streams.lock);
  const Progress *progress = progress_locked(id);
  return progress == nullptr ? cuda::kSuccess : answer_locked(id, progress->queued);
}

Error query_event(const Event *event) {
  if (!state.lagging || !event->recorded) return cuda::kSuccess;
  Locked locked(streams.lock);
  return answer_locked(event->stream, event->after);
}

Graph *new_graph() {
  Graph *graph = make<Graph>(kGraphObject);
  if (graph != nullptr) graph->id = take_id();
  return graph;
}

Graph *active_capture(const StreamObject *stream) {
  Graph *graph = find<Graph>(stream->capture, kGraphObject);
  return graph != nullptr && graph->open_capture != 0 && graph->open_capture == stream->capture_id ? graph : nullptr;
}

Error begin_capture(Stream stream, int mode, Graph *into) {
  StreamObject *object = find_stream(stream);
  if (object == nullptr) return is_stream(stream) ? cuda::kStreamCaptureUnsupported : cuda::kInvalidHandle;
  if (active_capture(object) != nullptr) return cuda::kInvalidValue;
  Graph *graph = into != nullptr ? into : new_graph();
  if (graph == nullptr) return cuda::kOperatingSystem;
  object->capture_id = take_id();
  object->capture_mode = mode;
  object->capture = graph;
  graph->open_capture = object->capture_id;
  return cuda::kSuccess;
}

Error capture_info(Stream stream, int *status, unsigned long long *id, void **graph, const void ***dependencies,
                   const void **edges, size_t *count) {
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return error;
  if (status == nullptr) return cuda::kInvalidValue;
  const StreamObject *object = find_stream(stream);
  Graph *filling = object != nullptr ? active_capture(object) : nullptr;
  *status = capture_status(stream);
  if (filling == nullptr) return cuda::kSuccess;
  if (id != nullptr) *id = object->capture_id;
  if (graph != nullptr) *graph = filling;
  if (dependencies != nullptr) *dependencies = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (count != nullptr) *count = 0;
  return cuda::kSuccess;
}

Error end_capture(Stream stream, Graph **graph) {
  StreamObject *object = find_stream(stream);
  if (object == nullptr) return cuda::kInvalidHandle;
  Graph *filled = active_capture(object);
  if (filled == nullptr) return cuda::kStreamCaptureUnmatched;
  filled->open_capture = 0;  // ends it for every stream that had joined
  object->capture = nullptr;
  if (filled->invalid) {
    filled->invalid = 0;
    if (graph != nullptr) *graph = nullptr;
    return cuda::kStreamCaptureInvalidated;
  }
  if (graph != nullptr) *graph = filled;
  return cuda::kSuccess;
}

Error spoil_capture(Stream stream) {
  const StreamObject *object = find_stream(stream);
  Graph *graph = object != nullptr ? active_capture(object) : nullptr;
  if (graph != nullptr) graph->invalid = 1;
  return cuda::kStreamCaptureUnsupported;
}

int capture_status(Stream stream) {
  const StreamObject *object = find_stream(stream);
  const Graph *graph = object != nullptr && object->capture != nullptr ? active_capture(object) : nullptr;
  return graph == nullptr ? cuda::kCaptureNone : graph->invalid ? cuda::kCaptureInvalidated : cuda::kCaptureActive;
}

bool is_capturing(Stream stream) {
  const StreamObject *object = find_stream(stream);
  return object != nullptr && object->capture != nullptr && active_capture(object) != nullptr;
}

void queue_work(Stream stream) {
  StreamObject *object = find_stream(stream);
  Graph *graph = object != nullptr && object->capture != nullptr ? active_capture(object) : nullptr;
  if (graph != nullptr)
    ++graph->nodes;
  else {
    advance(stream, kLaunchNs);
    if (state.lagging) queue_lagging(stream);
  }
}

void count_launch(Stream stream) {
  queue_work(stream);
  contents_after_launch();
  book::count_launch(&state.book);
}

Error launch_graph(GraphExec *graph, Stream stream) {
  advance(stream, kLaunchNs * (graph->nodes + 1));
  if (state.lagging) queue_lagging(stream);
  contents_after_launch();
  book::count_launch(&state.book);
  return cuda::kSuccess;
}

}  // namespace gpumem::virtual_gpu

GPUMEM_EXPORT unsigned long long gpumem_events_recorded() { return gpumem::virtual_gpu::thread_state.events_recorded; }
