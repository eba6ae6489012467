# SPDX-License-Identifier: Apache-2.0
# What: torchrun and accelerate launch for more ranks than there are GPUs run rank 0 of them, with the launcher's environment.
# needs: accelerate
# expect: note "rank 0 of 8 ran without the others"
# expect: note "the launcher started rank 0 of 16 only"
import os
import subprocess
import sys
import tempfile

PROGRAM = """
import os, sys, torch, torch.distributed as dist
if sys.argv[1] == "accelerate":
    from accelerate import Accelerator
    accelerator = Accelerator(mixed_precision="bf16")
    assert accelerator.num_processes == 8 and accelerator.is_main_process
    model = torch.nn.Linear(64, 64)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(256, 64)), batch_size=4)
    model, optimizer, data = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), data)
    assert len(data) == 8
    for (x,) in data:
        loss = model(x).square().mean()
        accelerator.backward(loss)
        optimizer.step()
    assert accelerator.gather(loss.detach()).shape == (8,)
else:
    assert os.environ["LOCAL_WORLD_SIZE"] == "8" and os.environ["GROUP_WORLD_SIZE"] == "2" and os.environ["TORCHELASTIC_RUN_ID"]
    dist.init_process_group("nccl")
    assert dist.get_world_size() == 16 and dist.get_rank() == 0
    x = torch.ones(1, device="cuda")
    dist.all_reduce(x)
    assert x.item() == 16
dist.destroy_process_group()  # PyTorch 2.1's watchdog may outlive its libraries otherwise, and abort
print("ran", sys.argv[1], sys.argv[2:])
"""
with tempfile.TemporaryDirectory() as directory:
    path = os.path.join(directory, "program.py")
    with open(path, "w") as file:
        file.write(PROGRAM)
    for arguments, word in (
        (["-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "8", "--rdzv-backend", "c10d", "--rdzv-endpoint", "node001:29500"], "torchrun"),
        (["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "8", "--num_machines", "1", "--mixed_precision", "bf16"], "accelerate"),
    ):
        done = subprocess.run([sys.executable] + arguments + [path, word, "a b", "--c"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0 and f"ran {word} ['a b', '--c']" in done.stdout, done.stdout
print("ok")
