# SPDX-License-Identifier: Apache-2.0
# Triton 2.1 (PyTorch 2.1) looks for libcuda.so in ldconfig's cache only; later ones know TRITON_LIBCUDA_PATH, which is set here.
import os


def name_libcuda(build):
    directory = os.environ.get("TRITON_LIBCUDA_PATH")
    if directory and hasattr(build, "libcuda_dirs") and "TRITON_LIBCUDA_PATH" not in open(build.__file__, encoding="utf-8").read():
        build.libcuda_dirs = lambda: [directory]
