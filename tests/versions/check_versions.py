#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make check-versions: the test programs under every CUDA build of PyTorch that gpumem is made for.

Installs each version from PyPI in turn under --state (as contrib/bootstrap does, whose environments are used and kept), adds what
programs need in a layer of its own, runs tests/programs and the allocator's conformance, prints one Markdown table, and
removes what it has installed. Needs network, up to 14 GiB of disk at a time and /usr/bin/python3 with venv. Standard library only.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = os.path.join(os.path.dirname(HERE), "programs")
CONFORMANCE = os.path.join(os.path.dirname(HERE), "conformance", "run")

# A torchvision is built for one torch. numpy 2 came after torch 2.3, whose C interface is that of numpy 1.
OLD_NUMPY = "numpy<2"
VERSIONS = {
    "2.1.2": {"packages": ["torchvision==0.16.2", OLD_NUMPY], "layer": ["transformers==4.46.3", "accelerate==1.2.1"]},
    "2.3.1": {"packages": ["torchvision==0.18.1", OLD_NUMPY], "layer": ["transformers==4.51.3", "accelerate==1.6.0"]},
    "2.6.0": {"packages": ["torchvision==0.21.0", "transformers==4.51.3", "numpy"], "layer": ["accelerate==1.6.0"]},
    "2.8.0": {"packages": ["torchvision==0.23.0", "numpy"], "layer": ["transformers==4.57.1", "accelerate==1.11.0"]},
    "2.11.0": {"packages": ["torchvision==0.26.0", "numpy"], "layer": ["transformers==4.57.1", "accelerate==1.11.0"]},
    "2.15.0": {"packages": ["torchvision", "numpy"], "layer": ["transformers==4.57.1", "accelerate==1.11.0"]},
}
LAYER = ["nvidia-ml-py==13.580.82"]
PIP = ["-m", "pip", "install", "--quiet", "--no-cache-dir", "--disable-pip-version-check"]


def say(text):
    print(text, file=sys.stderr, flush=True)


def output_of(command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout.strip()


def site_packages(environment):
    return output_of([environment + "/bin/python", "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"])


def installed_version(environment, package):
    python = environment + "/bin/python"
    if not os.path.exists(python):
        return ""
    return output_of([python, "-c", f"from importlib.metadata import version; print(version({package!r}))"]).split("+")[0]


def install(environment, packages):
    subprocess.run([environment + "/bin/python", *PIP, *packages], check=True, stdout=sys.stderr)


def base_environment(version, options):
    """The environment with that torch, and whether this run has made it."""
    path = os.path.join(options.state, "venv", "torch-" + version)
    if installed_version(path, "torch") == version:
        return path, False
    shutil.rmtree(path, ignore_errors=True)
    try:
        subprocess.run(["/usr/bin/python3", "-m", "venv", path], check=True)
        install(path, ["torch==" + version, *VERSIONS[version]["packages"]])
    except BaseException:  # half of it would take gigabytes
        shutil.rmtree(path, ignore_errors=True)
        raise
    return path, True


def layer_path(version, options):
    return os.path.join(options.state, "venv", "programs-" + version)


def layered(version, base, options):
    """An environment on top of `base`, with what programs need and nobody else wants in it."""
    path = layer_path(version, options)
    ready = os.path.join(path, "ready")
    wanted = VERSIONS[version]["layer"] + LAYER
    if os.path.exists(ready) and open(ready, encoding="utf-8").read().split() == [base, *wanted]:
        return path
    shutil.rmtree(path, ignore_errors=True)
    subprocess.run(["/usr/bin/python3", "-m", "venv", path], check=True)
    with open(os.path.join(site_packages(path), "torch.pth"), "w", encoding="utf-8") as file:
        file.write(site_packages(base) + "\n")
    install(path, ["torch==" + installed_version(base, "torch"), *VERSIONS[version]["packages"], *wanted])
    with open(ready, "w", encoding="utf-8") as file:
        file.write("\n".join([base, *wanted]))
    return path


def run_programs(python, options, results_path):
    command = [sys.executable, os.path.join(PROGRAMS, "run"), "--gpumem", options.gpumem, "--python", python, "--json", results_path]
    command += ["-j", str(options.jobs)] + (["--quick"] if options.quick else []) + options.programs
    subprocess.run(command, stdout=sys.stderr, check=False)
    try:
        with open(results_path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def conformance(python, options):
    """The allocator's model against this PyTorch's, in a few words for the table."""
    prefix = os.path.dirname(os.path.dirname(os.path.abspath(options.gpumem)))
    done = subprocess.run([CONFORMANCE, python, prefix, "--events", str(options.events)], stdout=subprocess.PIPE, text=True, check=False)
    sys.stderr.write(done.stdout)
    said = re.search(r"(\d+) events in .* s, 0 differences", done.stdout)
    return f"same, {int(said.group(1)) / 1e6:.1f} million events" if done.returncode == 0 and said else "FAIL"


def check(version, options):
    start = time.monotonic()
    say(f"== PyTorch {version}")
    answer = {"version": version}
    base, made = "", False
    try:
        base, made = base_environment(version, options)
        python = layered(version, base, options) + "/bin/python"
        answer["programs"] = run_programs(python, options, os.path.join(options.state, f"programs-{version}.json"))
        if not answer["programs"]:
            answer["error"] = "the programs did not run"
        if options.events and not options.programs and not options.quick:
            answer["conformance"] = conformance(python, options)
    except (subprocess.CalledProcessError, OSError) as error:
        say(f"PyTorch {version} cannot be installed: {error}")
        answer["error"] = "not installed"
    finally:
        if not options.keep:
            shutil.rmtree(layer_path(version, options), ignore_errors=True)
            if made:
                shutil.rmtree(base, ignore_errors=True)
    answer["wall_s"] = time.monotonic() - start
    say(f"== PyTorch {version}: {answer['wall_s'] / 60:.0f} min")
    return answer


def cudnn_of(answer):
    """cuDNN as the estimates name it: the job's own, or the one that planned in its place."""
    said = {(result.get("estimate") or {}).get("cudnn") or "" for result in (answer.get("programs") or {}).get("results", [])}
    # Where a program has asked no cuDNN to plan, its estimate names the job's own only.
    for wanted in ("brought by gpumem", "the job's own)"):
        for one in said:
            if wanted in one:
                return one.replace(" (the job's own)", "").replace(" (brought by gpumem) in place of the job's", " for")
    return "?"


def table(answers):
    heads = ["program"] + [answer["version"] for answer in answers]
    rows = [["CUDA"], ["cuDNN that planned"], ["programs that end as they should"], ["not in this version, or without its framework (-)"]]
    names = {}
    for answer in answers:
        programs = answer.get("programs") or {"results": [], "about": {}}
        rows[0].append(programs["about"].get("cuda") or "?")
        rows[1].append(cudnn_of(answer))
        ran = [result["result"] for result in programs["results"] if result["result"] != "-"]
        rows[2].append(f"{ran.count('ok')} of {len(ran)}")
        rows[3].append(str(len(programs["results"]) - len(ran)))
        for result in programs["results"]:
            names.setdefault(result["name"], result.get("what", ""))
    for name in sorted(names):
        row = [f"`{name}`"]
        for answer in answers:
            found = [result["result"] for result in (answer.get("programs") or {"results": []})["results"] if result["name"] == name]
            row.append(found[0] if found else "?")
        rows.append(row)
    if any("conformance" in answer for answer in answers):
        rows.append(["the allocator's model"] + [answer.get("conformance", "?") for answer in answers])
    lines = ["| " + " | ".join(heads) + " |", "| " + " | ".join("---" for _ in heads) + " |"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpumem", required=True, help="the installed gpumem")
    parser.add_argument("--state", default="/var/lib/gpumem-bootstrap", help="where environments are made (contrib/bootstrap's by default)")
    parser.add_argument("--version", action="append", dest="versions", choices=list(VERSIONS), help="only this one; may be repeated")
    parser.add_argument("--keep", action="store_true", help="keep what was installed")
    parser.add_argument("--quick", action="store_true", help="only the programs of CI")
    parser.add_argument("--events", type=int, default=10_000_000, help="of the allocator's conformance, in each version; 0: leave it out")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1, help="programs at once")
    parser.add_argument("--json", help="write everything to this file")
    parser.add_argument("--add", action="append", default=[], metavar="FILE", help="what an earlier run has written so comes into the table too; may be repeated")
    parser.add_argument("programs", nargs="*", help="only these programs")
    options = parser.parse_args()
    answers = []
    for path in options.add:
        with open(path, encoding="utf-8") as file:
            answers += [answer for answer in json.load(file) if answer["version"] not in (options.versions or [])]
    done = {answer["version"] for answer in answers}
    for version in options.versions or [one for one in VERSIONS if one not in done]:
        answers.append(check(version, options))
        if options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump(answers, file, indent=1)
    answers.sort(key=lambda answer: list(VERSIONS).index(answer["version"]))
    print(table(answers))
    failed = [f"PyTorch {answer['version']}: {answer['error']}" for answer in answers if "error" in answer]
    for answer in answers:
        if answer.get("conformance") == "FAIL":
            failed.append(f"PyTorch {answer['version']}: the allocator's conformance")
        for result in (answer.get("programs") or {"results": []})["results"]:
            if result["result"] == "FAIL":
                failed.append(f"PyTorch {answer['version']}: {result['name']}: {result['faults'][0]}")
    print()
    print("\n".join(failed) if failed else "no program fails")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
