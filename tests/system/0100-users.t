# SPDX-License-Identifier: Apache-2.0
# Users see their own rows, operators all; margins are the operators'.
# shellcheck shell=bash

submit --gpumem=1G --gres=gpu:1 --wrap true
wait_end "$JOB"
sleep 1
like "$(user gpumem history)" "$JOB" "a user sees the own job in the history"
check "and can look at it" user gpumem show "$JOB"
said=$(other_user gpumem history --json)
unlike "$said" "\"job\": *\"$JOB\"" "another user's history has it not"
said=$(other_user gpumem show "$JOB" 2>&1)
isnt $? 0 "another user cannot look at it"
unlike "$said" "shard:1024" "and learns nothing of it"
said=$(other_user gpumem history --user "$DEMO_USER" 2>&1)
isnt $? 0 "nor ask for that user's rows"
token=$(shown "$JOB" 'd["token"]')
other_user gpumem show "$token" >/dev/null 2>&1
isnt $? 0 "nor find it by its token"
like "$(in_cluster "$(installed_prefix)/bin/gpumem" history --all)" "$JOB" "root sees all"
user gpumem margin set 20% >/dev/null 2>&1
isnt $? 0 "a user cannot change a margin"
