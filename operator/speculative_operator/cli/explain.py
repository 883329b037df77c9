"""Explain one SpeculativeDeployment: why K is what it is, what each K is believed to give, and what to do next."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from speculative_operator.cli import cluster, terminal
from speculative_operator.cli.cluster import Cluster, Object, mode, number, skips, speculation
from speculative_operator.cli.commands import OK, CommandError, parse_moment, seconds_of
from speculative_operator.cli.diagnosis import Finding, cause_of, faults_of, meaning_of, warnings_of
from speculative_operator.domain.decision import Interval

EPILOG = """examples:
  speculative explain qwen3-8b -n models
  speculative explain qwen3-8b -n models --at 2h
  speculative explain qwen3-8b -n models -o json

exit status: 0 explained, 1 there is none of that name, or the cluster refused"""

MODES = {
    "Auto": "The operator chooses K from what it measures.",
    "Recommend": "The operator proposes a table and changes nothing: the table that serves is that of the start.",
    "Static": "The spec says K; the operator changes nothing.",
    "Disabled": "The model is served without speculation, as the spec says.",
    "Paused": "The object is paused: the operator changes nothing until `speculative resume`.",
}

STATES = {
    "On": "Drafts are made at this load.",
    "Off": "K is 0 at this load; the speculator stays loaded.",
    "Removed": "The pods run without a speculator.",
    "Holding": "There is too little evidence to change anything: the table stays as it is.",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments; `main` calls it."""
    parser.add_argument("name", metavar="NAME", help="the SpeculativeDeployment")
    parser.add_argument(
        "--at", metavar="WHEN", default="", help="the decision that held then: 2h (ago), 2026-01-31T12:00:00Z"
    )
    terminal.add_format(parser, "every condition too")
    cluster.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the explanation; the exit status. Raises CommandError."""
    body = Cluster(arguments).object_with_notes(arguments.name)
    if arguments.at:
        found = decision_at(body, arguments.at)
        told = found if arguments.output in (terminal.JSON, terminal.YAML) else "\n".join(decision_lines(found))
    elif arguments.output in (terminal.JSON, terminal.YAML):
        told = summary(body)
    else:
        told = "\n".join(explanation(body, wide=arguments.output == terminal.WIDE))
    text = told if isinstance(told, str) else terminal.format_document(told, arguments.output)
    terminal.write_coloured(sys.stdout, cluster.plain(text))
    return OK


def summary(body: Object) -> dict[str, Any]:
    """The explanation of one object, for programs."""
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
        "cause": cause_of(body).to_json(),
        "problems": [one.to_json() for one in faults_of(body)],
        "warnings": [one.to_json() for one in warnings_of(body)],
        **_belief(body),
        "advice": [f"{label}: {text}" for label, text in _advice(body)],
    }


def explanation(body: Object, *, wide: bool = False) -> Iterator[str]:
    """Yield the lines of the explanation for one object."""
    seen, meta, chosen, cause = speculation(body), body["metadata"], mode(body), cause_of(body)
    yield f"{meta['name']} in {meta['namespace']}: K is {_k_text(body, seen, chosen)}"
    yield f"  mode      {chosen}: {MODES.get(chosen, chosen)}"
    if seen.get("state") and chosen != "Disabled":
        yield f"  state     {seen['state']}: {STATES.get(seen['state'], '')}{_at_zero(body)}"
    if ((body.get("spec") or {}).get("speculation") or {}).get("adaptiveVerification") and chosen != "Disabled":
        yield "  verifies  only the drafts that vLLM estimates to be worth their time; others count as not accepted"
    yield from _lines("why", cause)
    if seen.get("gain"):
        of = (
            "of the table that waits, over pods as they are" if seen.get("speculatorRemoved") else "over no speculation"
        )
        yield f"  gain      {seen['gain']} tokens per second {of}, at this load (80 % interval {seen.get('gainRange')})"
    yield from _belief_lines(body)
    if seen.get("tries"):
        yield f"  trials    {seen['tries']}: other K, by requests, in that share of the steps; they may change K"
    yield from map("  {0[0]:<9} {0[1]}".format, _advice(body))
    for one in faults_of(body):
        if (one.reason, one.message) != (cause.reason, cause.message):
            yield from _lines("also", one)
    for one in warnings_of(body):
        if one.reason != cause.reason:
            yield from _lines("warning", one)
    for one in (body.get("status") or {}).get("conditions") or () if wide else ():
        yield f"  {one.get('type')} is {one.get('status')}, {one.get('reason')}: {one.get('message', '')}"


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


def _belief(body: Object) -> dict[str, Any]:
    """The expected gain of each K at the present load, the lead of the active K, and the gain of off over the best
    other K; empty where load or memory are not known."""
    seen = speculation(body)
    load, k = number(seen.get("concurrency")), number(seen.get("k"))
    if load is None or load <= 0 or not (body.get("status") or {}).get("memory"):
        return {"beliefs": []}
    from speculative_operator.cli.beliefs import beliefs_at, lead_at, outlook_of
    from speculative_operator.tuner.report import off_beside_best

    view = outlook_of(body)
    if view is None:
        return {"beliefs": []}
    found: dict[str, Any] = {
        "beliefs": [{"k": one.k, "gainPercent": _ends(one.gain)} for one in beliefs_at(view, load)]
    }
    lead = lead_at(view, load, int(k)) if k is not None and not seen.get("speculatorRemoved") else None
    off = off_beside_best(view, load) if skips(body) else None
    found |= {"lead": {"over": lead.k, "percent": _ends(lead.percent)}} if lead is not None else {}
    told = {"over": off.over, "percent": round(off.percent, 1), "text": str(off)} if off is not None else None
    return found | ({"off": told} if told else {})


def _ends(percent: Interval) -> list[float]:
    return [round(value, 1) for value in (percent.low, percent.mid, percent.high)]


def _belief_lines(body: Object) -> Iterator[str]:
    belief, seen = _belief(body), speculation(body)
    if belief["beliefs"]:
        yield "  believed  tokens per second over no speculator at this load, with the 80 % interval"
    for one in belief["beliefs"]:
        low, mid, high = one["gainPercent"]
        here = "  off" if one["k"] == 0 and skips(body) else ""
        here += "  <- active" if str(one["k"]) == str(seen.get("k")) and not seen.get("speculatorRemoved") else ""
        yield f"            K {one['k']:<2} {mid:+6.1f} % ({low:+.0f} to {high:+.0f}){here}"
    if "lead" in belief:
        low, mid, high = belief["lead"]["percent"]
        over = f"K {belief['lead']['over']}, the best other"
        sure = "" if low > 0 else ": not certain, so further measurements may change K"
        yield f"  lead      {mid:+.1f} % over {over} ({low:+.0f} to {high:+.0f}){sure}"
    if "off" in belief:
        yield f"  off       {belief['off']['text']}, in steps side by side"


def _advice(body: Object) -> Iterator[tuple[str, str]]:
    """Yield lines on the present K: what it costs, the rules of thumb, and below 1.5x why and what would help."""
    seen = speculation(body)
    load, k, gain = (number(str(seen.get(key) or "").rstrip("%")) for key in ("concurrency", "k", "gain"))
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


def decision_at(body: Object, when: str) -> dict[str, Any]:
    """The decision that held at a time, of the ten that status keeps. Raises CommandError."""
    import time

    then = parse_moment(when, "--at", time.time())
    kept = [one for one in (body.get("status") or {}).get("decisions") or () if one.get("time")]
    found = next((one for one in kept if seconds_of(str(one["time"])) <= then), None)
    if found is None:
        first = f"; the oldest is of {kept[-1]['time']}" if kept else ""
        raise CommandError(f"status keeps no decision of that time{first}", "kubectl get events has others for an hour")
    return dict(found)


def decision_lines(found: Object) -> Iterator[str]:
    """Yield the lines for one decision with its figures."""
    yield f"{found.get('time')}  {found.get('reason')}: {found.get('from', '')} -> {found.get('to', '')}"
    yield f"  why       {found.get('message', '')}"
    means = meaning_of(found.get("reason"))
    if means:
        yield f"            {means}"
    for key, value in (found.get("numbers") or {}).items():
        yield f"  {key:<20} {value}"
