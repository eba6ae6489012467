#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times sbatch with and without gpumem's plugin, interleaved. Run by bench.py as an ordinary user of the bootstrap cluster.

    submit.py JSON   {"repetitions": N, "python": PATH, "program": PATH}   (SLURM_CONF names the cluster)

Without: the same slurm.conf with an empty plugstack. Jobs are submitted held and cancelled, so nothing runs meanwhile.
Prints one JSON object: {"plain": {"with": [s…], "without": [s…]}, "cached": {…}, "line": what the cached submission printed}.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import time

NAME = "gpumem-bench"


def main():
    options = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        with open(os.environ["SLURM_CONF"], encoding="utf-8") as file:
            text = file.read()
        empty = os.path.join(folder, "plugstack.conf")
        open(empty, "w", encoding="utf-8").close()
        text, changed = re.subn(r"(?im)^PlugStackConfig=.*$", f"PlugStackConfig={empty}", text)
        if changed != 1:
            sys.exit(f"submit.py: no PlugStackConfig in {os.environ['SLURM_CONF']}")
        without_conf = os.path.join(folder, "slurm.conf")
        with open(without_conf, "w", encoding="utf-8") as file:
            file.write(text)
        environments = {"with": dict(os.environ), "without": dict(os.environ, SLURM_CONF=without_conf)}
        script = os.path.join(folder, "job.sh")
        with open(script, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/bash\n{options['python']} {options['program']} cuda --steps 2\n")
        base = ["sbatch", "--hold", "--job-name", NAME, "--output", "/dev/null", "--chdir", "/tmp"]
        forms = {"plain": base + ["--wrap", "true"], "cached": base + ["--gres=gpu:1", script]}

        def submit(form, side):
            start = time.perf_counter()
            done = subprocess.run(forms[form], env=environments[side], capture_output=True, text=True, check=False)
            seconds = time.perf_counter() - start
            if done.returncode != 0:
                sys.exit(f"submit.py: {' '.join(forms[form])} ({side}) failed: {done.stderr.strip()}")
            return seconds, done.stderr + done.stdout

        result = {}
        try:
            for form in forms:
                _, first = submit(form, "with")  # makes and stores the decision
                submit(form, "without")
                times = {"with": [], "without": []}
                for number in range(options["repetitions"]):
                    # The order alternates, so that neither side always finds the caches that the other has warmed.
                    for side in (("with", "without") if number % 2 else ("without", "with")):
                        seconds, output = submit(form, side)
                        times[side].append(seconds)
                        if side == "with":
                            result["line"] = output.strip()
                result[form] = times
                result[form]["first"] = first.strip()
        finally:
            subprocess.run(["scancel", "--quiet", "--name", NAME], check=False)
        print(json.dumps(result))


if __name__ == "__main__":
    main()
