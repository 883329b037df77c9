"""Explain one SpeculativeDeployment: why K is what it is, what every condition means, and what to do next."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from speculative_operator.cli import cluster
from speculative_operator.cli.cluster import Cluster, Object, mode, speculation
from speculative_operator.cli.errors import OK
from speculative_operator.domain.reasons import EXPLANATIONS, Reason

EPILOG = """examples:
  speculative explain qwen3-8b -n models

exit status: 0 explained, 1 there is none of that name, or the cluster refused"""

MODES = {
    "Auto": "The operator chooses K from what it measures.",
    "Recommend": "The operator proposes a table and changes nothing: the table that serves is that of the start.",
    "Static": "The spec says K; the operator changes nothing.",
    "Off": "The model is served without speculation, as the spec says.",
    "Paused": "The object is paused: the operator changes nothing until `speculative resume`.",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments; `main` calls it."""
    parser.add_argument("name", metavar="NAME", help="the SpeculativeDeployment")
    cluster.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the explanation; the exit status. Raises CommandError."""
    print(cluster.plain("\n".join(explanation(Cluster(arguments).object(arguments.name)))))
    return OK


def explanation(body: Object) -> Iterator[str]:
    """The lines for one object."""
    seen, status = speculation(body), body.get("status") or {}
    chosen = mode(body)
    yield f"{body['metadata']['name']}: K is {seen.get('k') or 'not known yet'}, state {seen.get('state', 'unknown')}"
    yield f"  {MODES.get(chosen, chosen)}"
    if seen.get("message"):
        yield f"  Last decision ({seen.get('reason')}): {seen['message']}."
        yield from _means(seen.get("reason"))
    if seen.get("gain"):
        yield f"  At this load speculation gains {seen['gain']} (80 % interval {seen.get('gainRange')})."
    if seen.get("tries"):
        yield f"  Trials go on, so this may change: {seen['tries']}."
    for one in status.get("conditions") or ():
        if (one.get("status") == "False" and one.get("type") != "Progressing") or _is_waited_for(one):
            yield f"{one.get('type')} is {one.get('status')}, {one.get('reason')}: {one.get('message', '')}"
            yield from _means(one.get("reason"))
    for one in status.get("warnings") or ():
        yield f"Warning {one.get('reason')}: {one.get('message')}"


def _is_waited_for(found: Object) -> bool:
    """True for what the operator does not know yet, where K depends on it."""
    return found.get("status") == "Unknown" and found.get("type") in ("MetricsAvailable", "TuningConverged")


def _means(word: object) -> Iterator[str]:
    reason = next((one for one in Reason if one.value == word), None)
    if reason is not None and EXPLANATIONS.get(reason):
        yield f"    {EXPLANATIONS[reason]}"
