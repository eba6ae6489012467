# SPDX-License-Identifier: Apache-2.0
# As much of torch as the shim touches, for tests without torch. Memory figures come from `torch.figures`.
import os
import types

__version__ = "9.9.9+fake"
version = types.SimpleNamespace(cuda=os.environ.get("FAKE_TORCH_CUDA") or None)
figures = {"allocated": 0, "reserved": 0}


class Tensor:
    def __init__(self, length, is_cuda=False):
        self.shape, self.is_cuda = (length,), is_cuda

    def numel(self):
        return self.shape[0]

    def element_size(self):
        return 4


class Parameter(Tensor):
    grad = None

    def __init__(self, length, requires_grad=True):
        super().__init__(length, is_cuda=True)
        self.requires_grad = requires_grad

    def is_floating_point(self):
        return True


nn = types.SimpleNamespace(Parameter=Parameter)


class _Autograd:
    nodes = 0
    enabled = True

    @staticmethod
    def _get_sequence_nr():
        return _Autograd.nodes


def _stats(device):
    def entry(value):
        return {"all": {"current": value, "peak": value}}

    return {"allocated_bytes": entry(figures["allocated"]), "reserved_bytes": entry(figures["reserved"])}


def _reset(device=None):
    figures.update(allocated=0, reserved=0)


def is_grad_enabled():
    return _Autograd.enabled


_C = types.SimpleNamespace(_autograd=_Autograd, _cuda_memoryStats=_stats, _cuda_resetPeakMemoryStats=_reset,
                          _cudnn=types.SimpleNamespace(getVersionInt=lambda: 91900))
cuda = types.SimpleNamespace(is_initialized=lambda: True, device_count=lambda: 1, _lazy_call=lambda call: call())

from . import optim, utils  # noqa: E402,F401
