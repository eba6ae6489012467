// SPDX-License-Identifier: Apache-2.0
// gpumem-probe: runs one program on a virtual GPU and answers with an estimate. Started by gpumem and by gpumemd, as
// the user whose program it is. Request on standard input, answer on descriptor 3 (contracts: Probe request and answer).
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <string>

#include "estimator/probe/probe.h"

namespace gpumem::probe {
namespace {

constexpr int kAnswerFd = 3;
constexpr std::size_t kLargestRequest = 64u << 20;

bool read_all(int fd, std::string& text) {
  char buffer[65536];
  for (;;) {
    const ssize_t count = ::read(fd, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 || text.size() > kLargestRequest) return false;
    if (count == 0) return true;
    text.append(buffer, static_cast<std::size_t>(count));
  }
}

bool answer(const nlohmann::json& object) {
  const std::string line = object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  for (std::size_t written = 0; written < line.size();) {
    const ssize_t count = ::write(kAnswerFd, line.data() + written, line.size() - written);
    if (count < 0 && errno != EINTR) return false;
    if (count > 0) written += static_cast<std::size_t>(count);
  }
  return true;
}

int run() {
  // Whoever asked may have gone: then there is nobody to tell, and the program must still be ended in order.
  ::signal(SIGPIPE, SIG_IGN);
  std::string text;
  if (!read_all(0, text)) {
    std::fprintf(stderr, "gpumem-probe: cannot read the request\n");
    return 1;
  }
  auto request = parse_request(text);
  if (!request) {
    std::fprintf(stderr, "gpumem-probe: %s\n", request.error().message.c_str());
    return 2;
  }
  auto estimate = run_probe(*request, [](const std::string& sentence, double elapsed_s) {
    answer({{"progress", {{"text", sentence}, {"elapsed_s", std::round(elapsed_s * 10) / 10}}}});
  });
  if (!estimate) {
    std::fprintf(stderr, "gpumem-probe: %s\n", estimate.error().message.c_str());
    return 1;
  }
  return answer({{"estimate", *estimate}}) ? 0 : 1;
}

}  // namespace
}  // namespace gpumem::probe

int main() { return gpumem::probe::run(); }
