# SPDX-License-Identifier: Apache-2.0
# salloc and srun: changed when a SIZE is given, never otherwise.
# shellcheck shell=bash

said=$(user salloc --gpumem=1G --gres=gpu:1 srun sh -c 'echo "shards $SLURM_SHARDS_ON_NODE devices $CUDA_VISIBLE_DEVICES"' 2>&1)
like "$said" 'gpumem: .*shard:1024 instead of --gres=gpu:1' "salloc says what it requests"
like "$said" '^shards 1024 devices [01]$' "its steps have the shards"
said=$(user srun --gpumem=1G --gpus=1 sh -c 'echo "shards $SLURM_SHARDS_ON_NODE token $SLURM_SPANK_GPUMEM_TOKEN"' 2>&1)
like "$said" 'gpumem: .*shard:1024' "srun says what it requests"
like "$said" '^shards 1024 token [0-9a-f]{32}$' "its job has the shards and the decision's token"
said=$(user salloc --gres=gpu:1 srun sh -c 'echo "shards ${SLURM_SHARDS_ON_NODE:-none} gpus $SLURM_STEP_GPUS"' 2>&1)
like "$said" '^shards none gpus [01]$' "salloc without a size keeps its GPU"
unlike "$said" gpumem: "and says nothing"
said=$(user srun --gres=gpu:1 sh -c 'echo "shards ${SLURM_SHARDS_ON_NODE:-none} gpus $SLURM_STEP_GPUS"' 2>&1)
like "$said" '^shards none gpus [01]$' "srun without a size keeps its GPU"
unlike "$said" gpumem: "and says nothing"
