# SPDX-License-Identifier: Apache-2.0
# torch.compile passes the shim's own functions by: its compiler traces whatever Python runs between the graphs of a compiled function,
# and would find wrappers of ours where PyTorch's own methods were.
import sys
import types

from . import imports


def start(_torch):
    imports.after("torch._dynamo.eval_frame", "_gpumem_shim.compiling", "skip_own_code")


def skip_own_code(eval_frame):
    """Tells the compiler to run the code of all our functions, inner ones too, as it is."""
    package = __name__.split(".")[0]
    waiting = []
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == package:
            waiting += [value for value in vars(module).values() if getattr(value, "__module__", None) == name]
    while waiting:
        value = waiting.pop()
        if isinstance(value, type):
            waiting += vars(value).values()
        elif isinstance(value, (staticmethod, classmethod)):
            waiting.append(value.__func__)
        elif isinstance(value, types.FunctionType):
            waiting.append(value.__code__)
        elif isinstance(value, types.CodeType):
            eval_frame.skip_code(value)
            waiting += [constant for constant in value.co_consts if isinstance(constant, types.CodeType)]
