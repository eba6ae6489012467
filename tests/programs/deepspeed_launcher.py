# SPDX-License-Identifier: Apache-2.0
# What: DeepSpeed's launcher: as many ranks as there are GPUs run for real; of more, rank 0.
# needs: deepspeed
# gpus: 2
# expect: note "the launcher started rank 0 of 8 only"
# expect: note "rank 0 of 8 ran without the others"
import os
import subprocess
import sys
import tempfile

PROGRAM = """
import argparse, deepspeed, os, torch, torch.distributed as dist
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int)
parser.add_argument("--size", type=int)
options = parser.parse_args()
deepspeed.init_distributed("nccl")
torch.cuda.set_device(options.local_rank)
assert dist.get_world_size() == options.size
x = torch.full((1,), float(dist.get_rank() + 1), device="cuda")
dist.all_reduce(x)
os.write(1, b"sum %.1f\\n" % x.item())
dist.destroy_process_group()
"""
with tempfile.TemporaryDirectory() as directory:
    path = os.path.join(directory, "program.py")
    with open(path, "w") as file:
        file.write(PROGRAM)
    for ranks, lines in ((2, ["sum 3.0"] * 2), (8, ["sum 8.0"])):
        command = [sys.executable, os.path.join(os.path.dirname(sys.executable), "deepspeed"), "--num_gpus", str(ranks), path, "--size", str(ranks)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = [line[line.index("sum "):] for line in done.stdout.splitlines() if "sum " in line]
        assert done.returncode == 0 and said == lines, done.stdout[-3000:]
print("ok")
