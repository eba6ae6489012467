# SPDX-License-Identifier: Apache-2.0
# What a job sees of its virtual GPU: one device of its model, its memory, nvidia-smi from the same book.
# shellcheck shell=bash

script see.sh <<'END'
#!/bin/bash
#SBATCH --gres=gpu:1
python - <<'EOP'
import torch
print("devices", torch.cuda.device_count(), torch.cuda.get_device_name())
print("total", torch.cuda.get_device_properties(0).total_memory >> 30)
EOP
nvidia-smi --query-gpu=name,memory.total --format=csv,noheader
nvidia-smi -L
END
submit --gpumem=off see.sh
wait_end "$JOB"
out=$(cat "$WORK/slurm-$JOB.out")
like "$out" '^devices 1 NVIDIA GeForce RTX 3060$' "one device, by its name"
like "$out" '^total 11$' "with its memory"
like "$out" '^NVIDIA GeForce RTX 3060, [0-9]+ MiB$' "nvidia-smi says the same"
submit --gpumem=4G --gres=gpu:1 --wrap 'python -c "import torch; print(\"total\", torch.cuda.mem_get_info()[1] >> 20)"'
wait_end "$JOB"
like "$(cat "$WORK/slurm-$JOB.out")" '^total [0-9]+$' "a shared device too"
submit --wrap 'python -c "import torch; print(torch.cuda.is_available())"'
wait_end "$JOB"
like "$(cat "$WORK/slurm-$JOB.out")" '^False$' "a job without GPU has none"
