# SPDX-License-Identifier: Apache-2.0
# What happens once torch has been imported. Each part is on its own: what fails is in the record, never in the program.
import os
import platform
import sys

from . import attribution, batches, checkpoints, compiling, distributed, ending, files, graph_values, launchers, loader, record, snapshot, steps, tracer


def start(torch):
    version = getattr(torch, "version", None)
    cuda = getattr(version, "cuda", None)
    on_cpu, followed = _on_cpu(torch, cuda)
    if not on_cpu:
        followed = tracer.start(torch) if cuda else "absent: this PyTorch was built without CUDA"
    record.write(
        "torch",
        version=str(torch.__version__),
        cuda=cuda,
        cudnn=_cudnn(torch) if cuda else None,
        python=platform.python_version(),
        argv=list(getattr(sys, "orig_argv", None) or sys.argv),
        tracer=followed,
    )
    if on_cpu:
        files.start(torch, record.write)
    if on_cpu or not cuda:
        return
    files.start(torch, record.write)
    for part in (steps, loader, checkpoints, batches, attribution, snapshot, distributed, launchers, graph_values, compiling):
        try:
            part.start(torch)
        except Exception as error:
            record.note("shim", "%s does not work with this PyTorch: %s" % (part.__name__.split(".")[-1], error))


def _on_cpu(torch, cuda):
    """Whether the program is made to train on the CPU (xMem's method), and how that is followed."""
    method = os.environ.get("GPUMEM_SHIM_METHOD", "virtual_gpu")
    if method != "xmem" and (method != "auto" or cuda):
        return False, ""
    from . import xmem

    followed = xmem.start(torch)
    if followed == "active":
        return True, followed
    if method == "xmem":
        ending.give_up("xMem's method cannot be used: " + followed[len("absent: "):])
    return False, ""


def _cudnn(torch):
    # torch.backends.cudnn.version() would initialise CUDA, after which the program could neither fork children that use it
    # nor choose its allocator.
    try:
        return torch._C._cudnn.getVersionInt()
    except Exception:
        return None
