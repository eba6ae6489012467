# SPDX-License-Identifier: Apache-2.0
# The limit is enforced: who exceeds it is out of memory, the neighbour is not; without it the neighbour pays.
# shellcheck shell=bash

fixture hold.py
submit --gpumem=2G --gres=gpu:1 --wrap 'python hold.py 3000 1'; greedy=$JOB
submit --gpumem=6G --gres=gpu:1 --wrap 'python hold.py 5000 5'; modest=$JOB
wait_end "$greedy"; wait_end "$modest"
is "$(job_state "$greedy")" FAILED "a job that takes more than its limit fails"
like "$(cat "$WORK/slurm-$greedy.out")" 'OutOfMemoryError' "of out of memory, as PyTorch reports it"
is "$(job_state "$modest")" COMPLETED "its neighbour does not notice"
known() { case $(shown "$1" 'j["outcome"]') in running | *Error*) return 1 ;; esac; }
wait_until 10 "the outcomes" known "$greedy"; wait_until 10 "the outcomes" known "$modest"
is "$(shown "$greedy" 'j["outcome"]')" oom_on_limit "the history knows why"
is "$(shown "$modest" 'j["outcome"]')" completed "of both"
is "$(shown "$modest" 'j["virtual"]')" True "and that it was on a virtual GPU"
at_most 5000 "$(($(shown "$modest" 'j["measured_peak_bytes"]') >> 20))" "the measured peak has the memory that was held"

