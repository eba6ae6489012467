// SPDX-License-Identifier: Apache-2.0
// The sub-commands of `gpumem`. Used by gpumem (the CLI), as the user who calls it.
//
// One file a command. Each adds its sub-command to the CLI11 application with a callback that does the work and
// stores the process's exit status. main.cpp calls them in the order in which --help lists them.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace gpumem::cli {

// Exit statuses that every command shares (contracts: Exit statuses).
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;

// What main() hands to the commands. It outlives the parse.
struct Invocation {
  std::vector<std::string> program;  // what stood behind "--": COMMAND and its arguments
  bool has_program = false;          // "--" was given
  int exit_status = kDone;           // set by the command that ran
};

void add_calibrate_command(CLI::App& app, Invocation& invocation);
void add_estimate_command(CLI::App& app, Invocation& invocation);
void add_explain_command(CLI::App& app, Invocation& invocation);
void add_gpus_command(CLI::App& app, Invocation& invocation);
void add_history_command(CLI::App& app, Invocation& invocation);
void add_show_command(CLI::App& app, Invocation& invocation);
void add_status_command(CLI::App& app, Invocation& invocation);
void add_margin_command(CLI::App& app, Invocation& invocation);

// Prints "gpumem: MESSAGE" on standard error and returns `status`.
int complain(const std::string& message, int status = kFailed);

}  // namespace gpumem::cli
