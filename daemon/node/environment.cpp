// SPDX-License-Identifier: Apache-2.0
// The environment that a task gets on the node.
#include "daemon/node/environment.h"

#include <unistd.h>

#include <algorithm>

namespace gpumem::node {
namespace {

constexpr char kDefaultPath[] = "/usr/local/bin:/usr/bin:/bin";  // for a job that has no PATH at all

std::string value_of(const std::vector<std::string>& environment, const std::string& name) {
  for (const auto& assignment : environment) {
    if (assignment.size() > name.size() && assignment[name.size()] == '=' && assignment.compare(0, name.size(), name) == 0) {
      return assignment.substr(name.size() + 1);
    }
  }
  return {};
}

}  // namespace

std::vector<std::string> split_list(const std::string& text, const char* separators) {
  std::vector<std::string> elements;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find_first_of(separators, begin), text.size());
    if (end > begin) elements.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return elements;
}

std::string put_in_front(const std::vector<std::string>& ours, const std::string& theirs, const char* separators) {
  std::vector<std::string> all = ours;
  for (auto& element : split_list(theirs, separators)) {
    if (std::find(ours.begin(), ours.end(), element) == ours.end()) all.push_back(std::move(element));
  }
  std::string text;
  for (const auto& element : all) text += (text.empty() ? "" : ":") + element;
  return text;
}

JobEnvironment environment_with_gpu(const Settings& settings, const TaskBooks& books,
                                    const std::vector<std::string>& environment) {
  JobEnvironment answer;
  auto set = [&](const char* name, const std::string& value) { answer.set.push_back(std::string(name) + "=" + value); };
  // The meter comes first: it passes each call on to the next library, virtual or real.
  std::vector<std::string> preloads = {settings.library_directory + "/libgpumem_meter.so"};
  set("GPUMEM_JOB", books.job_key);
  set("GPUMEM_METER_BOOK", books.meter_book);
  if (!books.seen_workspaces.empty()) set("GPUMEM_WORKSPACES_SEEN", books.seen_workspaces);
  if (books.context_bytes != 0) set("GPUMEM_METER_CONTEXT_BYTES", std::to_string(books.context_bytes));
  if (!books.device_book.empty()) {
    for (const char* name : {"libgpumem_vgpu.so", "libcuda.so.1", "libnvidia-ml.so.1"}) {
      preloads.push_back(settings.library_directory + "/" + name);
    }
    set("GPUMEM_BOOK", books.device_book);
    if (!settings.cudnn_library.empty() && ::access(settings.cudnn_library.c_str(), R_OK) == 0) {
      set("GPUMEM_CUDNN", settings.cudnn_library);
    }
    const std::string path = value_of(environment, "PATH");
    set("PATH", put_in_front({settings.stand_in_directory}, path.empty() ? kDefaultPath : path, ":"));
  }
  set("LD_PRELOAD", put_in_front(preloads, value_of(environment, "LD_PRELOAD"), ": \t"));
  return answer;
}

JobEnvironment environment_without_gpu(const Settings& settings) {
  JobEnvironment answer;
  answer.set.push_back("CUDA_VISIBLE_DEVICES=");
  if (!settings.virtual_gpus.empty()) answer.unset.push_back("GPUMEM_BOOK");
  return answer;
}

}  // namespace gpumem::node
