# SPDX-License-Identifier: Apache-2.0
# stop ends everything, jobs included, and a start brings the same cluster back with its history.
# shellcheck shell=bash

submit --gpumem=1G --gres=gpu:1 --wrap 'sleep 300'
wait_running "$JOB"
check "stop ends the cluster" cluster_stop
is "$(stray_pids)" "" "nothing keeps running"
check "start brings it back" cluster_start
is "$(shown "$JOB" 'd["limit_mib"]')" 1024 "with its history"
submit --gpumem=1G --gres=gpu:1 --wrap true
like "$SAID" shard:1024 "and decisions"
