#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make check-headers: the virtual GPU against the headers and runtimes of each CUDA generation, which it gets from PyPI.

The committed tables are what regenerate.py writes; then for each version: every structure has the header's size and offsets as
committed; every function of the runtime and the driver has a name in libgpumem_vgpu.so; and cuda_program.c, compiled with these
headers and linked with this libcudart, runs right.
Prints TAP. A few MiB of download, kept in --wheels; needs gcc, g++, nm and pip. Standard library only.
"""
import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
INTERFACE = os.path.join(HERE, "..", "..", "estimator", "cuda_interface")
RUNTIMES = {
    "11.8": "nvidia-cuda-runtime-cu11==11.8.89",
    "12.0": "nvidia-cuda-runtime-cu12==12.0.146",
    "12.1": "nvidia-cuda-runtime-cu12==12.1.105",
    "12.4": "nvidia-cuda-runtime-cu12==12.4.127",
    "12.6": "nvidia-cuda-runtime-cu12==12.6.77",
    "12.8": "nvidia-cuda-runtime-cu12==12.8.90",
    "12.9": "nvidia-cuda-runtime-cu12==12.9.79",
    "13.0": "nvidia-cuda-runtime==13.0.96",
    "13.2": "nvidia-cuda-runtime==13.2.75",
    "13.5": "nvidia-cuda-runtime==13.5.37",
}


def regenerate_module():
    spec = importlib.util.spec_from_file_location("regenerate", os.path.join(INTERFACE, "regenerate.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Tap:
    def __init__(self):
        self.count = self.failed = 0

    def say(self, holds, what, details=()):
        self.count += 1
        self.failed += not holds
        print(f"{'ok' if holds else 'not ok'} {self.count} - {what}", flush=True)
        for detail in list(details)[:20] if not holds else ():
            print(f"#   {detail}")


def check_layouts(regenerate, generation, include, crt, committed):
    """Lines of layouts.def that this version's headers contradict."""
    text = regenerate.without_comments(regenerate.text_of(include + "/driver_types.h") + regenerate.text_of(include + "/cuda.h"))
    prints = []
    for ours, (theirs, generations) in regenerate.STRUCTS.items():
        # A structure that a later minor version has brought is none of this one's.
        if generation not in generations or theirs not in text:
            continue
        prints.append(f'printf("SIZE({generation}, {ours}, %zu)\\n", sizeof({theirs}));')
        base = {"cudaLaunchConfig_t": "cudaLaunchConfig"}.get(theirs, theirs)
        for name in regenerate.field_names(text, base):
            prints.append(f'printf("FIELD({generation}, {ours}, {name}, %zu)\\n", offsetof({theirs}, {name}));')
    source = "#include <cstdio>\n#include <cstddef>\n#include <cuda.h>\n#include <driver_types.h>\nint main(){%s}" % "\n".join(prints)
    lines = regenerate.run_cpp(include, source, ["-idirafter", crt])
    sizes = {line for line in lines if line.startswith("SIZE")}
    # A field that is new in a minor version takes the place of reserved ones, which begin later then.
    known = {line.rsplit(",", 1)[0] for line in committed}
    wrong = [line for line in lines if line not in committed and "reserved" not in line and (line in sizes or line.rsplit(",", 1)[0] in known)]
    return len(lines), wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpumem", required=True, help="the installed gpumem")
    parser.add_argument("--library", required=True, help="libgpumem_vgpu.so")
    parser.add_argument("--wheels", default="/var/lib/gpumem-bootstrap/wheels/cuda", help="where downloads are kept")
    parser.add_argument("--python", default="/usr/bin/python3", help="an interpreter with pip")
    options = parser.parse_args()
    os.makedirs(options.wheels, exist_ok=True)
    regenerate, tap = regenerate_module(), Tap()
    with open(os.path.join(INTERFACE, "layouts.def"), encoding="utf-8") as file:
        committed = set(file.read().splitlines())
    with open(os.path.join(INTERFACE, "device_properties.def"), encoding="utf-8") as file:  # one structure, named by its file
        committed |= {re.sub(r"\((\d+), ", r"(\1, DeviceProperties, ", line) for line in file.read().splitlines()}
    ours = regenerate.exported(options.library)
    def unpacked(requirement):
        return regenerate.unpacked(requirement, options.wheels, options.python)

    crt = os.path.dirname(os.path.dirname(regenerate.one(unpacked(regenerate.WHEELS["crt"]), "crt/host_defines.h")))
    print(f"1..{1 + 4 * len(RUNTIMES)}")
    wrong = regenerate.differing(regenerate.tables(options.wheels, options.python))
    tap.say(not wrong, "the committed tables are what regenerate.py writes", wrong)
    for version, requirement in RUNTIMES.items():
        folder = unpacked(requirement)
        generation = version.split(".")[0]
        include = os.path.dirname(regenerate.one(folder, "include/cuda.h"))
        cudart = regenerate.one(folder, "libcudart.so.*")
        count, wrong = check_layouts(regenerate, generation, include, crt, committed)
        tap.say(count > 100 and not wrong, f"CUDA {version}: {count} sizes and offsets are those of its headers", wrong)
        lacking = sorted(regenerate.exported(cudart) - ours)
        tap.say(not lacking, f"CUDA {version}: every function of its runtime has a name here", lacking)
        symbols, _ = regenerate.driver_tables({generation: include})
        lacking = sorted(set(symbols) - ours)
        tap.say(not lacking, f"CUDA {version}: every function of its driver's header has a name here", lacking)
        with tempfile.TemporaryDirectory() as work:
            program = os.path.join(work, "cuda_program")
            subprocess.run(["gcc", "-w", "-I" + include, "-idirafter", crt, os.path.join(HERE, "cuda_program.c"), "-o", program, cudart], check=True)
            done = subprocess.run([options.gpumem, "estimate", "--json", "--gpus", "2", "--", program], text=True, check=False,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, LD_LIBRARY_PATH=os.path.dirname(cudart)))
            try:
                estimate = json.loads(done.stdout)
            except ValueError:
                estimate = {}
            good = "0 wrong" in done.stderr and (estimate.get("program") or {}).get("exit_status") == 0 and not estimate.get("missing_functions")
            tap.say(good, f"CUDA {version}: a program compiled with its headers runs right ({(done.stderr.strip().splitlines() or ['?'])[-1]})",
                    done.stderr.splitlines() + [str(estimate.get("error"))])
    print(f"{tap.count - tap.failed} passed, {tap.failed} failed")
    return 1 if tap.failed else 0


if __name__ == "__main__":
    sys.exit(main())
