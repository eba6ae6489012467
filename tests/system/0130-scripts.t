# SPDX-License-Identifier: Apache-2.0
# Scripts that are not the happy case: each has a clear line, and the job is submitted as it was.
# shellcheck shell=bash

# unhappy NAME PATTERN <script: submits it.
unhappy() {
  script "$1.sh"
  submit --gres=gpu:1 "$1.sh"
  is "$STATUS" 0 "$1: submitted"
  like "$SAID" "^sbatch: gpumem: .*($2)" "$1: the line says why"
  is "$(printf '%s\n' "$SAID" | wc -l)" 1 "$1: in one line"
  like "$(job_field "$JOB" TresPerNode)" 'gpu:1$' "$1: as it was"
  in_cluster scancel "$JOB"
}

unhappy no-python 'no (CUDA|GPU)|did not use|Python|PyTorch' <<'END'
#!/bin/bash
sleep 0.1
END
unhappy fails-at-once 'fail|exit status 3' <<'END'
#!/bin/bash
python -c "import torch, sys; sys.exit(3)"
exit 3
END
unhappy torch-missing 'torch' <<'END'
#!/bin/bash
/usr/bin/python3 -c "import torch; torch.ones(1).cuda()"
END
unhappy trains-on-cpu 'CPU|no (CUDA|GPU)|did not use' <<'END'
#!/bin/bash
python -c "
import torch
model = torch.nn.Linear(8, 8)
for _ in range(20): model(torch.ones(1, 8)).sum().backward()"
END
fixture train.py
unhappy own-preload 'LD_PRELOAD|preload' <<'END'
#!/bin/bash
env -i PATH="$PATH" LD_PRELOAD=/lib/x86_64-linux-gnu/libdl.so.2 python -c "
import torch
torch.ones(1 << 20, device='cuda' if torch.cuda.is_available() else 'cpu').sum()"
END
unhappy missing-function 'cu[A-Za-z]+|function' <<'END'
#!/bin/bash
python -c "
import torch, ctypes
torch.ones(1).cuda()
ctypes.CDLL('libcuda.so.1').cuGraphicsMapResources(0, None, None)
torch.cuda.cudart().cudaProfilerStart() if False else None
raise SystemExit(1)"
END

# A script's own LD_PRELOAD is merged with ours.
script sets-preload.sh <<'END'
#!/bin/bash
export LD_PRELOAD=/lib/x86_64-linux-gnu/libdl.so.2
python train.py 512 30
END
submit --gres=gpu:1 sets-preload.sh
like "$SAID" '^sbatch: gpumem: needs .*requesting shard' "sets-preload: estimated"
in_cluster scancel "$JOB"

# No end within the deadline.
sed -i 's/^\[slurm\]/[submit]\nprobe_timeout_s = 8\ndeadline_s = 10\n\n[slurm]/' "$CLUSTER/etc/gpumem.conf"
kill -HUP "$(pid_of gpumemd)"
sleep 1
unhappy no-end 'time|deadline|within' <<'END'
#!/bin/bash
python -c "
import time, torch
torch.ones(1).cuda()
time.sleep(600)"
END
write_gpumem_conf
kill -HUP "$(pid_of gpumemd)"
