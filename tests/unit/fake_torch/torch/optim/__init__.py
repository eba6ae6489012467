# SPDX-License-Identifier: Apache-2.0
from .optimizer import Optimizer  # noqa: F401

del optimizer  # noqa: F821  torch hides it too
