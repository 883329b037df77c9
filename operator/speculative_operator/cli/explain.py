"""Explain one SpeculativeDeployment: why K is what it is, how fast each K is believed to be, and what to do next."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, astuple
from typing import Any

from speculative_operator.cli import cluster, terminal
from speculative_operator.cli.cluster import Cluster, Object, mode, number, skips, speculation
from speculative_operator.cli.commands import OK
from speculative_operator.cli.diagnosis import Finding, cause_of, faults_of, silence_of, warnings_of

EPILOG = """examples:
  speculative explain qwen3-8b -n models
  speculative explain qwen3-8b -n models -o json

exit status: 0 explained, 1 there is none of that name, or the cluster refused"""

MODES = {
    "Auto": "The operator chooses K from what it measures.",
    "Recommend": "The operator proposes a table and changes nothing: the table that serves is that of the start.",
    "Static": "The spec says K; the operator changes nothing.",
    "Disabled": "The model is served without a speculator, as the spec says.",
    "Paused": "The object is paused: the operator changes nothing until `speculative resume`.",
}

STATES = {
    "On": "Drafts are made at this load.",
    "Off": "K is 0 at this load; the speculator stays loaded.",
    "Removed": "The pods run without a speculator.",
    "Holding": "There is too little evidence to change anything: the table stays as it is.",
}

BASES = {
    "Measured": "Measured: blocks of steps at K and without the speculator, side by side in these pods.",
    "Estimated": "Estimated by the tuner's model: nobody measured pods without a speculator.",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments; `main` calls it."""
    parser.add_argument("name", metavar="NAME", help="the SpeculativeDeployment")
    terminal.add_format(parser, "every condition too")
    cluster.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the explanation; the exit status. Raises CommandError."""
    at = Cluster(arguments)
    body, silent = at.object_with_notes(arguments.name), at.operator_silent(time.time())
    if arguments.output in (terminal.JSON, terminal.YAML):
        text = terminal.format_document(summary(body, silent), arguments.output)
    else:
        text = "\n".join(explanation(body, time.time(), silent, wide=arguments.output == terminal.WIDE))
    terminal.write_coloured(sys.stdout, cluster.plain(text))
    return OK


def summary(body: Object, silent: float | None = None) -> dict[str, Any]:
    """The explanation of one object, for programs. `silent`: seconds since the operator's last sign of life, where that
    is too long ago."""
    seen = speculation(body)
    return {
        "name": body["metadata"]["name"],
        "namespace": body["metadata"].get("namespace"),
        "mode": mode(body),
        "k": seen.get("k"),
        "state": seen.get("state"),
        "load": seen.get("concurrency"),
        "gain": seen.get("gain"),
        "gainRange": seen.get("gainRange"),
        "gainBasis": seen.get("gainBasis"),
        "cause": asdict(cause_of(body)),
        "observedAt": seen.get("observedAt"),
        "problems": [asdict(one) for one in (*silence_of(body, silent), *faults_of(body))],
        "warnings": [asdict(one) for one in warnings_of(body)],
        "beliefs": _beliefs(body),
        "advice": [f"{label}: {text}" for label, text in _advice(body)],
    }


def explanation(body: Object, now: float = 0.0, silent: float | None = None, *, wide: bool = False) -> Iterator[str]:
    """Yield the lines of the explanation for one object at unix time `now`, which tells their age; `silent` as in
    `summary`."""
    seen, meta, chosen, cause = speculation(body), body["metadata"], mode(body), cause_of(body)
    yield f"{meta['name']} in {meta['namespace']}: K is {_k_text(body, seen, chosen)}{cluster.age_of(seen, now)}"
    yield f"  mode      {chosen}: {MODES.get(chosen, chosen)}"
    if seen.get("state") and chosen != "Disabled":
        yield f"  state     {seen['state']}: {STATES.get(seen['state'], '')}{_at_zero(body)}"
    if ((body.get("spec") or {}).get("speculation") or {}).get("adaptiveVerification") and chosen != "Disabled":
        yield "  verifies  only the drafts that vLLM estimates to be worth their time; others count as not accepted"
    for one in silence_of(body, silent):
        yield from _lines("but", one)
    yield from _lines("why", cause)
    if seen.get("gain"):
        of, ends = "of the table that waits, " if seen.get("speculatorRemoved") else "", seen.get("gainRange")
        yield f"  gain      {seen['gain']} tokens per second {of}over pods without a speculator (80 % interval {ends})"
        yield f"            {BASES.get(str(seen.get('gainBasis')), '')}"
    yield from _belief_lines(body)
    if seen.get("tries"):
        yield f"  trials    {seen['tries']}: other K, by requests, in that share of the steps; they may change K"
    yield from map("  {0[0]:<9} {0[1]}".format, _advice(body))
    yield from _further_findings(body, cause)
    for each in (body.get("status") or {}).get("conditions") or () if wide else ():
        yield f"  {each.get('type')} is {each.get('status')}, {each.get('reason')}: {each.get('message', '')}"


def _further_findings(body: Object, cause: Finding) -> Iterator[str]:
    """Yield the lines for the faults and warnings that are not the cause."""
    for one in faults_of(body):
        if (one.reason, one.message) != (cause.reason, cause.message):
            yield from _lines("also", one)
    for one in warnings_of(body):
        if one.reason != cause.reason:
            yield from _lines("warning", one)


def _at_zero(body: Object) -> str:
    """What becomes of the speculator while K is 0; empty in other states."""
    if speculation(body).get("state") != "Off":
        return ""
    return " Steps skip it." if skips(body) else " Where it has weights, each step still runs its first pass."


def _k_text(body: Object, seen: Object, chosen: str) -> str:
    """K as text, with what it counts."""
    if chosen == "Disabled" or seen.get("speculatorRemoved"):
        return "0: the pods have no speculator"
    k = str(seen.get("k") or "")
    if not k:
        return "not known yet"
    load = f", at {seen['concurrency']} requests a step and pod" if seen.get("concurrency") else ""
    if k == "0" and skips(body):
        return f"0 (off){load}"
    return f"{k} draft token{'' if k == '1' else 's'} per request and step{load}"


def _lines(label: str, one: Finding) -> Iterator[str]:
    yield f"  {label:<9} {one.reason}: {one.message}"
    if one.means:
        yield f"            {one.means}"
    if one.next:
        yield f"  {'next':<9} {one.next}"


def _beliefs(body: Object) -> list[dict[str, Any]]:
    """The speed of each K beside that of the active K at the present load; empty where load or memory are not known."""
    seen = speculation(body)
    load, k = number(seen.get("concurrency")), number(seen.get("k"))
    if load is None or load <= 0 or k is None or seen.get("speculatorRemoved"):
        return []
    from speculative_operator.cli.beliefs import beside, outlook_of

    view = outlook_of(body)
    found = beside(view, load, int(k)) if view is not None else {}
    return [{"k": one, "overActivePercent": [round(end, 1) for end in astuple(each)]} for one, each in found.items()]


def _belief_lines(body: Object) -> Iterator[str]:
    beliefs, active = _beliefs(body), str(speculation(body).get("k"))
    if beliefs:
        yield f"  beside    speed of a request over that at K {active}, at this load, with the 80 % interval"
    for one in beliefs:
        low, mid, high = one["overActivePercent"]
        off = "  off" if one["k"] == 0 and skips(body) else ""
        told = "  active" if str(one["k"]) == active else f"{mid:+6.1f} % ({low:+.0f} to {high:+.0f})"
        yield f"            K {one['k']:<2} {told}{off}"


def _advice(body: Object) -> Iterator[tuple[str, str]]:
    """Yield lines on the present K: what it costs, the rules of thumb, and below 1.5x why and what would help."""
    seen = speculation(body)
    load, k, gain = (number(str(seen.get(key) or "").strip("~%")) for key in ("concurrency", "k", "gain"))
    rate, each = number(seen.get("tokensPerSecond")), number(seen.get("costPer1kTokens"))
    if not load or k is None or load < 0.0 or seen.get("speculatorRemoved"):
        return
    from speculative_operator.cli import guidance
    from speculative_operator.cli.beliefs import beliefs_at, outlook_of, subject_of
    from speculative_operator.pairing.catalogue import load_packaged

    if rate and each and gain is not None and rate > 0.0:
        yield from guidance.cost(rate, each * rate * 3.6, gain)
    found, view = subject_of(body), outlook_of(body)
    if found is None or view is None or int(k) not in view.ks:
        return
    belief = beliefs_at(view, load)[view.ks.index(int(k))]
    if belief.gain.mid < guidance.BEYOND_PERCENT:
        return
    yield from guidance.rules(view, belief, load)
    if belief.gain.mid < guidance.CLEAR_PERCENT:
        yield from guidance.why(view, belief, load)
        yield from guidance.fewer(view, load, belief.gain.mid)
        yield from guidance.helps(found, load_packaged(), view.traffic, load)
