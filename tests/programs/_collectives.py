# SPDX-License-Identifier: Apache-2.0
# Collectives, objects and point-to-point operations whose results are known both for real ranks and for rank 0 of N alone:
# alone, every rank holds what this one holds.
import torch
import torch.distributed as dist


def expected(per_rank, alone):
    """What ranks 0 to N - 1 hold, `per_rank` giving it for each; alone, all hold what rank 0 holds."""
    return [per_rank(0 if alone else rank) for rank in range(dist.get_world_size())]


def tensors(alone, device, group=None):
    rank, size = dist.get_rank(), dist.get_world_size()

    def full(value, *shape, dtype=torch.float32):
        return torch.full(shape, value, device=device, dtype=dtype)

    values = expected(lambda r: r + 1, alone)
    x = full(float(rank + 1), 4)
    dist.all_reduce(x, group=group)
    assert x.tolist() == [float(sum(values))] * 4, x
    for op, want in ((dist.ReduceOp.MAX, max(values)), (dist.ReduceOp.MIN, min(values))):
        x = full(rank + 1, 3, dtype=torch.int64)
        dist.all_reduce(x, op=op, group=group)
        assert x.tolist() == [want] * 3, (op, x)
    if device == "cuda":
        x = full(float(rank + 1), 2, dtype=torch.bfloat16)
        dist.all_reduce(x, op=dist.ReduceOp.AVG, group=group)
        assert abs(x[0].item() - sum(values) / size) < 0.05, x

    x = full(float(rank + 5), 2)
    dist.broadcast(x, src=0, group=group)
    assert x.tolist() == [5.0, 5.0], x

    out = [full(0.0, 2) for _ in range(size)]
    dist.all_gather(out, full(float(rank + 1), 2), group=group)
    assert [o.tolist() for o in out] == [[float(v)] * 2 for v in values], out
    # Gloo had none of these in 2.1.
    if device == "cuda" or tuple(map(int, torch.__version__.split(".")[:2])) > (2, 1):
        flat = full(0.0, 2 * size)
        dist.all_gather_into_tensor(flat, full(float(rank + 1), 2), group=group)
        assert flat.tolist() == [float(v) for v in values for _ in range(2)], flat

    parts = torch.arange(2 * size, device=device, dtype=torch.float32)
    mine = full(0.0, 2)
    if device == "cuda":
        dist.reduce_scatter_tensor(mine, parts, group=group)
        assert mine.tolist() == [size * 2.0 * rank, size * (2.0 * rank + 1)], mine
        sent = torch.arange(size, device=device) + 10 * rank
        got = torch.full_like(sent, -1)
        dist.all_to_all_single(got, sent, group=group)
        assert got.tolist() == (sent.tolist() if alone else [10 * r + rank for r in range(size)]), got
        # As many as come from each, as a mixture of experts does it: counts first, then tokens.
        tokens = full(float(rank), int(got.clamp(max=4).sum()), 8)
        dist.all_to_all_single(tokens, full(float(rank), int(sent.clamp(max=4).sum()), 8), got.clamp(max=4).tolist(), sent.clamp(max=4).tolist(), group=group)
    lists = [full(float(r), 3) for r in range(size)] if rank == 0 else None
    x = full(-1.0, 3)
    dist.scatter(x, lists, src=0, group=group)
    assert x.tolist() == [float(rank)] * 3, x
    gathered = [full(-1.0, 2) for _ in range(size)] if rank == 0 else None
    dist.gather(full(float(rank + 1), 2), gathered, dst=0, group=group)
    if rank == 0:
        assert [g.tolist() for g in gathered] == [[float(v)] * 2 for v in values], gathered
    x = full(float(rank + 1), 2)
    dist.reduce(x, dst=0, group=group)
    if rank == 0:
        assert x.tolist() == [float(sum(values))] * 2, x
    work = dist.all_reduce(full(1.0, 1), group=group, async_op=True)
    work.wait()
    dist.barrier(group=group)


def objects(alone, group=None):
    rank, size = dist.get_rank(), dist.get_world_size()
    ranks = expected(lambda r: r, alone)
    out = [None] * size
    dist.all_gather_object(out, {"rank": rank, "text": "x" * 5000 * (rank + 1)}, group=group)
    assert [o["rank"] for o in out] == ranks and len(out[0]["text"]) == 5000, [o and o["rank"] for o in out]
    given = [{"a": 1}, "two", 3.0] if rank == 0 else [None] * 3
    dist.broadcast_object_list(given, src=0, group=group)
    assert given == [{"a": 1}, "two", 3.0], given
    gathered = [None] * size if rank == 0 else None
    dist.gather_object(("rank", rank), gathered, dst=0, group=group)
    if rank == 0:
        assert [g[1] for g in gathered] == ranks, gathered
    mine = [None]
    dist.scatter_object_list(mine, [f"for {r}" for r in range(size)] if rank == 0 else None, src=0, group=group)
    assert mine == [f"for {rank}"], mine


def pairs(alone):
    """A ring, plain and batched; alone, what comes is zero or, in a batch, what was sent."""
    rank, size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    sent = torch.full((16,), float(rank + 1), device="cuda")
    got = torch.full((16,), -1.0, device="cuda")
    operations = [dist.P2POp(dist.isend, sent, right), dist.P2POp(dist.irecv, got, left)]
    for request in dist.batch_isend_irecv(operations):
        request.wait()
    assert got[0].item() in ((0.0, 1.0) if alone else (float(left + 1),)), got
    if rank == 0:
        dist.send(sent, 1)
        dist.recv(got, 1)
    elif rank == 1:
        dist.recv(got, 0)
        assert got[0].item() == 1.0, got
        dist.send(sent, 0)
    large = torch.ones(1 << 22, device="cuda")
    requests = [dist.isend(large, right), dist.irecv(torch.empty_like(large), left)] if rank % 2 == 0 else \
        [dist.irecv(torch.empty_like(large), left), dist.isend(large, right)]
    for request in requests:
        request.wait()
    torch.cuda.synchronize()


def groups(alone):
    rank, size = dist.get_rank(), dist.get_world_size()
    evens = dist.new_group(list(range(0, size, 2)))
    x = torch.full((1,), float(rank + 1), device="cuda")
    if rank % 2 == 0:
        dist.all_reduce(x, group=evens)
        count = (size + 1) // 2
        assert x.item() == (count if alone else sum(r + 1 for r in range(0, size, 2))), x
    cpu = dist.new_group(backend="gloo")
    tensors(alone, "cpu", cpu)
    objects(alone, cpu)
    dist.monitored_barrier(cpu)


def everything(alone):
    tensors(alone, "cuda")
    objects(alone)
    pairs(alone)
    groups(alone)
    print("ok", dist.get_rank(), "of", dist.get_world_size(), flush=True)
