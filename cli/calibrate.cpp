// SPDX-License-Identifier: Apache-2.0
// gpumem calibrate: measures the GPU of this machine and writes its profile. Runs as the calling user, beside no other use of
// the GPU; installs nothing. The PyTorch part runs in the user's own Python (measure_gpu.py).
#include <ctime>

#include <cstdio>
#include <cstdlib>

#include "base/file.h"
#include "base/paths.h"
#include "base/size.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "cli/calibration.h"
#include "cli/commands.h"
#include "estimator/gpus/profile.h"

extern char** environ;

namespace gpumem::cli {
namespace {

struct CalibrateOptions {
  std::string out;
  int device = 0;
  std::vector<std::string> pythons;
  double timeout_s = 300;
};

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[16];
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::strftime(text, sizeof text, "%Y-%m-%d", &parts);
  return text;
}

void say(const std::string& text) { std::fprintf(stderr, "gpumem: %s\n", text.c_str()); }

Result<nlohmann::json> ask_python(const std::string& python, const DeviceFacts& facts, double timeout_s) {
  SubprocessOptions run;
  run.arguments = {python, paths::data_file("calibrate") + "/measure_gpu.py", facts.uuid};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (std::string(*variable).rfind("CUDA_VISIBLE_DEVICES=", 0) != 0) run.environment.push_back(*variable);
  }
  run.environment.push_back("CUDA_VISIBLE_DEVICES=" + facts.uuid);
  run.timeout_s = timeout_s;
  auto ended = run_subprocess(run);
  if (!ended) return ended.error();
  if (ended->timed_out) return Error{ErrorKind::timeout, python + " measured nothing within " + std::to_string(static_cast<int>(timeout_s)) + " s"};
  if (ended->exit_status != 0) {
    return Error{ErrorKind::unavailable, python + " could not measure: " + last_line(ended->error_output.empty() ? ended->output : ended->error_output)};
  }
  auto measured = nlohmann::json::parse(last_line(ended->output), nullptr, false);
  if (!measured.is_object()) return Error{ErrorKind::unavailable, python + " did not answer with measurements"};
  return measured;
}

int calibrate(const CalibrateOptions& options) {
  auto driver = load_driver();
  if (!driver) return complain(driver.error().message);
  auto facts = read_device(*driver, load_nvml(), options.device);
  if (!facts) return complain(facts.error().message);
  const bool on_virtual_gpu = std::getenv("GPUMEM_BOOK") != nullptr;

  std::vector<nlohmann::json> measurements;
  for (const auto& python : options.pythons) {
    auto measured = ask_python(python, *facts, options.timeout_s);
    if (!measured) return complain(measured.error().message);
    for (const auto& note : measured->value("notes", nlohmann::json::array())) say(note.get<std::string>());
    if (measured->contains("other_processes") && (*measured)["other_processes"].is_number() && (*measured)["other_processes"] != 0) {
      say("other processes use this GPU: its usable memory was not measured, and bandwidths may be too low");
    }
    measurements.push_back(std::move(*measured));
  }
  if (options.pythons.empty()) say("no --python: contexts, bandwidths, usable memory and cuDNN's description were not measured");

  nlohmann::json profile = make_profile(*facts, measurements, today(), on_virtual_gpu);
  nlohmann::json usable = profile;
  usable.erase("virtual");  // what is written must be a profile in every other respect
  if (auto parsed = gpus::parse_profile(usable, options.out.empty() ? "measured here" : options.out); !parsed) return complain(parsed.error().message);
  if (on_virtual_gpu) say("this is a virtual GPU: nothing was measured, and the profile will be refused where profiles are used");
  const std::string text = profile.dump(2) + "\n";
  if (options.out.empty()) {
    std::fputs(text.c_str(), stdout);
    return std::fflush(stdout) == 0 ? kDone : complain("cannot write the profile to standard output");
  }
  if (auto written = write_file_atomically(options.out, text, 0644); !written) return complain(written.error().message);
  say("wrote the profile of " + facts->name + ": gpumem estimate --gpu " + options.out + " -- …");
  return kDone;
}

}  // namespace

void add_calibrate_command(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<CalibrateOptions>();
  auto* command = app.add_subcommand("calibrate", "Measure the GPU of this machine and write its profile");
  command->footer(
      "Run it where the GPU is, while nothing else uses it. Each --python is one of an environment with a CUDA build of PyTorch;\n"
      "contexts differ by build, so give those that your users have. Nothing is installed.");
  command->add_option("--out", options->out, "File for the profile; by default standard output");
  command->add_option("--device", options->device, "Which GPU, as CUDA counts them")->check(CLI::NonNegativeNumber)->capture_default_str();
  command->add_option("--python", options->pythons, "Measure with this Python's PyTorch; may be given several times");
  command->add_option("--timeout", options->timeout_s, "Seconds that one PyTorch may take")->check(CLI::PositiveNumber)->capture_default_str();
  command->callback([options, &invocation] { invocation.exit_status = calibrate(*options); });
}

}  // namespace gpumem::cli
