# SPDX-License-Identifier: Apache-2.0
# What a rank hears from others that are not there, above NCCL: the rendezvous store, collectives on the CPU (gloo), objects.
#
# Note [Missing ranks]
# Every rank is taken to do and to hold what this one does: keys that another would have set are answered with our own value of
# the same key, counters count for all, a gather is our own part N times, a sum N times our own value. What another would have
# sent (recv) is unknown: tensors read as zero, an object is the last that we sent to anyone (a pipeline's shapes).
# Device tensors take the same way inside the virtual GPU (libraries/nccl.h, Note [Ranks]), so that the buffers of
# collectives are PyTorch's own. Ends of trouble (abort, dump and error keys) never come from who is not there.
import copy
import functools
import sys
import types

from . import missing_store

SMALL_BYTES = 64 << 10  # device tensors up to this size carry values

_torch = None
_dist = None
_c10d = None          # torch.distributed.distributed_c10d
_store = None         # one for the process: groups have prefixes of their own
_last_sent = []


def start(torch):
    """Replaces what asks other ranks; call once, when the others are known to be missing."""
    global _torch, _dist, _c10d
    if _torch is not None:
        return
    import torch.distributed.distributed_c10d as c10d

    _torch, _dist, _c10d = torch, torch.distributed, c10d
    _answer_gloo()
    if hasattr(c10d, "_get_split_source"):
        c10d._get_split_source = lambda *group: None  # a split says to nobody how many ranks it has
    if hasattr(c10d, "_create_process_group_wrapper"):
        c10d._create_process_group_wrapper = lambda wrapped_pg, *args, **kwargs: wrapped_pg
    for name, function in list(globals().items()):
        if name.startswith("on_"):
            _replace(name[3:], function)


def store(rank, world):
    """The store that answers for the others."""
    global _store
    if _store is None:
        _store = missing_store.make(_dist, rank, world)
    return _store


# --- Groups on the CPU ---


def _answer_gloo():
    import torch._C._distributed_c10d as bindings

    real = getattr(_c10d, "ProcessGroupGloo", None)
    if real is None:
        return
    fake = getattr(bindings, "FakeProcessGroup", None)
    if fake is not None:
        # It has the interface of a group's part for a device, but for these.
        fake._set_sequence_number_for_group = lambda self: None
        fake._get_sequence_number_for_group = lambda self: 0
        if not hasattr(fake, "options"):  # 2.8: a new group's name and ranks are written there; nobody reads them
            fake.options = property(lambda self: types.SimpleNamespace())

    def make(store, rank, size):
        for maker in (getattr(fake, "_create_internal", None), fake):
            if maker is not None:
                try:
                    return maker(rank, size)
                except TypeError:
                    pass
        # Before 2.2: any part that can be made without the others. What is on the CPU is answered below, before it gets there.
        return bindings.ProcessGroupNCCL(store, rank, size)

    class Kind(type):
        def __call__(cls, store, rank=0, size=1, *args, **kwargs):
            return make(store, rank, size)

        def __instancecheck__(cls, value):
            return isinstance(value, real) or (fake is not None and isinstance(value, fake))

        def __getattr__(cls, name):
            return getattr(real, name)

    class ProcessGroupGloo(metaclass=Kind):
        pass

    _c10d.ProcessGroupGloo = ProcessGroupGloo


class _Done:
    """The work of an operation that is over."""

    def __init__(self, value=None):
        self.value = value

    def wait(self, timeout=None):
        return True

    def is_completed(self):
        return True

    def is_success(self):
        return True

    def result(self):
        return self.value

    def get_future(self):
        future = _torch.futures.Future()
        future.set_result(self.value)
        return future


def _replace(name, function):
    original = getattr(_c10d, name, None)
    if original is None:
        return
    answer = functools.wraps(original)(functools.partial(function, original))
    setattr(_c10d, name, answer)
    for module in (_dist, sys.modules.get("torch.distributed.device_mesh")):
        if getattr(module, name, None) is original:
            setattr(module, name, answer)


def _bind(original, args, kwargs):
    """The arguments by name, whatever this version calls them besides ours."""
    import inspect

    bound = inspect.signature(inspect.unwrap(original)).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


def _size(group):
    return _dist.get_world_size(group)


def _is_mine(given, group=None, by_group=None):
    """Is that the rank of this process? In a group's own numbers where `by_group` is given."""
    if by_group is not None:
        return by_group == _dist.get_rank(group)
    return given is None or given == _dist.get_rank()


def _on_cpu(value):
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    return isinstance(value, _torch.Tensor) and value.device.type == "cpu"


def _outside(group):
    return group is not None and group is getattr(_dist.GroupMember, "NON_GROUP_MEMBER", -100)


def _is_sum(op):
    return getattr(op, "op", op) in (_dist.ReduceOp.SUM,)


def _reduced(tensor, op, group):
    """What a reduction over equal tensors gives."""
    if _is_sum(op):
        return tensor * _size(group)
    if getattr(op, "op", op) == _dist.ReduceOp.PRODUCT:
        return tensor ** _size(group)
    return tensor


def _answered(name_of_tensor):
    """For collectives whose tensors are on the CPU; all others go their own way."""

    def decorate(function):
        def on(original, *args, **kwargs):
            given = _bind(original, args, kwargs)
            if _outside(given.get("group")) or not _on_cpu(given[name_of_tensor]):
                return original(*args, **kwargs)
            with _torch.no_grad():
                function(given)
            return _Done(given[name_of_tensor]) if given.get("async_op") else None

        return on

    return decorate


@_answered("tensor")
def on_all_reduce(given):
    given["tensor"].copy_(_reduced(given["tensor"], given["op"], given["group"]))


@_answered("tensor")
def on_reduce(given):
    if _is_mine(given.get("dst"), given["group"], given.get("group_dst")):
        given["tensor"].copy_(_reduced(given["tensor"], given["op"], given["group"]))


@_answered("tensor")
def on_broadcast(given):
    pass  # every rank has the same


@_answered("tensor")
def on_all_gather(given):
    for out in given["tensor_list"]:
        out.copy_(given["tensor"])


@_answered("input_tensor")
def on_all_gather_into_tensor(given):
    for part in given["output_tensor"].view(-1).chunk(_size(given["group"])):
        part.copy_(given["input_tensor"].reshape(-1))


def on_gather(original, *args, **kwargs):
    # PyTorch makes it of NCCL's sends and receives, where nobody knows any more that they are one gather.
    given = _bind(original, args, kwargs)
    tensor = given["tensor"]
    if _outside(given.get("group")):
        return original(*args, **kwargs)
    done = _Done(given.get("gather_list")) if _on_cpu(tensor) else original(*args, **kwargs)
    if _on_cpu(tensor) or tensor.numel() * tensor.element_size() <= SMALL_BYTES:
        with _torch.no_grad():
            for out in given.get("gather_list") or ():
                out.copy_(tensor)
    return done if given.get("async_op") else None


@_answered("tensor")
def on_scatter(given):
    parts = given.get("scatter_list")
    if parts:
        given["tensor"].copy_(parts[_dist.get_rank(given["group"])])


@_answered("output")
def on_reduce_scatter(given):
    given["output"].copy_(_reduced(given["input_list"][_dist.get_rank(given["group"])], given["op"], given["group"]))


@_answered("output")
def on_reduce_scatter_tensor(given):
    mine = given["input"].reshape(-1).chunk(_size(given["group"]))[_dist.get_rank(given["group"])]
    given["output"].view(-1).copy_(_reduced(mine, given["op"], given["group"]))


@_answered("output")
def on_all_to_all_single(given):
    out, sent = given["output"].view(-1), given["input"].reshape(-1)
    many = min(out.numel(), sent.numel())
    out[:many] = sent[:many]


@_answered("output_tensor_list")
def on_all_to_all(given):
    for out, sent in zip(given["output_tensor_list"], given["input_tensor_list"]):
        if out.shape == sent.shape:
            out.copy_(sent)
        else:
            out.zero_()


def on_send(original, tensor, *args, **kwargs):
    return None if _on_cpu(tensor) else original(tensor, *args, **kwargs)


def on_isend(original, tensor, *args, **kwargs):
    return _Done(tensor) if _on_cpu(tensor) else original(tensor, *args, **kwargs)


def on_recv(original, tensor, src=None, *args, **kwargs):
    if not _on_cpu(tensor):
        return original(tensor, src, *args, **kwargs)
    tensor.zero_()
    return src if src is not None else (_dist.get_rank() + 1) % _size(None)


def on_irecv(original, tensor, *args, **kwargs):
    if not _on_cpu(tensor):
        return original(tensor, *args, **kwargs)
    tensor.zero_()
    return _Done(tensor)


def on_monitored_barrier(original, *args, **kwargs):
    return None


def on_barrier(original, *args, **kwargs):
    given = _bind(original, args, kwargs)
    if _outside(given.get("group")) or _dist.get_backend(given.get("group")) != "gloo":
        return original(*args, **kwargs)
    return _Done() if given.get("async_op") else None


# --- Objects: the device's part is done as ever, for the memory it takes; what comes of it is ours. ---


def _try(original, args, kwargs):
    try:
        original(*args, **kwargs)
    except _torch.cuda.OutOfMemoryError:
        raise
    except Exception:  # bytes that nobody sent make no object
        pass


def _fill(objects, own, group):
    mine = _dist.get_rank(group)
    for i in range(len(objects)):
        objects[i] = own if i == mine else copy.deepcopy(own)


def on_all_gather_object(original, *args, **kwargs):
    given = _bind(original, args, kwargs)
    if _outside(given.get("group")):
        return None
    _try(original, args, kwargs)
    _fill(given["object_list"], given["obj"], given.get("group"))


def on_gather_object(original, *args, **kwargs):
    given = _bind(original, args, kwargs)
    if _outside(given.get("group")):
        return None
    _try(original, args, kwargs)
    if given.get("object_gather_list") is not None:
        _fill(given["object_gather_list"], given["obj"], given.get("group"))


def on_broadcast_object_list(original, *args, **kwargs):
    given = _bind(original, args, kwargs)
    if _is_mine(given.get("src"), given.get("group"), given.get("group_src")):
        kept = list(given["object_list"])
        _try(original, args, kwargs)
        given["object_list"][:] = kept


def on_scatter_object_list(original, *args, **kwargs):
    given = _bind(original, args, kwargs)
    mine, parts = _dist.get_rank(given.get("group")), given.get("scatter_object_input_list")
    if parts and mine >= 0:
        _try(original, args, kwargs)
        given["scatter_object_output_list"][0] = parts[mine]


def on_send_object_list(original, *args, **kwargs):
    _last_sent[:] = [list(_bind(original, args, kwargs)["object_list"])]
    _try(original, args, kwargs)


def _as_expected(known):
    """A pipeline's stage (2.15) hears of its outputs' gradients what it has said of its outputs."""
    frame = sys._getframe(1)
    for _ in range(8):
        frame = frame and frame.f_back
        if frame is not None and frame.f_code.co_name == "_backward_metadata_inference" and hasattr(known, "forward_metas"):
            return frame.f_globals["_StageBackwardMeta"](backward_metas=known.forward_metas)
    return known


def on_split_group(original, *args, **kwargs):
    """The same groups by their ranks: a split tells nobody how many ranks it has."""
    given = _bind(original, args, kwargs)
    parent, mine = given.get("parent_pg"), None
    for ranks in given["split_ranks"]:
        if parent is not None:
            ranks = [_dist.get_global_rank(parent, rank) for rank in ranks]
        group = _dist.new_group(ranks=list(ranks), timeout=given.get("timeout"), pg_options=given.get("pg_options"),
                                group_desc=given.get("group_desc"))
        if _dist.get_rank() in ranks:
            mine = group
    return mine if mine is not None else _dist.GroupMember.NON_GROUP_MEMBER


def on_recv_object_list(original, *args, **kwargs):
    given = _bind(original, args, kwargs)
    objects = given["object_list"]
    for i, known in enumerate((_last_sent or [[]])[0][: len(objects)]):
        objects[i] = _as_expected(copy.deepcopy(known))
    return given.get("src") if given.get("src") is not None else (_dist.get_rank() + 1) % _size(None)
