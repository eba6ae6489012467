# SPDX-License-Identifier: Apache-2.0
# What: every key of PYTORCH_CUDA_ALLOC_CONF changes what it changes on a GPU; each in a process of its own.
# timeout: 300
import os
import subprocess
import sys
import traceback

MIB = 1 << 20
WORK = """
import gc, torch
MIB = 1 << 20
def stats(): return torch.cuda.memory_allocated() // MIB, torch.cuda.memory_reserved() // MIB, torch.cuda.memory_stats()["num_alloc_retries"]
def block(mib): return torch.empty(int(mib * MIB), dtype=torch.uint8, device="cuda")
"""

# (settings, program, what it prints, first version)
CASES = [
    ("", "x = block(30); y = block(3); print(*stats())", "33 50 0", (2, 0)),
    ("expandable_segments:True", "x = block(30); y = block(3); print(*stats())", "33 40 0", (2, 1)),
    # Three free gaps of 20 MiB serve no 40 MiB: the segment grows at its end.
    ("expandable_segments:True", "a = [block(20) for _ in range(6)]; del a[::2]; b = block(40); print(*stats())", "100 160 0", (2, 1)),
    ("expandable_segments:True", "a = block(100); del a; torch.cuda.empty_cache(); print(*stats())", "0 0 0", (2, 1)),
    ("max_split_size_mb:32", "x = block(100); del x; y = block(50); print(*stats())", "50 150 0", (2, 0)),
    ("max_split_size_mb:64,max_non_split_rounding_mb:60", "x = block(100); del x; y = block(70); print(*stats())", "100 100 0", (2, 5)),
    ("roundup_power2_divisions:4", "x = block(17); print(*stats())", "20 20 0", (2, 0)),
    ("roundup_power2_divisions:[256:1,512:2,>:8]", "x = block(1100); print(*stats())", "1152 1152 0", (2, 0)),
    ("garbage_collection_threshold:0.5", "torch.cuda.set_per_process_memory_fraction(0.1)\nl = [block(200) for _ in range(4)]; del l; x = block(300); print(stats()[1] < 1100)", "True", (2, 0)),
    ("pinned_use_cuda_host_register:True,pinned_num_register_threads:2", "x = torch.ones(1000).pin_memory(); print(x.is_pinned(), x.to('cuda').sum().item())", "True 1000.0", (2, 2)),
    ("pinned_use_background_threads:True", "x = torch.ones(4).pin_memory(); print(x.is_pinned(), flush=True); "
     "import os; os._exit(0)", "True", (2, 6)),  # PyTorch 2.6 leaves that thread running into its own destructors
    ("release_lock_on_cudamalloc:True", "x = block(30); print(*stats())", "30 30 0", (2, 2)),
    ("backend:native", "x = block(30); print(torch.cuda.get_allocator_backend(), *stats())", "native 30 30 0", (2, 0)),
    ("backend:cudaMallocAsync", "x = block(30); print(torch.cuda.get_allocator_backend(), torch.cuda.memory_allocated() // MIB)", "cudaMallocAsync 30", (2, 0)),
    ("backend:cudaMallocAsync", "x = torch.ones(1024, 1024, device='cuda', requires_grad=True); (x @ x).sum().backward(); print(x.grad.shape[0]); "
     "del x; gc.collect(); torch.cuda.synchronize(); torch.cuda.empty_cache(); print(torch.cuda.memory_allocated() >= 0)", "1024\nTrue", (2, 0)),
    ("graph_capture_record_stream_reuse:True", "x = block(30); print(*stats())", "30 30 0", (2, 9)),
    ("per_process_memory_fraction:0.1", "\ntry:\n    block(2000)\nexcept torch.cuda.OutOfMemoryError: print('refused')", "refused", (2, 10)),
    ("no_such_key:1", "\ntry:\n    block(1)\nexcept Exception as error: print(type(error).__name__)", "RuntimeError|ValueError|", (2, 0)),
]


def in_child(settings, program):
    """(output, whether it ended well, nothing: its errors are in ours). The settings are read when CUDA is first used, so a fork is enough."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.dup2(write, 1)  # warnings (2.15: NVLink's fabric is for sm90 and newer) are none of the answer
            os.environ["PYTORCH_CUDA_ALLOC_CONF"] = settings
            exec(WORK + program, {})
            status = 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    os.close(write)
    with os.fdopen(read) as pipe:
        output = pipe.read()
    return output, os.waitpid(child, 0)[1] == 0, ""


def in_program(settings, program):
    """The same in a Python of its own: the backend is chosen when torch's library is loaded."""
    ran = subprocess.run([sys.executable, "-c", WORK + program], env=dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=settings), capture_output=True, text=True)
    return ran.stdout, ran.returncode == 0, ran.stderr


def main():
    import torch
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    failed = 0
    for settings, program, expected, since in CASES:
        if version < since:
            continue
        output, ended_well, errors = (in_program if settings.startswith("backend:") else in_child)(settings, program)
        got = output.strip()
        right = got in expected.split("|") if "|" in expected else got == expected and ended_well
        if not right:
            failed += 1
            print("not ok %s: expected %r, got %r %s" % (settings, expected, got, errors.strip()[-600:]))
    torch.empty(1, device="cuda")
    print("%d settings, %d wrong" % (len(CASES), failed))
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
