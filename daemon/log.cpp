// SPDX-License-Identifier: Apache-2.0
// spdlog's sinks and patterns.
#include "daemon/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>

namespace gpumem {
namespace {

// "<6>": the journal's priority of a line (sd-daemon(3)).
class PriorityFlag : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    const char* priority = "<6>";
    if (message.level <= spdlog::level::debug) priority = "<7>";
    if (message.level == spdlog::level::warn) priority = "<4>";
    if (message.level >= spdlog::level::err) priority = "<3>";
    out.append(priority, priority + 3);
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return spdlog::details::make_unique<PriorityFlag>(); }
};

}  // namespace

Status start_log(const std::string& file, const std::string& level) {
  try {
    std::shared_ptr<spdlog::logger> logger;
    if (file.empty()) {
      logger = std::make_shared<spdlog::logger>("gpumemd", std::make_shared<spdlog::sinks::stderr_sink_st>());
    } else {
      logger = std::make_shared<spdlog::logger>("gpumemd", std::make_shared<spdlog::sinks::basic_file_sink_st>(file));
    }
    if (file.empty() && std::getenv("JOURNAL_STREAM") != nullptr) {
      auto formatter = std::make_unique<spdlog::pattern_formatter>();
      formatter->add_flag<PriorityFlag>('*').set_pattern("%*%v");
      logger->set_formatter(std::move(formatter));
    } else {
      logger->set_pattern("%Y-%m-%d %H:%M:%S.%e gpumemd[%P] %l: %v");
    }
    logger->flush_on(spdlog::level::trace);
    spdlog::set_default_logger(std::move(logger));
    set_log_level(level);
    return {};
  } catch (const spdlog::spdlog_ex& error) {
    return Error{ErrorKind::io, "cannot write the log " + file + ": " + error.what()};
  }
}

void set_log_level(const std::string& level) { spdlog::set_level(spdlog::level::from_str(level == "warning" ? "warn" : level)); }

}  // namespace gpumem
