# SPDX-License-Identifier: Apache-2.0
# Values of what inductor compiles: its kernels do not run on a virtual GPU, so the small part of each graph is computed beside it, on
# the CPU, from the small inputs whose values the tracer knows. Without it a compiled isfinite() is False, and a compiled mask selects all.
import functools

from . import imports, tracer

KNOWN, PLAUSIBLE = 3, 2                # the tracer's states (storage_states.h)
FLOAT_LIMIT, OTHER_LIMIT = 64 << 10, 2 << 20
PLAUSIBLE_LIMIT = 2 << 10

_torch = None


def start(torch):
    global _torch
    _torch = torch
    if tracer.active():
        imports.after("torch._inductor.compile_fx", "_gpumem_shim.graph_values", "patch_inductor")


def patch_inductor(module):
    original = module.compile_fx_inner

    @functools.wraps(original)
    def compile_fx_inner(gm, *args, **kwargs):
        plan = _plan(gm)
        compiled = original(gm, *args, **kwargs)
        return compiled if plan is None else _beside(compiled, plan)

    module.compile_fx_inner = compile_fx_inner
    # It is the default of a parameter of compile_fx, too, which decorators may hide.
    function = module.compile_fx
    while function is not None:
        defaults = getattr(function, "__defaults__", None)
        if defaults:
            function.__defaults__ = tuple(compile_fx_inner if value is original else value for value in defaults)
        function = getattr(function, "__wrapped__", None)


def _beside(compiled, plan):
    if hasattr(compiled, "__dict__") and not hasattr(compiled, "__code__"):
        _watch(type(compiled))
        compiled._gpumem_plan = plan
        return compiled

    @functools.wraps(compiled)
    def call(inputs):
        return plan.run(compiled, inputs)

    call._boxed_call = getattr(compiled, "_boxed_call", False)
    return call


def _watch(kind):
    """Calls of such objects go through their plans."""
    original = kind.__call__
    if getattr(original, "_gpumem_watches", False):
        return

    @functools.wraps(original)
    def call(self, inputs, *args, **kwargs):
        plan = getattr(self, "_gpumem_plan", None)
        if plan is None or args or kwargs:
            return original(self, inputs, *args, **kwargs)
        return plan.run(functools.partial(original, self), inputs)

    call._gpumem_watches = True
    kind.__call__ = call


def _limit(tensor):
    return FLOAT_LIMIT if tensor.is_floating_point() or tensor.is_complex() else OTHER_LIMIT


def _is_small(value):
    """Of a fake tensor: small enough to be followed, and of sizes that are known when it is compiled."""
    if not isinstance(value, _torch.Tensor) or value.layout != _torch.strided or not all(isinstance(n, int) for n in value.shape):
        return False
    return value.numel() * value.element_size() <= _limit(value)


def _is_computable(node):
    """A function of its arguments alone."""
    target = node.target
    if node.op != "call_function" or not isinstance(target, _torch._ops.OpOverload) or target.namespace not in ("aten", "prims"):
        return node.op == "call_function" and getattr(target, "__module__", "") == "_operator"
    return not target._schema.is_mutable and _torch.Tag.nondeterministic_seeded not in target.tags


def _plan(gm):
    try:
        graph = _torch.fx.Graph()
        graph.output(graph.graph_copy(gm.graph, {}))  # passes change the original
        plan = _Plan(graph, gm)
        return plan if plan.targets else None
    except Exception:
        return None


class _Plan:
    """The nodes of a graph that lead to its small outputs, in order."""

    def __init__(self, graph, gm):
        nodes = list(graph.nodes)
        self.gm, self.failed = gm, False
        self.inputs = {node: i for i, node in enumerate(n for n in nodes if n.op == "placeholder")}
        self.changed = [(node.args[0], node.args[1]) for node in nodes
                        if node.op == "call_function" and node.target is _torch.ops.aten.copy_.default and node.args[0] in self.inputs]
        results = nodes[-1].args[0]
        results = list(results) if isinstance(results, (list, tuple)) else [results]
        self.targets = [(i, node) for i, node in enumerate(results) if isinstance(node, _torch.fx.Node) and node not in self.inputs and self._small(node)]
        self.changed = [(to, by) for to, by in self.changed if self._small(to)]
        waiting, needed = [node for _, node in self.targets] + [by for _, by in self.changed], set()
        while waiting:
            node = waiting.pop()
            if node in needed:
                continue
            needed.add(node)
            if _is_computable(node):
                waiting += node.all_input_nodes
        self.steps = [node for node in nodes if node in needed]

    @staticmethod
    def _small(node):
        return isinstance(node, _torch.fx.Node) and _is_small(node.meta.get("val"))

    def run(self, compiled, inputs):
        values, changed = None, ()
        if not self.failed:
            try:
                changed = [(inputs[self.inputs[to]], by) for to, by in self.changed]
                values = self._values(inputs)
            except Exception:
                self.failed = True
        outputs = compiled(inputs)
        if values is not None:
            try:
                for place, node in self.targets:
                    _write(outputs[place], values.get(node))
                for tensor, by in changed:
                    _write(tensor, values.get(by))
            except Exception:
                self.failed = True
        return outputs

    def _values(self, inputs):
        """node -> (value, state) of those that are known or have a plausible value."""
        values = {}
        with _torch.no_grad():
            for node in self.steps:
                found = None
                if node.op == "placeholder":
                    found = _read(inputs[self.inputs[node]])
                elif node.op == "get_attr":
                    found = _read(getattr(self.gm, node.target, None))
                elif _is_computable(node) and all(values.get(one) is not None for one in node.all_input_nodes):
                    found = self._compute(node, values)
                values[node] = found if found is not None else _plausible(node.meta.get("val"))
        return values

    @staticmethod
    def _compute(node, values):
        def argument(one):
            return values[one][0]

        args = _torch.fx.node.map_arg(node.args, argument)
        kwargs = dict(_torch.fx.node.map_arg(node.kwargs, argument))
        if kwargs.get("device") is not None:
            kwargs["device"] = _torch.device("cpu")
        try:
            result = node.target(*args, **kwargs)
        except Exception:  # the CPU cannot do it
            return None
        state = min([values[one][1] for one in node.all_input_nodes], default=KNOWN)
        # Of stand-ins only questions are computed: a loss that is taken apart (-1 * 1 + log 1) would come out as none that is healthy.
        if state != KNOWN and isinstance(result, _torch.Tensor) and result.is_floating_point():
            return None
        return result, state


def _plausible(value):
    if not _is_small(value) or value.numel() * value.element_size() > PLAUSIBLE_LIMIT:
        return None
    return _torch.full(value.shape, 1 if value.is_floating_point() else 0, dtype=value.dtype), PLAUSIBLE


def _memory_of(tensor):
    """The tensor on the host, over the same addresses."""
    import ctypes

    storage = tensor.untyped_storage()
    size = storage.nbytes()
    if size == 0:
        return _torch.empty(tensor.shape, dtype=tensor.dtype)
    memory = (ctypes.c_char * size).from_address(storage.data_ptr())
    return _torch.frombuffer(memory, dtype=_torch.uint8)[: size // tensor.element_size() * tensor.element_size()].view(tensor.dtype).as_strided(
        tensor.shape, tensor.stride(), tensor.storage_offset())


def _read(tensor):
    if isinstance(tensor, (int, float, bool)):
        return tensor, KNOWN
    if not isinstance(tensor, _torch.Tensor) or not _is_small(tensor):
        return None
    if tensor.device.type == "cpu":
        return tensor, KNOWN
    storage = tensor.untyped_storage()
    if storage.nbytes() > _limit(tensor):
        return None
    state = tracer.state_of(storage._cdata)
    if state == KNOWN or (state == PLAUSIBLE and storage.nbytes() <= PLAUSIBLE_LIMIT):
        return _memory_of(tensor).clone(), state
    return None


def _write(tensor, found):
    if found is None or not isinstance(tensor, _torch.Tensor) or tensor.device.type != "cuda" or tensor.shape != found[0].shape:
        return
    if tensor.untyped_storage().nbytes() <= _limit(tensor):
        _memory_of(tensor.detach()).copy_(found[0])
        tracer.set_state(tensor.untyped_storage()._cdata, found[1])
