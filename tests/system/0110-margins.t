# SPDX-License-Identifier: Apache-2.0
# Margins: set by operators, applied to the next decision, kept with who changed them and when.
# shellcheck shell=bash

gpumem() { in_cluster "$(installed_prefix)/bin/gpumem" "$@"; }
fixture train.py
script job.sh <<'END'
#!/bin/bash
#SBATCH --gres=gpu:1
python train.py 512 30
END
limit() { printf '%s' "$SAID" | sed -n 's/.*requesting shard:\([0-9]*\).*/\1/p'; }
submit job.sh
before=$(limit)
check "a margin is set" gpumem margin set 50% --floor 1GiB --pool demo
submit job.sh
after=$(limit)
if [ "${after:-0}" -ge $((${before:-0} + 500)) ]; then pass "it applies to the next decision ($before, then $after MiB)"
else fail "it applies to the next decision" "before $before, after $after" "$SAID"; fi
like "$(gpumem margin list --json)" '"set_by": *"root"' "margin list says who set it"
check "it is unset" gpumem margin unset --pool demo
submit job.sh
is "$(limit)" "$before" "and applies no more"
like "$(gpumem margin list --json)" '"percent_before": *50' "the change is kept"
