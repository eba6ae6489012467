# SPDX-License-Identifier: Apache-2.0
# What: DeepSpeed's fused Adam, a CUDA operator that it compiles with nvcc at its first use, under ZeRO 2: state, values and skipped steps.
# needs: deepspeed torch>=2.9 nvcc>=13 ninja
# env: RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 MASTER_ADDR=localhost MASTER_PORT=29400 DS_ACCELERATOR=cuda
# timeout: 900
# expect: no-note "in vain"
import glob
import os
import re
import subprocess
import tempfile

said = subprocess.run(["nvcc", "--dryrun", "-c", "x.cu"], stderr=subprocess.PIPE, text=True).stderr
os.environ["CUDA_HOME"] = os.path.realpath(re.search(r"TOP=(\S+)", said).group(1))
os.environ["TORCH_EXTENSIONS_DIR"] = tempfile.mkdtemp()

import torch  # noqa: E402

# Headers of CUDA's libraries, which a machine may lack: those that PyTorch's own packages bring.
with_headers = glob.glob(os.path.join(os.path.dirname(os.path.dirname(torch.__file__)), "nvidia", "cu*", "include"))
os.environ["CPLUS_INCLUDE_PATH"] = ":".join(with_headers)

import deepspeed  # noqa: E402
from deepspeed.ops.adam import FusedAdam  # noqa: E402

WIDTH = 1024
weight = torch.nn.Parameter(torch.zeros(WIDTH, WIDTH, device="cuda"))
before = torch.cuda.memory_allocated()
optimizer = FusedAdam([weight], lr=1e-3)
overflow = torch.cuda.memory_allocated() - before
weight.grad = torch.ones_like(weight)
optimizer.step()
state = optimizer.state[weight]
assert state["exp_avg"].shape == weight.shape and state["exp_avg_sq"].dtype == torch.float32
assert torch.cuda.memory_allocated() - before == 3 * 4 * WIDTH * WIDTH + overflow, torch.cuda.memory_allocated() - before
del weight, optimizer, state

deepspeed.init_distributed("nccl")
config = {
    "train_micro_batch_size_per_gpu": 8, "gradient_clipping": 1.0, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
}
model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU(), torch.nn.Linear(WIDTH, 1))
engine, optimizer, _, _ = deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())
assert isinstance(engine.basic_optimizer, FusedAdam), engine.basic_optimizer
for _ in range(3):
    loss = engine(torch.randn(8, WIDTH, device=engine.device, dtype=torch.bfloat16)).float().mean()
    engine.backward(loss)
    engine.step()
assert engine.global_steps == 3 and engine.skipped_steps == 0 and loss.item() == loss.item()
print("ok")
