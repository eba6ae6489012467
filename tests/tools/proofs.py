# SPDX-License-Identifier: Apache-2.0
"""What proof runs say of many estimates (gpumem estimate --prove): used by tests/accuracy/check_accuracy.py and tests/programs/run.

A limit is proven when a second run has held it; what does not hold is not proposed. Python's standard library only.
"""
import statistics

PROVEN = ("proven", "proven_at_peak")


def failed_first(estimate):
    """The replay's limit was tried and did not hold."""
    proof = estimate.get("proof") or {}
    return proof.get("result") in ("proven_at_peak", "disproven") and any(not one["passed"] for one in proof.get("runs", []))


def tried(estimate):
    """A limit below the peak was tried."""
    return failed_first(estimate) and len(estimate["proof"]["runs"]) > 1 or held(estimate)


def held(estimate):
    return (estimate.get("proof") or {}).get("result") == "proven"


def below_peak_percent(estimate):
    """How far the limit that the allocator's model gives lies below peak reserved; None where no lower one was looked for."""
    reserved, limit = estimate.get("peak_reserved_bytes"), estimate.get("minimum_limit_bytes")
    if not reserved or not limit or estimate.get("no_minimum"):
        return None
    return 100.0 * (reserved - min(limit, reserved)) / reserved


def table(named):
    """Lines for people; `named`: (kind, name, estimate) of every run that was asked to prove its limit."""
    estimates = [estimate for _, _, estimate in named]
    kinds = list(dict.fromkeys(kind for kind, _, _ in named))
    lines = [f"{'proofs':14} {'runs':>5} {'proven':>7} {'at peak':>8} {'not held':>9} {'not provable':>13} {'limit below reserved: median':>29} {'max':>6} {'proof s':>8}"]
    details = []
    for kind in kinds + (["all"] if len(kinds) > 1 else []):
        of_kind = [(name, estimate) for one, name, estimate in named if kind in (one, "all")]
        results = {"proven": 0, "proven_at_peak": 0, "disproven": 0, "other": 0}
        seconds = []
        for name, estimate in of_kind:
            proof = estimate.get("proof") or {}
            result = proof.get("result", "")
            results[result if result in results else "other"] += 1
            seconds += [one["wall_s"] for one in proof.get("runs", [])[:1]]
            if kind == "all" or len(kinds) == 1:
                details += list(words(name, estimate))
        below = [value for value in (below_peak_percent(estimate) for _, estimate in of_kind) if value is not None]
        lines.append(f"{kind:14} {len(of_kind):5d} {results['proven']:7d} {results['proven_at_peak']:8d} {results['disproven']:9d} {results['other']:13d} "
                     + (f"{statistics.median(below):27.1f} % {max(below):4.1f} %" if below else f"{'-':>29} {'-':>6}")
                     + (f" {statistics.median(seconds):8.1f}" if seconds else f" {'-':>8}"))
    lines += ["proven: a second run held the limit; at peak: it held the first run's peak, as the limit did not hold or was no lower;",
              "not held: the program takes what it is given, or runs differ: its need is the highest peak seen, unproven; not provable: see below.",
              f"limits below the peak: {sum(map(tried, estimates))} tried, {sum(map(held, estimates))} held"] + details
    return "\n".join(lines)


def words(name, estimate):
    """A line for each run that was not simply proven."""
    proof = estimate.get("proof") or {}
    result = proof.get("result", "")
    if result == "proven" or (result == "proven_at_peak" and not failed_first(estimate)):
        return
    if result in ("proven_at_peak", "disproven"):
        tried = "; ".join(f"{one['capacity_bytes'] / 2**20:.0f} MiB: " + ("held" if one["passed"] else one.get("error", "failed"))
                          for one in proof["runs"])
        yield f"  {name}: {result}: {tried}"
        return
    why = estimate.get("status") or "no estimate"
    if why == "complete":
        why = result or "no proof"
    yield f"  {name}: not provable: {why}"
