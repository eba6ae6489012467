# SPDX-License-Identifier: Apache-2.0
# What: DeepSpeed's ZeRO 0 to 3 as rank 0 of 8, bf16 and fp16, with PyTorch's Adam; higher stages hold less.
# needs: deepspeed
# env: RANK=0 WORLD_SIZE=8 LOCAL_RANK=0 MASTER_ADDR=node001 MASTER_PORT=29400 DS_ACCELERATOR=cuda
# expect: note "rank 0 of 8 ran without the others"
import gc

import deepspeed
import torch
import torch.nn as nn

WIDTH, LAYERS, SIZE = 1024, 4, 8
deepspeed.init_distributed("nccl")


def model():
    return nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(LAYERS)], nn.Linear(WIDTH, 1))


held = {}
for stage in (0, 1, 2, 3):
    for kind in ("bf16", "fp16"):
        gc.collect()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        config = {
            "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0, kind: {"enabled": True},
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
            "zero_optimization": {"stage": stage, "reduce_bucket_size": 1 << 20, "allgather_bucket_size": 1 << 20,
                                  "stage3_param_persistence_threshold": 1 << 12, "stage3_prefetch_bucket_size": 1 << 20},
        }
        if stage == 3:
            with deepspeed.zero.Init(config_dict_or_path=config):
                network = model()
            # A parameter's shape is nothing while it is sharded.
            assert network[0][0].weight.ds_shape == (WIDTH, WIDTH) and network[0][0].weight.numel() == 0
        else:
            network = model()
        engine, _, _, _ = deepspeed.initialize(model=network, config=config, model_parameters=network.parameters())
        dtype = torch.bfloat16 if kind == "bf16" else torch.float16
        for _ in range(3):
            loss = engine(torch.randn(8, WIDTH, device=engine.device, dtype=dtype)).float().mean()
            engine.backward(loss)
            engine.step()
        assert loss.item() == loss.item()
        assert engine.global_steps == 3 and engine.skipped_steps == 0, (engine.global_steps, engine.skipped_steps)
        held[stage, kind] = torch.cuda.memory_allocated() - before
        engine.destroy()
        del engine, network, loss
for kind in ("bf16", "fp16"):
    assert held[0, kind] > 2 * held[1, kind] > 2 * held[3, kind], held
print("ok", held)
