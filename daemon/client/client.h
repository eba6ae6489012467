// SPDX-License-Identifier: Apache-2.0
// Asks gpumemd something over its socket. Used by the SPANK plugin (inside sbatch, slurmstepd) and the CLI.
//
// libc only: no C++ runtime, no exceptions, no threads, no global state, no signal handlers, never SIGPIPE, never more time
// than the caller allows, whatever the daemon does. Link libclient.a and libframe.a. Every function may be called from any
// thread on its own objects. Memory that cannot be had is an error like any other.
#pragma once

#include <signal.h>
#include <stddef.h>

namespace gpumem::client {

// A request that is being composed. Zero-initialise it, begin it, add fields, free it. Failures (no memory, too large, a bad
// name) are remembered in `failed` and reported by call(), so that adding needs no checks.
struct Request {
  char* frame;      // header and body
  size_t bytes;
  size_t capacity;
  int failed;
};

void request_begin(Request* request, const char* type);
// A null `text` adds nothing.
void request_add(Request* request, const char* name, const char* text);
void request_add_bytes(Request* request, const char* name, const char* bytes, size_t count);
void request_add_number(Request* request, const char* name, unsigned long long number);
void request_free(Request* request);

enum class CallStatus {
  ok,             // the final reply is in Reply
  error_reply,    // the daemon answered with `error`: its sentence is in Reply::error
  absent,         // nobody listens there
  denied,         // the socket is there but not for this user
  timeout,        // no connection, no sign of life, or no answer within the time allowed
  interrupted,    // the caller's flag was raised
  bad_answer,     // closed in the middle, or something that is not of the protocol, or another major version
  failed,         // the request could not be composed or the system refused
};

// The final reply. Free it with reply_free whatever call() returned.
struct Reply {
  char* body;          // every value in it is followed by a NUL
  size_t bytes;
  char error[512];     // a sentence unless the status is ok
  char error_kind[32]; // with error_reply: its `kind`
};

struct CallOptions {
  double connect_s;                         // to be connected and rid of the request; 0: 2 s
  double silence_s;                         // longest wait for any frame (the daemon shows signs of life every second); 0: 10 s
  double total_s;                           // longest wait altogether; 0: 60 s
  size_t largest_reply_bytes;               // 0: the protocol's largest
  const volatile sig_atomic_t* interrupted; // may be null; looked at whenever a signal arrives and before each wait
  void (*progress)(void* context, const char* text);  // may be null; called for every progress frame that has text
  void* progress_context;
};

// Connects, sends, and waits for the final reply. `options` may be null.
CallStatus call(const char* socket_path, const Request* request, const CallOptions* options, Reply* reply);

// The reply's fields. Text is NUL-terminated and lives until reply_free; null when there is no such field.
const char* reply_type(const Reply* reply);
const char* reply_text(const Reply* reply, const char* name);
const char* reply_text_at(const Reply* reply, const char* name, size_t index);
// With the length, for values that may hold NULs.
const char* reply_bytes(const Reply* reply, const char* name, size_t* count);
void reply_free(Reply* reply);

}  // namespace gpumem::client
