#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make check-line-orders: how much of the language models' error is that nobody knows which lines the true runs drew.

The measured runs shuffled wikitext-2 without a seed and padded each batch to its longest line. Here each such row is run under several
other shuffles, four iterations in their natural order, as the true run was: their spread is what two runs of the same job differ by, and
the truth is one more of them. Beside them stands what the estimate itself says of other orders (its `orders`: made from the record of one
run, doc/contracts.md): "replayed". Rows of models whose lines all have 128 tokens are left out. Python's standard library only.
"""
import argparse
import concurrent.futures
import json
import os
import re
import statistics
import subprocess
import sys

import check_accuracy

# What NVML's growth has beyond reserved whatever the lines are (data/README.md: at most 34 MiB on these GPUs), and a segment of 20 MiB.
KNOWN_BYTES = 54 << 20


def rows_of(options):
    with open(os.path.join(check_accuracy.HERE, "workloads", "lm_models.json"), encoding="utf-8") as file:
        models = json.load(file)["models"]
    return [row for row in check_accuracy.read_rows(options.data)
            if row["kind"] == "transformer" and row["ground_oom"] == "0" and options.half in ("all", row["half"])
            and not models[row["model"]]["tokenizer"]["padded_to_longest_of_1000"]]


def run(row, orders, options):
    """Peak reserved in bytes, None where there was no room: first of the estimate as it is made for a submission, then of each order;
    and lowest, middle and highest of the orders that the estimate replayed, None where its batches were alike."""
    single = check_accuracy.run(row, options)["estimate"]
    script, *arguments = check_accuracy.workload(row)
    several = os.path.join(os.path.dirname(script), "lm_orders.py")
    command = [options.gpumem, "estimate", "--full", "--gpu", row["gpu"], "--timeout", str(options.timeout), "--", options.python, several, str(orders)]
    done = subprocess.run(command + arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    found = re.findall(r"^order \d+ (?:reserved (\d+)|full)$", done.stdout, re.M)
    if single.get("status") not in ("complete", "out_of_memory") or len(found) != orders:
        raise SystemExit(f"{row['model']} {row['optimizer']} {row['batch']}: {single.get('status')}, {len(found)} of {orders} orders:\n{done.stdout[-1500:]}")
    first = single["peak_reserved_bytes"] if single["status"] == "complete" else None
    replayed = single.get("orders")
    if replayed:
        replayed = [replayed[name + "_bytes"] for name in ("lowest", "middle", "highest")]
    return [first] + [int(one) if one else None for one in found], replayed


def judge(row, answers, replayed, knows_replayed):
    """`replayed`: as of run(). None where an order has no room: such peaks say how large the GPU is."""
    truth, estimate, orders = int(row["ground_bytes"]), answers[0], answers[1:]
    if None in answers:
        return None
    middle = statistics.median(orders)
    replayed = replayed or [estimate] * 3
    pairs = [abs(one - other) for index, one in enumerate(orders) for other in orders[index + 1:]]
    return {
        "name": f"{row['model']} {row['optimizer']} {row['batch']} {row['gpu'].split()[-1]}", "half": row["half"],
        "error": 100.0 * (estimate - truth) / truth,
        "of_orders": [100.0 * (one - truth) / truth for one in sorted(orders)],
        "any_order": 100.0 * statistics.fmean(abs(one - truth) for one in orders) / truth,
        "two_runs": 100.0 * statistics.fmean(pairs) / truth,
        "to_middle": 100.0 * statistics.fmean(abs(one - middle) for one in orders) / truth,
        "truth_to_middle": 100.0 * abs(truth - middle) / truth,
        "replayed": [100.0 * (one - truth) / truth for one in replayed],
        "replayed_to_middle": 100.0 * abs(replayed[1] - middle) / truth,
        "among_replayed": sum(replayed[0] <= one <= replayed[2] for one in orders),
        "knows_replayed": knows_replayed,
        "inside": min(orders) - KNOWN_BYTES <= truth <= max(orders) + KNOWN_BYTES,
    }


def print_table(results, orders):
    print(f"{'error %':>8} {'two runs %':>11} {'lowest':>8} {'middle':>8} {'highest':>8} {'replayed: lowest, middle, highest':>33}"
          f"  row (all against the truth; {orders} orders)")
    for one in sorted(results, key=lambda one: -abs(one["error"])):
        spread = one["of_orders"]
        print(f"{one['error']:8.2f} {one['two_runs']:11.2f} {spread[0]:8.2f} {statistics.median(spread):8.2f} {spread[-1]:8.2f} "
              f"{one['replayed'][0]:15.2f} {one['replayed'][1]:8.2f} {one['replayed'][2]:8.2f}  {one['name']} ({one['half']})"
              + ("" if one["inside"] else ": the truth is outside"))
    for half in ("all", "debug", "judge"):
        of_half = [one for one in results if half in ("all", one["half"])]
        if not of_half:
            continue
        def mean(key):
            return statistics.fmean(abs(one[key]) for one in of_half)
        print(f"\n{half}, {len(of_half)} rows\n"
              f"  error of the estimate:                              mean {mean('error'):.2f} %, median {statistics.median(abs(one['error']) for one in of_half):.2f} %\n"
              f"  error of any one order:                             mean {mean('any_order'):.2f} %\n"
              f"  error of the middle of the orders:                  mean {mean('truth_to_middle'):.2f} %\n"
              f"  one order against another (two runs of the job):    mean {mean('two_runs'):.2f} %\n"
              f"  one order against the middle of the orders:         mean {mean('to_middle'):.2f} %  (the least that an estimate can have without the lines)\n"
              + ("" if not all(one["knows_replayed"] for one in of_half) else
                 f"  the replayed middle against that of the orders:     mean {mean('replayed_to_middle'):.2f} %\n"
                 f"  orders within the replayed ones:                    {sum(one['among_replayed'] for one in of_half)} of {orders * len(of_half)}\n") +
              f"  the truth is among the orders (within {KNOWN_BYTES >> 20} MiB):      {sum(one['inside'] for one in of_half)} of {len(of_half)} rows")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.path.join(check_accuracy.HERE, "data", "xmem_runs_dev.tsv"))
    parser.add_argument("--gpumem", default="gpumem")
    parser.add_argument("--python", default="python3", help="torch 2.6.0, transformers 4.51.3")
    parser.add_argument("--orders", type=int, default=16, help="shuffles a row is run under")
    parser.add_argument("--half", choices=("all", "debug", "judge"), default="all")
    parser.add_argument("--only", default="", help="rows with this in `model optimizer batch`")
    parser.add_argument("--jobs", type=int, default=2, help="runs at once")
    parser.add_argument("--timeout", type=int, default=300)
    parser.add_argument("--results", help="write the answers here (JSON); what is there is not run again")
    options = parser.parse_args()
    options.prove, options.workload_option, options.estimate_option, options.lm_option = False, [], [], []

    known = {}
    if options.results and os.path.exists(options.results):
        with open(options.results, encoding="utf-8") as file:
            known = json.load(file)
    replayed = known.setdefault("replayed", {})
    results, full = [], 0
    rows = [row for row in rows_of(options) if options.only in f"{row['model']} {row['optimizer']} {row['batch']}"]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        missing = [row for row in rows if len(known.get(row["path"], [])) <= options.orders]
        for row, answers in zip(missing, pool.map(lambda row: run(row, options.orders, options), missing)):
            known[row["path"]], replayed[row["path"]] = answers
            print(f"# {row['model']} {row['optimizer']} {row['batch']} {row['gpu'].split()[-1]}", file=sys.stderr, flush=True)
            if options.results:
                with open(options.results, "w", encoding="utf-8") as file:
                    json.dump(known, file, indent=1)
    for row in rows:
        result = judge(row, known[row["path"]][:options.orders + 1], replayed.get(row["path"]), row["path"] in replayed)
        if result is None:
            full += 1
        else:
            results.append(result)
    if not results:
        raise SystemExit("no such row")
    print_table(results, options.orders)
    if full:
        print(f"\n{full} rows are left out: some of their orders run out of memory")


if __name__ == "__main__":
    main()
