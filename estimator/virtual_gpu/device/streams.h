// SPDX-License-Identifier: Apache-2.0
// Streams, events, the simulated clock, stream capture and graphs. Part of libgpumem_vgpu.so.
//
// Note [Simulated clock]
// Work completes as soon as it is queued. So that times stay plausible, each stream has a clock: queued work adds a
// nominal time (kLaunchNs), and never lags behind the host's monotonic clock when an event is recorded. Elapsed times
// are differences of these, at least a nanosecond apart. Nothing waits.
//
// Note [Lagging device]
// A GPU runs behind the host, and PyTorch keeps a block that another stream used (record_stream) until an event says that the
// device has come that far. How far behind depends on kernels that are not run, so there are two devices between which every real one
// lies. The instant one (the default) has done everything when it is queued. The lagging one (GPUMEM_CLOCK=lagging) has done a stream's
// work only when something waited for it (a synchronization of the stream, an event or the device, a synchronous copy, memory given
// back), or when kMostQueued pieces of work were queued after it: a host cannot run further ahead of a device. Nothing ever sleeps:
// who waits is told at once that it is done; who only asks, and again and again without queuing work, is believed to wait.
// Both are deterministic. Reserved memory under the lagging device is an upper bound of a real device's.
//
// Capture records how many nodes a stream's work would make; graphs are replayed as that many launches of nothing.
// Handles are objects of objects.h; 0, 1 and 2 are CUDA's default, legacy and per-thread streams.
#pragma once

#include "estimator/virtual_gpu/device/state.h"

namespace gpumem::virtual_gpu {

constexpr uint64_t kMostQueued = 1024;    // launches that wait before one blocks [observed; NVIDIA only documents that there is a limit]
constexpr uint32_t kMostQuestions = 100;  // unanswered in a row, after which the host is believed to wait
constexpr uint64_t kLaunchNs = 4000;  // typical launch-bound kernel time; only plausibility hangs on it

struct GraphNode;  // graphs.h

struct Graph {
  uint32_t kind;
  uint32_t nodes;
  GraphNode *known;       // those of which more is known than their number
  uint64_t id;
  uint64_t cloned_from;   // id of that graph; 0: no clone
  uint64_t open_capture;  // id of the capture that fills it; 0: none
  uint32_t invalid;       // something not allowed was done meanwhile: the capture will end with an error
};

struct StreamObject {
  uint32_t kind;
  int device;
  int priority;
  uint32_t flags;
  uint64_t clock_ns;
  uint64_t id;
  Graph *capture;        // see active_capture()
  uint64_t capture_id;
  int capture_mode;
  Progress progress;
};

struct Event {
  uint32_t kind;
  int device;
  uint32_t flags;
  uint32_t recorded;
  uint64_t time_ns;
  Graph *capture;        // recorded in a capturing stream: a stream that waits for it joins the capture
  uint64_t capture_id;
  uint64_t stream;       // its id where it was recorded, and the work before it
  uint64_t after;
};

struct GraphExec {
  uint32_t kind;
  uint32_t nodes;
  uint64_t id;
  GraphNode *memory_nodes;  // graphs.h, Note [Memory of graphs]
};

// The stream's object; nullptr for the default streams and for what is no stream (is_stream tells them apart).
StreamObject *find_stream(Stream stream);
bool is_stream(Stream stream);
// Checks the stream; the Error every call with a stream begins with.
Error check_stream(Stream stream);

Error create_stream(unsigned flags, int priority, Stream *stream);
Error destroy_stream(Stream stream);
// `gpumem_events_recorded()`, for the tracer: how many events this thread has recorded.
Error create_event(unsigned flags, void **event);
Error destroy_event(void *event);
Error record_event(void *event, Stream stream);
Error wait_event(Stream stream, const void *event);
Error elapsed_ms(float *milliseconds, const void *start, const void *end);

// The host waits for a stream, an event, or all that was queued on a device (-1: on all).
void synchronize_stream(Stream stream);
void synchronize_event(const Event *event);
void synchronize_device(int device);
// kSuccess or kNotReady.
Error query_stream(Stream stream);
Error query_event(const Event *event);

// The graph that the stream's capture is filling, or nullptr.
Graph *active_capture(const StreamObject *stream);
Error begin_capture(Stream stream, int mode, Graph *into);
// cudaStreamGetCaptureInfo in all its forms. Any output but the status may be null. A capture has no dependencies to tell
// of: nodes are only counted.
Error capture_info(Stream stream, int *status, unsigned long long *id, void **graph, const void ***dependencies,
                   const void **edges, size_t *count);
Error end_capture(Stream stream, Graph **graph);
// A capturing stream was waited for or asked about: kStreamCaptureUnsupported, and the capture is spoilt, as in CUDA.
Error spoil_capture(Stream stream);
// 0 none, 1 active, 2 invalidated (cudaStreamCaptureStatus).
int capture_status(Stream stream);
// Queues work that is no kernel (copies, fills, host functions): a node when capturing.
void queue_work(Stream stream);
Error launch_graph(GraphExec *graph, Stream stream);
Graph *new_graph();
uint64_t take_id();  // of streams, graphs, captures: one series
// The handle of a captured node, which has no identity of its own: a number.
inline void *graph_node(const Graph *graph, uint32_t number) { return reinterpret_cast<void *>((graph->id << 24) + number + 16); }

}  // namespace gpumem::virtual_gpu
