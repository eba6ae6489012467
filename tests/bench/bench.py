#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make bench: what gpumem costs a user, measured side by side in one run on this machine.

Every figure is a median of interleaved repetitions with the goal beside it. A missed goal fails nothing; what could not be
measured is said and ends with status 1. Python's standard library only; the ResNet-50 runs need BENCH_INTERPRETER's torch.
"""
import argparse
import datetime
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
USER = "gpumem-demo"  # contrib/bootstrap's ordinary user


class Failed(Exception):
    """A measurement that could not be made, and why."""


def run(command, **options):
    start = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, **options)
    except OSError as error:
        raise Failed(f"{command[0]}: {error.strerror}") from error
    seconds = time.perf_counter() - start
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)[:200]}: exit status {done.returncode}: {(done.stderr or done.stdout).strip()[-500:]}")
    return seconds, done


def quartiles(seconds):
    low, _, high = statistics.quantiles(seconds, n=4) if len(seconds) > 1 else (seconds[0],) * 3
    return low, high


def show(what, ours, base, ours_name, base_name, unit, goal):
    """`goal` is (limit of the difference in s, its text) or None."""
    scale = {"ms": 1e3, "s": 1.0}[unit]
    median, base_median = statistics.median(ours), statistics.median(base)
    more = median - base_median
    print(f"\n{what}")
    for name, seconds in ((ours_name, ours), (base_name, base)):
        low, high = quartiles(seconds)
        print(f"  {name:<34} {statistics.median(seconds) * scale:9.2f} {unit}   "
              f"(quartiles {low * scale:.2f} to {high * scale:.2f}, {len(seconds)} times)")
    verdict = ""
    if goal:
        verdict = f"   goal: at most {goal[1]} more: {'met' if more <= goal[0] else 'MISSED'}"
    ratio = f"{median / base_median:.3f}" if median > 0.1 * base_median else f"1/{base_median / median:.0f}"
    print(f"  ratio {ratio}, difference {more * scale:+.2f} {unit}{verdict}", flush=True)


def machine():
    model = "unknown"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    load = os.getloadavg()[0]
    return f"{len(os.sched_getaffinity(0))} cores, {model}; load {load:.1f} before the run"


def bench_submit(options):
    """sbatch with the plugin against sbatch without it, on the cluster that contrib/bootstrap starts."""
    if os.geteuid() != 0:
        raise Failed("starting the cluster of contrib/bootstrap needs root")
    was_running = subprocess.run([options.bootstrap, "run", "--", "true"], capture_output=True, check=False).returncode == 0
    run([options.bootstrap, "start"])
    with open(os.path.join(HERE, "submit.py"), encoding="utf-8") as file:
        program = file.read()
    # Into a place that the ordinary user can read, wherever the source tree is.
    folder = "/tmp/gpumem-bench"
    os.makedirs(folder, mode=0o755, exist_ok=True)
    shutil.copy(os.path.join(HERE, "resnet50.py"), folder)
    try:
        arguments = json.dumps({"repetitions": options.repetitions, "python": options.python, "program": f"{folder}/resnet50.py"})
        _, done = run([options.bootstrap, "run", "-u", USER, "--", "/usr/bin/python3", "-c", program, arguments], cwd="/")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if not was_running:
            run([options.bootstrap, "stop"])
    result = json.loads(done.stdout.strip().splitlines()[-1])
    show("sbatch of a job without a GPU", result["plain"]["with"], result["plain"]["without"], "with the plugin", "without it",
         "ms", (0.001, "1 ms"))
    show("sbatch --gres=gpu:1, submitted before (cached decision)", result["cached"]["with"], result["cached"]["without"],
         "with the plugin", "without it", "ms", (0.020, "20 ms"))
    print(f"  gpumem said: {result['line']}")


def step_seconds(output):
    found = re.search(r"median_step_s=([0-9.]+)", output)
    if not found:
        raise Failed(f"resnet50.py did not print its step: {output.strip()[-300:]}")
    return float(found.group(1))


def bench_step(options):
    """A ResNet-50 training step, batch 32, on the virtual GPU against the same step on the CPU."""
    virtual, cpu = [], []
    program = os.path.join(HERE, "resnet50.py")
    for number in range(options.rounds):
        _, done = run([options.gpumem, "estimate", "--json", "--full", "--gpu", options.gpu, "--", options.python, program, "cuda",
                       "--steps", "20"])
        virtual.append(step_seconds(done.stderr))
        if number < 2:  # seconds a step
            _, done = run([options.python, program, "cpu", "--steps", "1", "--warm-up", "1"])
            cpu.append(step_seconds(done.stdout))
    show("ResNet-50 step, batch 32, 224x224, fp32", virtual, cpu, "on the virtual GPU", "on the CPU", "ms", None)


def bench_estimate(options):
    """gpumem estimate of a ResNet-50 training script against what any such script pays for its imports."""
    program = os.path.join(HERE, "resnet50.py")
    estimate, plain, vision = [], [], []
    for _ in range(options.rounds + 1):
        plain.append(run([options.python, "-c", "import torch"])[0])
        vision.append(run([options.python, "-c", "import torch, torchvision"])[0])
        estimate.append(run([options.gpumem, "estimate", "--json", "--gpu", options.gpu, "--", options.python, program, "cuda",
                             "--steps", "5"])[0])
    # The first round fills the page cache and compiles the tracer.
    show("gpumem estimate of a ResNet-50 training script, beyond its imports", estimate[1:], vision[1:], "gpumem estimate",
         'python -c "import torch, torchvision"', "s", (1.5, "1.5 s"))
    print(f"  for comparison: python -c \"import torch\" {statistics.median(plain[1:]):.2f} s")


def bench_preload(options):
    """What preloading costs processes that never touch CUDA: the whole set, in a probe or on a node with virtual GPUs."""
    library = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(options.gpumem))), "lib", "gpumem")
    names = ("libgpumem_meter.so", "libgpumem_vgpu.so", "libcuda.so.1", "libnvidia-ml.so.1")
    preload = " ".join(os.path.join(library, name) for name in names)
    for name in names:
        if not os.path.exists(os.path.join(library, name)):
            raise Failed(f"{library}/{name} is not there")
    plain = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    for command in (["/bin/true"], ["bash", "-c", "true"], ["git", "--version"], ["awk", "BEGIN { exit 0 }"]):
        times = {False: [], True: []}
        for number in range(10 + 5 * options.repetitions):
            for loaded in (False, True):
                seconds, _ = run(command, env={**plain, "LD_PRELOAD": preload} if loaded else plain)
                if number >= 10:
                    times[loaded].append(seconds)
        show(f"{' '.join(command)}", times[True], times[False], "with the preloads", "without them", "ms", (0.001, "1 ms"))


def bench_ranks(options):
    """Full fine-tuning of a model of Llama-3-70B's shape: one rank of 64 under FSDP2, seconds and host memory of the whole probe."""
    command = [options.gpumem, "estimate", "--json", "--gpu", "H100 80GB HBM3", "--", options.python, os.path.join(HERE, "llama_70b_fsdp2.py")]
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "64", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    seconds, resident = [], []
    for _ in range(min(3, options.rounds)):
        start = time.monotonic()
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment) as process:
            output = process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        seconds.append(time.monotonic() - start)
        resident.append(usage.ru_maxrss / 2**20)  # of the largest process, in GiB
        if process.returncode != 0:
            raise Failed(f"the estimate ended with {process.returncode}: {output[-300:]}")
    need = json.loads(output)["need_bytes"] / 2**30
    print(f"\nLlama-3-70B's shape, rank 0 of 64 under FSDP2: needs {need:.1f} GiB on an H100\n"
          f"  {statistics.median(seconds):.1f} s   goal: at most 60 s: {'met' if statistics.median(seconds) <= 60 else 'MISSED'}\n"
          f"  {max(resident):.2f} GiB of host memory   goal: at most 4 GiB: {'met' if max(resident) <= 4 else 'MISSED'}", flush=True)


LLAMAS = (
    # shape, GPU, environment, goals in seconds and GiB of RAM
    ("8b", "NVIDIA H200", {}, 10, 1),
    ("70b", "NVIDIA H100 80GB HBM3", {"RANK": "0", "WORLD_SIZE": "64", "LOCAL_RANK": "0", "MASTER_ADDR": "node001", "MASTER_PORT": "29400"}, 60, 4),
)
# A child of its own for each run: of several, getrusage knows the largest process only once.
MEASURED = """import json, resource, subprocess, sys, time
start = time.perf_counter()
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([done.returncode, time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss]))"""


def bench_llama(options):
    """Full fine-tuning of Llama-3 shapes: what a probe of them costs."""
    program = os.path.join(HERE, "llama.py")
    for shape, gpu, environment, most_s, most_gib in LLAMAS:
        walls, cpus, rams = [], [], []
        for _ in range(options.rounds // 2 + 2):
            _, done = run([sys.executable, "-c", MEASURED, options.gpumem, "estimate", "--gpu", gpu, "--", options.llama_python, program, shape],
                          env=dict(os.environ, **environment))
            status, wall_s, cpu_s, ram_kib = json.loads(done.stdout)
            if status != 0:
                raise Failed(f"llama.py {shape}: gpumem estimate ended with {status}")
            walls.append(wall_s)
            cpus.append(cpu_s)
            rams.append(ram_kib / 2**20)
        # The first round fills the page cache and compiles the tracer.
        wall_s, ram_gib = statistics.median(walls[1:]), max(rams)
        print(f"\nfull fine-tuning of Llama-3-{shape.upper()}, 2048 tokens{', rank 0 of 64, FSDP2' if environment else ''}, on a virtual {gpu}")
        print(f"  gpumem estimate {wall_s:.1f} s   goal: at most {most_s} s: {'met' if wall_s <= most_s else 'MISSED'}   "
              f"(CPU time {statistics.median(cpus[1:]):.1f} s, {len(walls) - 1} times)")
        print(f"  RAM of the largest process {ram_gib:.2f} GiB   goal: at most {most_gib} GiB: {'met' if ram_gib <= most_gib else 'MISSED'}", flush=True)


# workload, what it is, goal of the ratio (none: a worst case, shown for comparison)
VALUES = (
    ("gpt2", "GPT-2, AdamW", 1.5),
    ("gpt2_adafactor", "GPT-2, Adafactor", 1.5),
    ("resnet50", "ResNet-50, mixed precision", 1.5),
    ("adafactor", "Adafactor alone, over known gradients: half of its operators really run", None),
    ("small", "twenty steps of a tiny model: every operator really runs", 1.5),
)


def bench_values(options):
    """What following values costs a training step: CPU time with the tracer and without it."""
    program = os.path.join(HERE, "values.py")
    print("\na training step with values followed against one without (CPU time on the virtual GPU)")
    for workload, what, goal in VALUES:
        times = {True: [], False: []}
        for _ in range(options.rounds):
            for followed in (True, False):
                # A tracer that is not there is reported, and the program runs without it.
                without = [] if followed else ["env", "GPUMEM_TRACER=/nonexistent"]
                _, done = run([options.gpumem, "estimate", "--json", "--full", "--gpu", options.gpu, "--", *without, options.llama_python, program, workload])
                if followed == ("values were not followed" in done.stdout):
                    raise Failed(f"values.py {workload}: values were {'not ' if followed else ''}followed")
                times[followed].append(step_seconds(done.stderr))
        ratio = statistics.median(times[True]) / statistics.median(times[False])
        verdict = f"goal: at most {goal}: {'met' if ratio <= goal else 'MISSED'}" if goal else "no goal: a worst case"
        print(f"  {ratio:.2f} times   {statistics.median(times[True]) * 1e3:6.2f} ms against {statistics.median(times[False]) * 1e3:6.2f} ms   "
              f"{what} ({verdict})", flush=True)


BENCHES = {"preload": bench_preload, "submit": bench_submit, "step": bench_step, "llama": bench_llama, "estimate": bench_estimate, "ranks": bench_ranks,
           "values": bench_values}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpumem", default="gpumem")
    parser.add_argument("--python", default="python3", help="of an environment with a CUDA build of torch, and torchvision")
    parser.add_argument("--llama-python", help="of an environment with transformers; default: that of --python")
    parser.add_argument("--bootstrap", default=os.path.join(HERE, "..", "..", "contrib", "bootstrap"))
    parser.add_argument("--gpu", default="NVIDIA GeForce RTX 3060")
    parser.add_argument("--repetitions", type=int, default=60, help="of each submission")
    parser.add_argument("--rounds", type=int, default=5, help="of each estimate")
    parser.add_argument("--only", action="append", choices=sorted(BENCHES))
    options = parser.parse_args()
    options.llama_python = options.llama_python or options.python

    print(f"gpumem bench, {datetime.datetime.now().astimezone():%Y-%m-%d %H:%M %Z}: {machine()}", flush=True)
    failed = 0
    for name, bench in BENCHES.items():
        if options.only and name not in options.only:
            continue
        try:
            bench(options)
        except Failed as error:
            failed += 1
            print(f"\n{name}: not measured: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
