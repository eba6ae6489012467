# SPDX-License-Identifier: Apache-2.0
# Ways to train with several ranks, small; each checks what it can know of values, shapes and memory on its own rank.
import gc
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

WIDTH, LAYERS, BATCH = 512, 4, 16
MIB = 1 << 20
VERSION = tuple(map(int, torch.__version__.split(".")[:2]))


def begin():
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    return device


def end():
    dist.barrier()
    print("ok", dist.get_rank(), "of", dist.get_world_size(), flush=True)
    dist.destroy_process_group()


class Block(nn.Module):
    def __init__(self, width=WIDTH):
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.LayerNorm(width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, layers=LAYERS, width=WIDTH):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def clean():
    """What is allocated when all garbage is gone."""
    torch.cuda.synchronize()  # what a stream still uses is not free
    gc.collect()
    torch.cuda.empty_cache()
    return torch.cuda.memory_allocated()


def bytes_of(module):
    return sum(p.numel() * p.element_size() for p in module.parameters())


def train(model, optimizer, device, steps=3, clip=None):
    torch.cuda.reset_peak_memory_stats()
    for _ in range(steps):
        loss = model(torch.randn(BATCH, WIDTH, device=device)).square().mean()
        loss.backward()
        if clip is not None:
            norm = clip(1.0)
            assert torch.isfinite(torch.as_tensor(float(norm)))
        optimizer.step()
        optimizer.zero_grad()
        assert loss.item() == loss.item() and loss.item() != 0
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    assert 0 < mean.item() / dist.get_world_size() < float("inf")
    return torch.cuda.max_memory_allocated()


class Convolutional(nn.Module):
    """Batch normalisation, a branch that is not always used, a buffer."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.Conv2d(32, 32, 3, padding=1)
        self.other, self.out = nn.Conv2d(32, 32, 1), nn.Linear(32, 10)

    def forward(self, x, branch):
        x = F.relu(self.norm(self.first(x)))
        x = self.second(x) if branch else self.other(x)
        return self.out(x.mean((2, 3)))


def ddp(device):
    from torch.nn.parallel import DistributedDataParallel as DDP

    peaks = {}
    for name, options in (("plain", {}), ("bucket view", {"gradient_as_bucket_view": True}), ("static graph", {"static_graph": True}),
                          ("one bucket", {"bucket_cap_mb": 1000, "broadcast_buffers": False})):
        before = clean()
        model = DDP(Model().to(device), device_ids=[device.index], **options)
        optimizer = torch.optim.AdamW(model.parameters())
        if name != "static graph":
            with model.no_sync():
                model(torch.randn(BATCH, WIDTH, device=device)).sum().backward()
        optimizer.zero_grad()
        peaks[name] = train(model, optimizer, device) - before
        parameters = bytes_of(model)
        del model, optimizer
    # Gradients that are views of the buckets are not there twice.
    assert peaks["plain"] > peaks["bucket view"] + 0.7 * parameters, (parameters, peaks)

    model = nn.SyncBatchNorm.convert_sync_batchnorm(Convolutional()).to(device)
    assert isinstance(model.norm, nn.SyncBatchNorm)
    model = DDP(model, device_ids=[device.index], find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    scaler = torch.cuda.amp.GradScaler()
    for step in range(4):
        with torch.autocast("cuda", dtype=torch.float16):
            out = model(torch.randn(8, 3, 32, 32, device=device), branch=step % 2 == 0)
            loss = F.cross_entropy(out, torch.arange(8, device=device))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert scaler.get_scale() == 65536.0, scaler.get_scale()

    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    model = DDP(Model().to(device), device_ids=[device.index])
    model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    from torch.distributed.optim import ZeroRedundancyOptimizer

    train(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW), device)


def fsdp1(device):
    import functools

    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision, ShardingStrategy, StateDictType
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    wrap = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
    size = dist.get_world_size()
    for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy.NO_SHARD):
        before = clean()
        # PyTorch 2.1 forgets that it has freed what it prefetched where nothing is sharded: its backward fails on any device.
        prefetch = strategy is not ShardingStrategy.NO_SHARD or VERSION >= (2, 2)
        model = FSDP(Model().to(device), auto_wrap_policy=wrap, sharding_strategy=strategy, sync_module_states=True, use_orig_params=True,
                     mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32), device_id=device, forward_prefetch=prefetch)
        whole = bytes_of(Model())
        held = torch.cuda.memory_allocated() - before
        share = 1 if strategy is ShardingStrategy.NO_SHARD else size
        assert 0.99 * whole / share <= held <= whole / share + 2 * MIB, (strategy, whole, held)
        optimizer = torch.optim.AdamW(model.parameters())
        train(model, optimizer, device, clip=model.clip_grad_norm_)
        if strategy is ShardingStrategy.FULL_SHARD:
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
                state = model.state_dict()
            assert tuple(state["blocks.0.up.weight"].shape) == (4 * WIDTH, WIDTH)
            del state
        del model, optimizer


def fsdp2(device):
    try:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    except ImportError:
        from torch.distributed._composable.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    from torch.distributed.device_mesh import init_device_mesh

    size = dist.get_world_size()
    mesh = init_device_mesh("cuda", (size,))
    with torch.device("meta"):
        model = Model()
    whole = bytes_of(model)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    before = torch.cuda.memory_allocated()
    model.to_empty(device=device)
    for block in model.blocks:
        for part in (block.up, block.down, block.norm):
            part.reset_parameters()
    held = torch.cuda.memory_allocated() - before
    assert whole / size <= held <= whole / size + 2 * MIB, (whole, held)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    peak = train(model, optimizer, device, clip=lambda most: torch.nn.utils.clip_grad_norm_(model.parameters(), most).full_tensor())
    assert peak < before + 3.5 * whole, (peak, whole)
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if dist.get_rank() == 0:
        assert tuple(state["blocks.0.up.weight"].shape) == (4 * WIDTH, WIDTH), state.keys()


class Scale(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.arange(1.0, size + 1))

    def forward(self, x):
        return (self.scale * x).sum()


def fsdp2_values(device, gathered):
    """What each rank knows of small sharded parameters; `gathered(rank, world)`: what all of them come to."""
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        from torch.distributed._composable.fsdp import fully_shard
    rank, world = dist.get_rank(), dist.get_world_size()
    own, all_of_them = [2.0 * rank + 1, 2.0 * rank + 2], gathered(rank, world)
    module = Scale(2 * world).to(device)
    fully_shard(module)
    optimizer = torch.optim.SGD(module.parameters(), 0.5)
    assert module.scale.to_local().tolist() == own
    assert (module.scale * 2).to_local().tolist() == [2 * value for value in own]
    assert module.scale.full_tensor().tolist() == all_of_them, module.scale.full_tensor()
    loss = module(torch.ones(2 * world, device=device))
    assert loss.item() == sum(all_of_them), loss
    loss.backward()
    assert module.scale.grad.to_local().tolist() == [1.0, 1.0]  # the mean over the ranks
    optimizer.step()
    assert module.scale.to_local().tolist() == [value - 0.5 for value in own]


def tensor_parallel(device):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

    size = dist.get_world_size()
    mesh = init_device_mesh("cuda", (size,))
    torch.manual_seed(0)
    before = torch.cuda.memory_allocated()
    model = Model().to(device)
    whole = torch.cuda.memory_allocated() - before
    for block in model.blocks:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    assert model.blocks[0].up.weight.to_local().shape == (4 * WIDTH // size, WIDTH)
    assert model.blocks[0].down.weight.to_local().shape == (WIDTH, 4 * WIDTH // size)
    assert clean() - before < whole / size + 2 * MIB
    train(model, torch.optim.AdamW(model.parameters(), foreach=False), device)

    x = distribute_tensor(torch.arange(4.0 * size, device=device), mesh, [Shard(0)])
    assert isinstance(x, DTensor) and x.to_local().shape == (4,)
    rank = dist.get_rank()
    assert x.to_local().tolist() == [4.0 * rank + i for i in range(4)]
    whole = x.redistribute(mesh, [Replicate()]).to_local()
    assert whole.shape == (4 * size,) and whole[:4].tolist() in ([0.0, 1.0, 2.0, 3.0],)

    sequence = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)).to(device)
    parallelize_module(sequence, mesh, {"0": SequenceParallel()})
    out = sequence[0](torch.randn(2, 8, WIDTH, device=device))  # a rank's own part of the sequence
    assert out.shape == (2, 8 * size, WIDTH) and out.to_local().shape == (2, 8, WIDTH), out.shape


def mixed_mesh(device):
    """FSDP2 over tensor parallel, on a mesh with two dimensions."""
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        from torch.distributed._composable.fsdp import fully_shard
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    size = dist.get_world_size()
    mesh = init_device_mesh("cuda", (size // 2, 2), mesh_dim_names=("data", "tensor"))
    model = Model().to(device)
    for block in model.blocks:
        parallelize_module(block, mesh["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
    assert model.blocks[0].up.weight.to_local().numel() == 4 * WIDTH * WIDTH // size
    train(model, torch.optim.AdamW(model.parameters(), foreach=False), device)


def pipeline(device):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

    rank, size = dist.get_rank(), dist.get_world_size()
    microbatches = 2 * size

    def loss_of(out, target):
        return F.mse_loss(out, target)

    def run(schedule, models, first, last):
        optimizer = torch.optim.AdamW([p for model in models for p in model.parameters()])
        x, target = torch.randn(BATCH * microbatches, WIDTH, device=device), torch.zeros(BATCH * microbatches, WIDTH, device=device)
        for _ in range(2):
            losses = []
            if first and last:
                schedule.step(x, target=target, losses=losses)
            elif first:
                schedule.step(x)
            elif last:
                schedule.step(target=target, losses=losses)
            else:
                schedule.step()
            assert len(losses) == (microbatches if last else 0)
            assert all(p.grad is not None for model in models for p in model.parameters())
            optimizer.step()
            optimizer.zero_grad()

    for kind in (ScheduleGPipe, Schedule1F1B):
        model = Model(2).to(device)
        stage = PipelineStage(model, rank, size, device)
        run(kind(stage, microbatches, loss_fn=loss_of), [model], rank == 0, rank == size - 1)
    models = [Model(1).to(device) for _ in range(2)]
    stages = [PipelineStage(model, rank + i * size, 2 * size, device) for i, model in enumerate(models)]
    run(ScheduleInterleaved1F1B(stages, microbatches, loss_fn=loss_of), models, rank == 0, rank == size - 1)
