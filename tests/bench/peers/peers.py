#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make bench-peers: gpumem beside other tools that say how much GPU memory a training run needs.

The same workloads (tests/accuracy/workloads) on the same machine, one at a time; error against peaks that were measured on real
GPUs (tests/accuracy/data), seconds and host memory of each tool. The rows are the first of each kind by a hash of their path among
those that need at most --largest GiB, as xMem and its method really train on the CPU. Results are kept in --results after each run: what
is there is not run again. --table prints what there is: a table for README, and how well --method=xmem reproduces what xMem's authors
published. Where xMem's repository cannot be had (prepare), their stored estimates stand in. Python's standard library only.
"""
import argparse
import csv
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "accuracy"))
import check_accuracy  # noqa: E402

KINDS = (("cnn", "CNN"), ("transformer", "transformer"))
TOOLS = {
    "gpumem": "gpumem",
    "gpumem-xmem": "gpumem `--method=xmem`",
    "xmem": "xMem, run here",
    "xmem-published": "xMem, as its authors stored it",
    "mem-tracker": "PyTorch's MemTracker, fake tensors",
    "accelerate": "accelerate `estimate-memory` × 4",
}
# Memory in use on the evaluation's GPUs when nothing is allocated: what its authors add to their estimates, and do not publish. From
# the rows of one model (MobileNetV3Small), whose rebuilt segments differ from the published estimates by exactly this much.
PUBLISHED_CONTEXT_BYTES = {"NVIDIA GeForce RTX 3060": 144 << 20, "NVIDIA GeForce RTX 4060": 130 << 20}


def rows_of(options):
    with open(options.data, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    chosen = []
    for kind, _ in KINDS:
        fit = [row for row in rows if row["kind"] == kind and row["ground_oom"] == "0" and row["xmem_est_bytes"] not in ("", "null")
               and int(row["ground_bytes"]) <= options.largest * 2**30]
        fit.sort(key=lambda row: hashlib.sha256(("peers|" + row["path"]).encode()).digest())
        chosen += fit[:options.rows]
    return chosen


def workload(row):
    # Every line as long as the longest: which lines the published runs drew is not known.
    return check_accuracy.workload(row) + ([] if row["kind"] == "cnn" else ["--fixed-length", "--skip-init"])


def command(tool, row, options):
    if tool in ("gpumem", "gpumem-xmem"):
        method = "xmem" if tool == "gpumem-xmem" else "virtual_gpu"
        return [options.gpumem, "estimate", "--json", "--method", method, "--gpu", row["gpu"], "--timeout", str(options.timeout), "--",
                options.python] + workload(row)
    return [options.peers_python or options.python, os.path.join(HERE, "peer.py"), tool, options.xmem] + workload(row)


def run(tool, row, options):
    """{"bytes", "seconds", "ram_bytes"} or {"error"}: bytes are those of segments or tensors, contexts excluded."""
    if tool == "xmem-published":
        estimate = int(row["xmem_est_bytes"]) - PUBLISHED_CONTEXT_BYTES.get(row["gpu"], 0)
        return {"bytes": estimate, "seconds": float(row["xmem_runtime_s"] or 0), "ram_bytes": None}
    began = time.monotonic()
    # A process of its own, so that the largest resident set is this run's.
    watcher = [sys.executable, "-c", "import resource, subprocess, sys\n"
               "done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.PIPE)\n"
               "sys.stdout.buffer.write(done.stdout)\n"
               "sys.stderr.buffer.write(done.stderr[-2000:])\n"
               "print('\\nMAXRSS', resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"]
    try:
        done = subprocess.run(watcher + command(tool, row, options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                              timeout=options.timeout + 60, check=False)
    except subprocess.TimeoutExpired:
        return {"error": "no end within %d s" % (options.timeout + 60)}
    seconds = time.monotonic() - began
    text, _, resident = done.stdout.rpartition("\nMAXRSS")
    ram_bytes = int(resident or 0) * 1024
    try:
        answer = json.loads(text[text.index("{"):])
    except ValueError:
        return {"error": (done.stderr.strip().splitlines() or ["no answer"])[-1][:300]}
    if "error" in answer:
        return {"error": answer["error"][:300]}
    value = answer["peak_reserved_bytes"] if tool.startswith("gpumem") else answer["bytes"]
    return {"bytes": value, "seconds": seconds, "ram_bytes": ram_bytes}


def load(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def save(path, results):
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1, sort_keys=True)
    os.replace(path + ".new", path)


def percent(result, row):
    truth = int(row["ground_bytes"])
    return 100.0 * (result["bytes"] - truth) / truth


def table(rows, results):
    lines = ["| tool | kind | rows | error: median | mean | worst | too low | seconds | RAM |", "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for tool, name in TOOLS.items():
        for kind, title in KINDS:
            of_kind = [row for row in rows if row["kind"] == kind]
            good = [(row, results[key]) for row in of_kind for key in [tool + "|" + row["path"]] if "bytes" in results.get(key, {})]
            tried = sum(tool + "|" + row["path"] in results for row in of_kind)
            if not tried:
                continue
            if not good:
                lines.append("| %s | %s | 0 of %d | – | – | – | – | – | – |" % (name, title, tried))
                continue
            errors = [percent(result, row) for row, result in good]
            sizes = [abs(error) for error in errors]
            ram = [result["ram_bytes"] for _, result in good if result["ram_bytes"]]
            seconds = [result["seconds"] for _, result in good if result["seconds"]]
            lines.append("| %s | %s | %d of %d | %.1f %% | %.1f %% | %.1f %% | %.0f %% | %s | %s |" % (
                name, title, len(good), tried, statistics.median(sizes), statistics.mean(sizes), max(sizes),
                100.0 * sum(error < 0 for error in errors) / len(errors), "%.1f" % statistics.median(seconds) if seconds else "–",
                "%.1f GiB" % (max(ram) / 2**30) if ram else "–"))
    lines += ["", MEANING]
    if not any(key.startswith("xmem|") for key in results):
        lines.append("xMem itself was not run (its repository could not be had): the estimates and seconds that its authors stored stand in.")
    return "\n".join(lines + ["", agreement(rows, results)])


MEANING = """rows: those with an answer, of those tried, chosen by a hash of their names among the runs of at most a few GiB. error: of the allocator's peak
(MemTracker: of tensors; accelerate: of parameters, gradients and Adam's state; contexts are in neither side) against the peak that was
measured on the GPU; too low: share of rows below it. seconds: median, of the whole command; those of xMem's authors leave its training on
the CPU out and are of their machine. RAM: largest process of any row. Language models are given lines of 128 tokens: which lines the
measured runs drew is not known."""


def agreement(rows, results):
    """How well --method=xmem reproduces what xMem's authors published for the same rows."""
    lines = ["`gpumem estimate --method=xmem` beside the estimates that xMem's authors stored (goal: median difference ≤ 2 %)", "",
             "| row | stored MiB | reproduced MiB | difference |", "| --- | --- | --- | --- |"]
    words = []
    for kind, title in KINDS:
        differences = []
        for row in rows:
            ours, theirs = (results.get(tool + "|" + row["path"], {}) for tool in ("gpumem-xmem", "xmem-published"))
            if row["kind"] == kind and "bytes" in theirs and ours:
                name = "%s %s %s, %s" % (row["model"], row["optimizer"], row["batch"], row["gpu"].split()[-1])
                if "bytes" not in ours:
                    lines.append("| %s | %.0f | – | %s |" % (name, theirs["bytes"] / 2**20, ours["error"]))
                    continue
                differences.append(100.0 * (ours["bytes"] - theirs["bytes"]) / theirs["bytes"])
                lines.append("| %s | %.0f | %.0f | %+.1f %% |" % (name, theirs["bytes"] / 2**20, ours["bytes"] / 2**20, differences[-1]))
        if differences:
            sizes = [abs(one) for one in differences]
            words.append("%s: median %.1f %%, worst %.1f %% over %d rows" % (title, statistics.median(sizes), max(sizes), len(sizes)))
    return "\n".join(lines + ["", "; ".join(words) + "."]) if words else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpumem", default="gpumem")
    parser.add_argument("--python", default=sys.executable, help="of the workloads: torch 2.6.0, torchvision, transformers 4.51.3")
    parser.add_argument("--peers-python", default="", help="the same with accelerate and what xMem needs (prepare makes one)")
    parser.add_argument("--xmem", default="", help="checkout of xMem's repository (prepare makes one)")
    parser.add_argument("--data", default=os.path.join(HERE, "..", "..", "accuracy", "data", "xmem_runs_dev.tsv"))
    parser.add_argument("--results", default="peers-results.json")
    parser.add_argument("--rows", type=int, default=12, help="of each kind")
    parser.add_argument("--largest", type=float, default=4.5, help="GiB that a row needs at most")
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--only", default="", help="run rows with this in `model optimizer batch`")
    parser.add_argument("--timeout", type=int, default=900)
    parser.add_argument("--retry", action="store_true", help="run again what failed")
    parser.add_argument("--table", action="store_true", help="run nothing")
    options = parser.parse_args()
    rows, results = rows_of(options), load(options.results)
    tools = [tool for tool in options.tools.split(",") if tool]
    for tool in tools:
        if tool not in TOOLS:
            parser.error("unknown tool " + tool)
    if not options.table:
        for row in rows:
            if options.only not in "%(model)s %(optimizer)s %(batch)s" % row:
                continue
            for tool in tools:
                key = tool + "|" + row["path"]
                if key in results and not (options.retry and "error" in results[key]):
                    continue
                if tool == "xmem" and not options.xmem:
                    continue
                result = results[key] = run(tool, row, options)
                save(options.results, results)
                what = result.get("error") or "%.1f %%, %.1f s" % (percent(result, row), result["seconds"])
                print("# %s %s %s %s: %s" % (tool, row["model"], row["optimizer"], row["batch"], what), file=sys.stderr, flush=True)
    print(table(rows, results))


if __name__ == "__main__":
    main()
