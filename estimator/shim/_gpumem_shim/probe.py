# SPDX-License-Identifier: Apache-2.0
# What happens once torch has been imported. Each part is on its own: what fails is in the record, never in the program.
import platform
import sys

from . import files, loader, record, steps, tracer


def start(torch):
    version = getattr(torch, "version", None)
    cuda = getattr(version, "cuda", None)
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
    if not cuda:
        return
    files.start(torch, record.write)
    for part in (steps, loader):
        try:
            part.start(torch)
        except Exception as error:
            record.note("shim", "%s does not work with this PyTorch: %s" % (part.__name__.split(".")[-1], error))


def _cudnn(torch):
    try:
        return torch.backends.cudnn.version()
    except Exception:
        return None
