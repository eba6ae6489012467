# SPDX-License-Identifier: Apache-2.0
# torch.distributed in a probe: at its rendezvous it shows whether the other ranks are here. Where they are, they meet on this
# host, whatever address the script was given; where they are not, missing_ranks answers for them.
import os

from . import missing_ranks, ranks, record

_torch = None
_alone = None  # None: not known yet


def start(torch):
    global _torch
    _torch = torch
    distributed = getattr(torch, "distributed", None)  # a part that a build may lack
    if distributed is None or not distributed.is_available():
        return
    import torch.distributed.distributed_c10d as c10d

    original_rendezvous, original_init = c10d.rendezvous, c10d.init_process_group

    def rendezvous(url, rank=-1, world_size=-1, **kwargs):
        number, world = _numbers(url, rank, world_size)
        if number is None or world < 2:
            yield from original_rendezvous(url, rank, world_size, **kwargs)
        elif is_alone(number, world):
            yield missing_ranks.store(number, world), number, world
        else:
            yield from original_rendezvous(_local(url), rank, world_size, **kwargs)

    def init_process_group(*args, **kwargs):
        # Groups of a bound device are split from each other, and a split tells only those who are there how large it is.
        if kwargs.get("device_id") is not None:
            number, world = _numbers(kwargs.get("init_method") or "env://", kwargs.get("rank", -1), kwargs.get("world_size", -1))
            if number is not None and world > 1 and is_alone(number, world):
                kwargs["device_id"] = None
        return original_init(*args, **kwargs)

    init_process_group.__doc__, init_process_group.__wrapped__ = original_init.__doc__, original_init
    c10d.rendezvous = rendezvous
    c10d.init_process_group = torch.distributed.init_process_group = init_process_group
    for name in ("TCPStore", "FileStore"):
        if hasattr(torch.distributed, name):
            setattr(torch.distributed, name, _stand_in(name, getattr(torch.distributed, name)))


def is_alone(rank, world):
    """Decides once a process, and prepares it."""
    global _alone
    if _alone is None:
        _alone = not ranks.all_here(world)
        record.write("ranks", rank=rank, world_size=world, missing=_alone)
        if _alone:
            _go_alone(rank, world)
        else:
            ranks.begin(rank, world)
    return _alone


def _go_alone(rank, world):
    os.environ["GPUMEM_ALONE"] = "1"  # for NCCL's double, and for processes that this one starts
    # Watching the others' state through the store is a thread that would outlive Python.
    os.environ["TORCH_NCCL_ENABLE_MONITORING"] = os.environ["TORCH_NCCL_DUMP_ON_TIMEOUT"] = "0"
    missing_ranks.start(_torch)
    record.note("ranks", "rank %d of %d ran without the others: what they would have sent was made up from its own values" % (rank, world),
                rank=rank, world=world)


def _numbers(url, rank, world):
    """Rank and world size as the rendezvous would find them; None where it would complain."""
    try:
        from urllib.parse import parse_qs, urlparse

        if isinstance(url, str):
            query = parse_qs(urlparse(url).query)
            rank = int(query["rank"][0]) if rank in (-1, None) and "rank" in query else rank
            world = int(query["world_size"][0]) if world in (-1, None) and "world_size" in query else world
            if urlparse(url).scheme in ("env", ""):
                rank = int(os.environ["RANK"]) if rank in (-1, None) else rank
                world = int(os.environ["WORLD_SIZE"]) if world in (-1, None) else world
        if rank is None or world is None or rank < 0 or rank >= world:
            return None, 0
        return rank, world
    except (KeyError, ValueError):
        return None, 0


def _local(url):
    # All ranks are here, and the names of a cluster's nodes may not be known in a sandbox without a network.
    if os.environ.get("MASTER_ADDR"):
        os.environ["MASTER_ADDR"] = "127.0.0.1"
    if isinstance(url, str) and url.startswith("tcp://"):
        from urllib.parse import urlparse, urlunparse

        parts = urlparse(url)
        return urlunparse(parts._replace(netloc="127.0.0.1" + (":%d" % parts.port if parts.port else "")))
    return url


def _stand_in(name, real):
    """A store that the program makes by itself. Its class still is what isinstance() is asked about."""

    class Kind(type):
        def __call__(cls, *args, **kwargs):
            world = kwargs.get("world_size", args[2 if name == "TCPStore" else 1] if len(args) > (2 if name == "TCPStore" else 1) else None)
            number, all_ranks = _numbers("env://", -1, world if isinstance(world, int) else -1)
            if number is None and isinstance(world, int) and world > 1 and kwargs.get("is_master", len(args) > 3 and args[3]):
                number, all_ranks = 0, world
            if number is not None and all_ranks > 1 and is_alone(number, all_ranks):
                return missing_ranks.store(number, all_ranks)
            return real(*args, **kwargs)

        def __instancecheck__(cls, value):
            return isinstance(value, real)

        def __getattr__(cls, attribute):
            return getattr(real, attribute)

    return Kind(name, (), {"__doc__": real.__doc__, "__module__": real.__module__})
