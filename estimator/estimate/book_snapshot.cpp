// SPDX-License-Identifier: Apache-2.0
// The book at the end of a probe.
#include <cstring>
#include <memory>

#include "estimator/estimate/estimate.h"

namespace gpumem::estimate {
namespace {

Error book_error(const std::string& path, book::Status status) {
  return {ErrorKind::io, "cannot read the book " + path + ": " + book::status_text(status)};
}

}  // namespace

Result<BookSnapshot> read_book(const std::string& path) {
  // Its path alone is 4 KiB: not on the stack.
  auto opened = std::make_unique<book::Book>();
  char message[512] = "";
  if (auto status = book::open(opened.get(), path.c_str(), true, message, sizeof message); status != book::Status::ok) {
    return Error{ErrorKind::io, message[0] != '\0' ? message : book_error(path, status).message};
  }
  BookSnapshot snapshot;
  book::Status status = book::Status::ok;
  for (int device = 0; device < book::device_count(*opened) && status == book::Status::ok; ++device) {
    book::DeviceUse use{};
    status = book::device_use(opened.get(), device, &use);
    snapshot.devices.push_back(use);
  }
  if (status == book::Status::ok) {
    status = book::for_each_process(
        opened.get(),
        [](void* context, const book::ProcessUse& process) { static_cast<BookSnapshot*>(context)->processes.push_back(process); }, &snapshot);
  }
  if (status == book::Status::ok) {
    status = book::for_each_missing(
        opened.get(),
        [](void* context, const book::MissingFunction& missing) { static_cast<BookSnapshot*>(context)->missing.push_back(missing); }, &snapshot);
  }
  book::close(opened.get());
  if (status != book::Status::ok) return book_error(path, status);
  return snapshot;
}

}  // namespace gpumem::estimate
