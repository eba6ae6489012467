#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Full fine-tuning of Llama-3 shapes with random weights: llama.py 8b|70b [--tokens 2048] [--steps 40].

An ordinary program, run by tests/bench/bench.py under gpumem estimate. 8b: built on the CPU in bfloat16, moved, AdamW. 70b: one rank of
as many as RANK and WORLD_SIZE say, FSDP2 over every layer, built on the meta device, checkpointed activations. Needs transformers.
"""
import argparse
import os

import torch
from transformers import LlamaConfig, LlamaForCausalLM

SHAPES = {
    "8b": dict(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32),
    "70b": dict(hidden_size=8192, intermediate_size=28672, num_hidden_layers=80, num_attention_heads=64),
}
parser = argparse.ArgumentParser()
parser.add_argument("shape", choices=sorted(SHAPES))
parser.add_argument("--tokens", type=int, default=2048)
parser.add_argument("--steps", type=int, default=40)
arguments = parser.parse_args()
config = LlamaConfig(vocab_size=128256, num_key_value_heads=8, max_position_embeddings=8192, rope_theta=500000.0, use_cache=False,
                     torch_dtype=torch.bfloat16, **SHAPES[arguments.shape])

device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
torch.cuda.set_device(device)
if arguments.shape == "8b":
    torch.set_default_dtype(torch.bfloat16)
    model = LlamaForCausalLM(config).to(device)
    torch.set_default_dtype(torch.float32)
else:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    torch.distributed.init_process_group("nccl", device_id=device)
    with torch.device("meta"):
        model = LlamaForCausalLM(config).float()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    model.to_empty(device=device)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for _ in range(arguments.steps):
    tokens = torch.randint(0, config.vocab_size, (1, arguments.tokens), device=device)
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"loss {loss.item():.3f}", flush=True)
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
