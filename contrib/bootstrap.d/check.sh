# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
command_check() { die "not yet"; }
