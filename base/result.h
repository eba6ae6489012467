// SPDX-License-Identifier: Apache-2.0
// Result<T>: how a function of gpumem fails. Used by every program; errors are values between modules.
//
// A Result<T> holds either a T or an Error. Nothing in gpumem throws across a module: code that calls a
// throwing library catches at the call and returns an Error. A Result is a plain value without locks.
#pragma once

#include <cassert>
#include <string>
#include <utility>
#include <variant>

namespace gpumem {

// What sort of failure it was, for callers that act on it. People read `message`.
enum class ErrorKind {
  invalid_argument,  // the caller's or the user's input is wrong
  not_found,         // the named thing does not exist
  permission,        // it exists, but not for this user
  unavailable,       // a peer or resource is not there now; trying again may help
  timeout,           // a deadline passed
  io,                // the operating system refused
  protocol,          // a peer sent something that is not of the protocol
  unsupported,       // valid, but not something that gpumem can do
  internal,          // a bug in gpumem
};

// `message` says what failed, on which object, and what to do: one line, no newline at its end.
struct Error {
  ErrorKind kind = ErrorKind::internal;
  std::string message;

  // The same error with the caller's context in front: "context: message".
  Error with_context(const std::string& context) const { return {kind, context + ": " + message}; }
};

// The kind's name as it appears in logs and JSON ("not_found").
constexpr const char* error_kind_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid_argument: return "invalid_argument";
    case ErrorKind::not_found: return "not_found";
    case ErrorKind::permission: return "permission";
    case ErrorKind::unavailable: return "unavailable";
    case ErrorKind::timeout: return "timeout";
    case ErrorKind::io: return "io";
    case ErrorKind::protocol: return "protocol";
    case ErrorKind::unsupported: return "unsupported";
    case ErrorKind::internal: return "internal";
  }
  return "internal";
}

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // The value; calling it on a failed Result is a bug.
  T& value() & { assert(ok()); return *std::get_if<0>(&state_); }
  const T& value() const& { assert(ok()); return *std::get_if<0>(&state_); }
  T&& value() && { assert(ok()); return std::move(*std::get_if<0>(&state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T value_or(T otherwise) const& { return ok() ? value() : std::move(otherwise); }

  // The error; calling it on a Result that holds a value is a bug.
  const Error& error() const { assert(!ok()); return *std::get_if<1>(&state_); }

 private:
  std::variant<T, Error> state_;
};

// Success without a value.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), failed_(true) {}

  bool ok() const { return !failed_; }
  explicit operator bool() const { return ok(); }
  const Error& error() const { assert(failed_); return error_; }

 private:
  Error error_;
  bool failed_ = false;
};

using Status = Result<void>;

}  // namespace gpumem
