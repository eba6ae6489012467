#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make check-accuracy: gpumem's estimates beside peaks measured on real GPUs (tests/accuracy/data).

Runs `gpumem estimate` once per row of the ground truth, keeps nothing between runs, and prints errors by kind with the goals.
A missed goal fails nothing; a run that gives no estimate does. Python's standard library only.
"""
import argparse
import concurrent.futures
import csv
import hashlib
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tools"))
import proofs  # noqa: E402

KINDS = ("transformer", "large", "cnn")
GOALS = {  # kind: (median %, mean %); None: no goal
    "transformer": (0.5, 2.0),
    "large": (1.0, None),
    "cnn": (2.0, None),
}
GOAL_OOM_RIGHT_PERCENT = 98.0
GOAL_WALL_S = 8.0
TOOLS = ("xmem", "dnnmem", "schedtune", "llmem")


def half_of(row):
    """`debug` or `judge`: causes are looked for in the one only. See data/README.md."""
    name = "|".join((row["model"], row["optimizer"], row["batch"], row["zero_grad_pos"], row["gpu"]))
    return "judge" if hashlib.sha256(name.encode()).digest()[-1] % 2 else "debug"


def read_rows(path):
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    for number, row in enumerate(rows, 1):
        row["number"] = number
        row["half"] = half_of(row)
    return rows


def sample(rows, count):
    """`count` rows that are the same ones each time, whatever the order of the file."""
    if not count or count >= len(rows):
        return rows
    def key(row):
        return hashlib.sha256(("sample|" + row["path"]).encode()).digest()
    chosen = {row["number"] for row in sorted(rows, key=key)[:count]}
    return [row for row in rows if row["number"] in chosen]


def workload(row):
    script = "train_cnn.py" if row["kind"] == "cnn" else "train_lm.py"
    zero_grad_pos = row["zero_grad_pos"]
    if zero_grad_pos in ("", "null"):  # before there was a choice, data/README.md
        zero_grad_pos = "0" if row["kind"] == "cnn" else "2"
    return [os.path.join(HERE, "workloads", script), row["model"], row["optimizer"], row["batch"], zero_grad_pos]


def run(row, options):
    command = [options.gpumem, "estimate", "--json", "--gpu", row["gpu"], "--timeout", str(options.timeout)]
    command += ["--prove"] * options.prove + options.estimate_option + ["--", options.python] + workload(row) + options.workload_option
    if row["kind"] != "cnn":
        command += options.lm_option
    start = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    wall_s = time.monotonic() - start
    try:
        estimate = json.loads(done.stdout)
    except ValueError:
        estimate = {"status": "failed", "error": f"no JSON on standard output (exit status {done.returncode}): {done.stderr[-400:]}"}
    if not isinstance(estimate, dict):
        estimate = {"status": "failed", "error": "the output is no JSON object"}
    return {
        "number": row["number"], "kind": row["kind"], "half": row["half"], "model": row["model"], "optimizer": row["optimizer"],
        "batch": int(row["batch"]), "zero_grad_pos": row["zero_grad_pos"], "gpu": row["gpu"],
        "ground_bytes": int(row["ground_bytes"]), "ground_oom": row["ground_oom"] == "1",
        "wall_s": wall_s, "exit_status": done.returncode, "estimate": estimate, "output": done.stderr[-2000:],
    }


def percentile(values, part):
    """Linear interpolation between the closest ranks, as numpy.percentile does."""
    values = sorted(values)
    at = (len(values) - 1) * part
    low = math.floor(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)


class Score:
    """What one tool said about a set of rows. Errors are relative to the measured peak, in percent."""

    def __init__(self):
        self.errors = []      # signed; rows where neither side ran out of memory
        self.runtimes_s = []
        self.oom_right = self.oom_asked = 0

    def add(self, ground_bytes, ground_oom, estimate_bytes, estimate_oom, runtime_s):
        self.oom_asked += 1
        self.oom_right += ground_oom == estimate_oom
        if runtime_s is not None:
            self.runtimes_s.append(runtime_s)
        if not ground_oom and not estimate_oom and estimate_bytes:
            self.errors.append(100.0 * (estimate_bytes - ground_bytes) / ground_bytes)

    def line(self):
        absolute = [abs(error) for error in self.errors]
        cells = [f"{self.oom_asked:5d}", f"{len(absolute):6d}"]
        if absolute:
            cells += [f"{statistics.median(absolute):8.2f}", f"{statistics.fmean(absolute):7.2f}", f"{percentile(absolute, 0.95):7.2f}",
                      f"{max(absolute):7.2f}", f"{100.0 * sum(error < 0 for error in self.errors) / len(self.errors):7.0f}"]
        else:
            cells += [f"{'-':>8}"] + [f"{'-':>7}"] * 4
        cells.append(f"{100.0 * self.oom_right / self.oom_asked:8.1f}" if self.oom_asked else f"{'-':>8}")
        cells.append(f"{statistics.median(self.runtimes_s):8.2f}" if self.runtimes_s else f"{'-':>8}")
        return " ".join(cells)


def ours(results):
    score = Score()
    for result in results:
        estimate = result["estimate"]
        if estimate.get("status") in ("complete", "out_of_memory"):
            score.add(result["ground_bytes"], result["ground_oom"], estimate.get("peak_reserved_bytes"),
                      estimate["status"] == "out_of_memory", result["wall_s"])
    return score


def theirs(tool, rows):
    """xMem and others add a context that they measured on the target GPU; their published figures are taken as they are."""
    score = Score()
    for row in rows:
        bytes_text, oom_text, runtime_text = (row[f"{tool}_{name}"] for name in ("est_bytes", "est_oom", "runtime_s"))
        if oom_text not in ("0", "1"):
            continue
        number = int(float(bytes_text)) if bytes_text not in ("", "null") else None
        seconds = float(runtime_text) if runtime_text not in ("", "null") else None
        score.add(int(row["ground_bytes"]), row["ground_oom"] == "1", number, oom_text == "1", seconds)
    return score


def print_tables(rows, results, out):
    by_number = {row["number"]: row for row in rows}
    print("error of peak reserved against the measured peak, %", file=out)
    halves = sorted({result["half"] for result in results})
    for kind in KINDS:
        for half in (["all"] if len(halves) > 1 else []) + halves:
            chosen = [result for result in results if result["kind"] == kind and half in ("all", result["half"])]
            if not chosen:
                continue
            print(f"\n{kind}, {half}\n  {'':10} {'rows':>5} {'scored':>6} {'median':>8} {'mean':>7} {'p95':>7} {'worst':>7} "
                  f"{'under%':>7} {'oom ok%':>8} {'median s':>8}", file=out)
            print(f"  {'gpumem':10} {ours(chosen).line()}", file=out)
            for tool in TOOLS:
                score = theirs(tool, [by_number[result["number"]] for result in chosen])
                if score.oom_asked:
                    print(f"  {tool:10} {score.line()}", file=out)
            median_goal, mean_goal = GOALS[kind]
            goal = f"median <= {median_goal}" + (f", mean <= {mean_goal}" if mean_goal else "")
            print(f"  goal: {goal}; oom ok >= {GOAL_OOM_RIGHT_PERCENT:.0f}; seconds <= {GOAL_WALL_S:.0f}", file=out)
    score = ours(results)
    if score.oom_asked:
        longest = max(results, key=lambda result: result["wall_s"])
        print(f"\nOOM or not, all rows: {score.oom_right} of {score.oom_asked} right "
              f"({100.0 * score.oom_right / score.oom_asked:.1f} %; goal {GOAL_OOM_RIGHT_PERCENT:.0f} %)", file=out)
        print(f"wall time a run: median {statistics.median(score.runtimes_s):.1f} s, p95 {percentile(score.runtimes_s, 0.95):.1f} s, "
              f"longest {longest['wall_s']:.1f} s ({longest['model']} {longest['optimizer']} {longest['batch']}); goal {GOAL_WALL_S:.0f} s", file=out)
    print("\nrows: asked; scored: neither side out of memory; under%: share of scored rows estimated below the truth;\n"
          "oom ok%: share of rows where out of memory or not was said rightly. Their figures contain a context measured on the\n"
          "target GPU, ours are the allocator's peak alone, as the truth is. Their seconds are those that their authors stored.", file=out)


def print_rows(results, half, out):
    print(f"\n{'err %':>8} {'MiB':>7} {'row':>4} half  model optimizer batch zero_grad gpu", file=out)
    def error(result):
        return (result["estimate"].get("peak_reserved_bytes") or 0) - result["ground_bytes"]
    scored = [result for result in results if half in ("all", result["half"])]
    for result in sorted(scored, key=lambda result: (result["kind"], -abs(error(result) / result["ground_bytes"]))):
        status = result["estimate"].get("status")
        oom = f"truth oom={int(result['ground_oom'])} ours={status}" if result["ground_oom"] or status != "complete" else ""
        print(f"{100 * error(result) / result['ground_bytes']:8.2f} {error(result) / 2**20:7.0f} {result['number']:4d} {result['half']} "
              f"{result['model']} {result['optimizer']} {result['batch']} {result['zero_grad_pos']} {result['gpu'].split()[-1]} {oom}", file=out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.path.join(HERE, "data", "xmem_runs_dev.tsv"), help="ground truth (TSV)")
    parser.add_argument("--gpumem", default="gpumem", help="the program to test")
    parser.add_argument("--python", default="python3", help="of an environment with torch 2.6.0, torchvision 0.21.0, transformers 4.51.3")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once (1: wall times mean something)")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="only N rows, the same each time")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only rows of this kind")
    parser.add_argument("--half", choices=("all", "debug", "judge"), default="all", help="only rows of this half")
    parser.add_argument("--prove", action="store_true", help="prove each limit by a second run, and print what came of it")
    parser.add_argument("--timeout", type=int, default=300, help="seconds a run may take")
    parser.add_argument("--results", help="write every run's answer here (JSON)")
    parser.add_argument("--from-results", help="print the tables of such a file; run nothing")
    parser.add_argument("--list", choices=("debug", "judge", "all"), help="also list each row of that half, largest error first")
    parser.add_argument("--estimate-option", action="append", default=[], help="passed to gpumem estimate")
    parser.add_argument("--workload-option", action="append", default=[], help="passed to the training scripts")
    parser.add_argument("--lm-option", action="append", default=[], help="passed to train_lm.py only")
    options = parser.parse_args()

    rows = read_rows(options.data)
    if options.from_results:
        with open(options.from_results, encoding="utf-8") as file:
            results = json.load(file)["results"]
    else:
        if not shutil.which(options.gpumem):
            parser.error(f"{options.gpumem}: no such program (--gpumem)")
        if not shutil.which(options.python):
            parser.error(f"{options.python}: no such program (--python)")
        chosen = [row for row in rows if (not options.kind or row["kind"] in options.kind) and options.half in ("all", row["half"])]
        chosen = sample(chosen, options.sample)
        results = []
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for done, result in enumerate(pool.map(lambda row: run(row, options), chosen), 1):
                estimate = result["estimate"]
                text = estimate.get("status", "?")
                if estimate.get("peak_reserved_bytes"):
                    text += f" {estimate['peak_reserved_bytes'] / 2**30:.2f} GiB"
                print(f"[{done}/{len(chosen)}] {result['model']} {result['optimizer']} {result['batch']} on {result['gpu']}: {text}, "
                      f"{result['wall_s']:.1f} s", file=sys.stderr)
                results.append(result)
        if options.results:
            with open(options.results, "w", encoding="utf-8") as file:
                json.dump({"data": os.path.basename(options.data), "results": results}, file, indent=1)
    print_tables(rows, results, sys.stdout)
    if options.list:
        print_rows(results, options.list, sys.stdout)
    if options.prove:
        print("\n" + proofs.table([(result["kind"], f"{result['model']} {result['optimizer']} {result['batch']} {result['gpu'].split()[-1]}",
                                    result["estimate"]) for result in results]))
    missing = [result for result in results if result["estimate"].get("status") not in ("complete", "out_of_memory")]
    for result in missing:
        print(f"no estimate: {result['model']} {result['optimizer']} {result['batch']} on {result['gpu']}: "
              f"{result['estimate'].get('status')}: {result['estimate'].get('error')}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
