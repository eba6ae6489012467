# SPDX-License-Identifier: Apache-2.0
# The plugin as a file and as an option: what it needs, what it exports, what jobs without GPU notice of it.
# shellcheck shell=bash

plugin=$(installed_prefix)/lib/slurm/spank_gpumem.so
is "$(readelf -d "$plugin" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p')" libc.so.6 "the plugin needs libc and nothing else"
is "$(nm -D --defined-only "$plugin" | awk '{print $3}' | grep -vE '^(plugin_|spank_plugin_version|slurm_spank_)')" "" \
  "it exports SPANK's names and no other"
for command in sbatch salloc srun; do
  like "$(user $command --help)" '--gpumem=' "$command --help lists --gpumem"
done

submit --wrap 'env'
is "$STATUS $SAID" "0 " "a job without GPU is submitted in silence"
wait_end "$JOB"
unlike "$(cat "$WORK/slurm-$JOB.out")" 'GPUMEM_TOKEN|SPANK_OPTION' "it sees nothing of the plugin"

submit --gpumem=3G --wrap true
like "$SAID" 'asks for no GPU.*--gres=gpu:1' "a size without a GPU is told so"
is "$STATUS" 0 "and the job is submitted"
