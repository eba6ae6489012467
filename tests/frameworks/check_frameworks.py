#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the test programs that need a training framework, and those of the libraries that people train with (tests/frameworks/programs), in a
layer of packages over an environment with PyTorch.

  check_frameworks.py --gpumem PREFIX/bin/gpumem --python VENV/bin/python [--layer DIR] [--keep]

The layer is an environment of its own that sees the packages of the given one and adds to them; that one is left as it is, and
the layer is removed afterwards. Then a C++ program on LibTorch is built and estimated. Prints TAP. Python's standard library only.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

PROGRAMS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "programs")
NAMES = ("transformers_trainer", "lightning_fit", "lightning_ranks", "deepspeed_zero", "deepspeed_launcher", "deepspeed_fused_adam", "lora", "bitsandbytes_adam", "launchers",
         "big_models")
PACKAGES = ("transformers", "accelerate", "lightning", "peft", "bitsandbytes")
# What the programs in LIBRARIES need.
LIBRARIES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs")
LIBRARY_PACKAGES = ("timm", "diffusers", "trl", "datasets", "sentence-transformers", "torch-geometric", "stable-baselines3", "monai", "gpytorch", "torchdiffeq",
                    "pytorch-metric-learning")
# Built from source against the layer's setuptools; its own needs besides PyTorch.
FROM_SOURCE = ("deepspeed",)
ITS_NEEDS = ("hjson", "msgpack", "ninja", "numpy", "packaging", "psutil", "py-cpuinfo", "pydantic", "tqdm", "einops", "nvidia-ml-py", "setuptools<81", "wheel")
KEPT = ("torch", "torchvision", "transformers", "numpy", "triton")


def run(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}")
    return done.stdout


def make_layer(base, layer):
    facts = json.loads(run([base, "-c", "import json, importlib.metadata as m, sysconfig\n"
                            "print(json.dumps([sysconfig.get_paths()['purelib'], {d.metadata['Name'].lower(): d.version for d in m.distributions()}]))"]))
    packages, installed = facts
    run([base, "-m", "venv", layer])
    python = os.path.join(layer, "bin", "python")
    own = run([python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"]).strip()
    with open(os.path.join(own, "base.pth"), "w", encoding="utf-8") as file:
        file.write(packages + "\n")
    constraints = os.path.join(layer, "constraints.txt")
    with open(constraints, "w", encoding="utf-8") as file:
        file.writelines(f"{name}=={installed[name]}\n" for name in KEPT if name in installed)
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-c", constraints]
    run(pip + list(PACKAGES) + list(ITS_NEEDS))
    run(pip + list(LIBRARY_PACKAGES))
    run(pip + ["--no-deps", "--no-build-isolation"] + list(FROM_SOURCE), env=dict(os.environ, DS_BUILD_OPS="0"))
    return python


def check_libtorch(gpumem, python, layer):
    """The C++ program's estimate against what its own allocator printed. Returns a sentence, or ""."""
    program = os.path.join(layer, "train")
    run([os.path.join(PROGRAMS, "libtorch", "build"), python, program])
    done = subprocess.run([gpumem, "estimate", "--json", "--", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    estimate = json.loads(done.stdout or "{}")
    own = re.search(r"allocated (\d+) reserved (\d+)", done.stderr)
    if estimate.get("status") != "complete" or own is None:
        return f"{estimate.get('error')}: {done.stderr[-500:]}"
    if estimate["peak_reserved_bytes"] != int(own.group(2)) or estimate["peak_allocated_bytes"] < int(own.group(1)):
        return f"estimated {estimate['peak_allocated_bytes']} and {estimate['peak_reserved_bytes']}, its allocator: {own.group(0)}"
    if not any("not followed from inside" in note for note in estimate["notes"]):
        return f"no note says that nothing was seen from inside: {estimate['notes']}"
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpumem", required=True)
    parser.add_argument("--python", required=True, help="of an environment with a CUDA build of PyTorch")
    parser.add_argument("--layer", help="where to make the layer; default: a temporary directory")
    parser.add_argument("--keep", action="store_true", help="do not remove the layer")
    options = parser.parse_args()
    layer = options.layer or tempfile.mkdtemp(prefix="gpumem-frameworks-", dir="/var/tmp")
    try:
        python = os.path.join(layer, "bin", "python")
        if not os.path.exists(python):
            python = make_layer(options.python, layer)
        runner = [os.path.join(PROGRAMS, "run"), "--gpumem", options.gpumem, "--python", python, "-j", "1"]
        failed = [subprocess.run(runner + more, check=False).returncode for more in (list(NAMES), ["--directory", LIBRARIES])]
        fault = check_libtorch(options.gpumem, python, layer)
        print(f"{'not ok' if fault else 'ok'} - libtorch{' # ' + fault if fault else ''}")
        return 1 if fault or any(failed) else 0
    finally:
        if not options.keep:
            shutil.rmtree(layer, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
