# SPDX-License-Identifier: Apache-2.0
# What: CUDAPluggableAllocator: an allocator in C that the program compiles and gives to PyTorch.
import os
import subprocess
import tempfile

SOURCE = r"""
#include <stddef.h>
#include <sys/types.h>
typedef void *stream;
extern int cudaMalloc(void **, size_t), cudaFree(void *);
static size_t held, peak, calls;
void *my_alloc(ssize_t size, int device, stream s) { void *p = NULL; if (cudaMalloc(&p, size)) return NULL; held += size; calls++; if (held > peak) peak = held; return p; }
void my_free(void *p, ssize_t size, int device, stream s) { cudaFree(p); held -= size; }
size_t my_held(void) { return held; }
size_t my_peak(void) { return peak; }
size_t my_calls(void) { return calls; }
"""


def main():
    import ctypes
    import torch
    with tempfile.TemporaryDirectory() as directory:
        source, library = os.path.join(directory, "a.c"), os.path.join(directory, "a.so")
        with open(source, "w") as file:
            file.write(SOURCE)
        subprocess.run([os.environ.get("CC", "cc").split()[-1], "-shared", "-fPIC", "-o", library, source], check=True)
        mine = torch.cuda.memory.CUDAPluggableAllocator(library, "my_alloc", "my_free")
        torch.cuda.memory.change_current_allocator(mine)
        ask = ctypes.CDLL(library)
        for name in ("my_held", "my_peak", "my_calls"):
            getattr(ask, name).restype = ctypes.c_size_t
        model = torch.nn.Linear(1024, 1024).to("cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(torch.ones(64, 1024, device="cuda")).square().mean()
            loss.backward()
            optimizer.step()
        assert loss.item() > 0
        assert ask.my_calls() > 10 and ask.my_held() >= 3 * 1024 * 1024 * 4
        assert ask.my_peak() >= ask.my_held()
        print("ok")


if __name__ == "__main__":
    main()
