"""Show one SpeculativeDeployment: its pair, its pods, the table with the load of now, the last decisions, and what it
waits for. With --watch, again whenever that changes."""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator

from speculative_operator.cli import cluster
from speculative_operator.cli.cluster import Cluster, Object, condition, mode, speculation
from speculative_operator.cli.errors import OK

EPILOG = """examples:
  speculative status qwen3-8b -n models
  speculative status qwen3-8b -n models --watch

exit status: 0 shown, 1 there is none of that name, or the cluster refused"""

WATCH_SECONDS = 2.0
_WAITED_FOR = (
    "Available", "RolloutHealthy", "WeightsReady", "PairCompatible", "MemoryFits", "MetricsAvailable",
    "TuningConverged",
)  # fmt: skip
_WIDTH = 24
"""Characters of the longest bar."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments; `main` calls it."""
    parser.add_argument("name", metavar="NAME", help="the SpeculativeDeployment")
    parser.add_argument(
        "-w", "--watch", action="store_true", help="show it again whenever it changes, until interrupted"
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="json: the object")
    cluster.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the view; the exit status. Raises CommandError."""
    at, shown = Cluster(arguments), ""
    while True:
        body = at.object(arguments.name)
        text = json.dumps(body) if arguments.output == "json" else cluster.plain("\n".join(view(body)))
        if text != shown:
            print(f"\n{text}" if shown else text, flush=True)
            shown = text
        if not arguments.watch:
            return OK
        time.sleep(WATCH_SECONDS)


def view(body: Object) -> Iterator[str]:
    """The lines of one object."""
    meta, status, seen = body["metadata"], body.get("status") or {}, speculation(body)
    ready = condition(body, "Ready")
    yield f"{meta['name']} in {meta['namespace']}: {_state(ready)}, mode {mode(body)}"
    yield from _pair(body)
    wanted = body["spec"].get("replicas", 1)
    yield f"  pods        {status.get('readyReplicas', 0)} of {wanted} ready"
    if seen.get("observedAt"):
        yield f"  load        {seen.get('concurrency', '?')} requests a step and pod"
        yield f"  speed       {_speed(seen)}"
    yield from _table(seen)
    yield from _decisions(status)
    yield from _waits(body)


def _state(found: Object) -> str:
    if not found:
        return "the operator has not looked at it yet"
    return f"{'ready' if found.get('status') == 'True' else 'not ready'} ({found.get('reason')})"


def _pair(body: Object) -> Iterator[str]:
    status = body.get("status") or {}
    pair, method = status.get("pair") or {}, speculation(body).get("method")
    yield f"  verifier    {pair.get('verifier') or body['spec']['verifier']['model']}"
    speculator = pair.get("speculator") or method
    if speculator:
        yield f"  speculator  {speculator}" + (f" ({method})" if method and method != speculator else "")
    progress = (status.get("weights") or {}).get("text")
    if progress and condition(body, "WeightsReady").get("status") != "True":
        yield f"  weights     {progress}"


def _speed(seen: Object) -> str:
    parts = [f"{seen['tpot']} per token" if seen.get("tpot") else ""]
    parts += [f"{seen['tpotOff']} without speculation" if seen.get("tpotOff") else ""]
    parts += [f"gain {seen['gain']} ({seen.get('gainRange', '')})" if seen.get("gain") else ""]
    parts += [f"{seen['acceptanceRate']} of draft tokens accepted" if seen.get("acceptanceRate") else ""]
    return ", ".join(part for part in parts if part) or "no figures yet"


def _table(seen: Object) -> Iterator[str]:
    """The table as a bar for each row, and where the load of now is."""
    rows = [row for row in seen.get("table") or () if isinstance(row, list) and len(row) == 3]
    if not rows:
        return
    off = ", waits for the speculator's return" if seen.get("hardOff") else ""
    yield f"  table       version {seen.get('tableVersion', '?')}{off}"
    now, most = _number(seen.get("concurrency")), max(1, *(k for _, _, k in rows))
    for first, last, k in rows:
        here = "  <- load now" if now is not None and first <= max(round(now), 1) <= last else ""
        bar = "█" * max(round(_WIDTH * k / most), 1 if k else 0)
        yield f"    {f'{first}-{last}':>9} requests  K {k:<2} {bar}{here}".rstrip()
    if seen.get("tries"):
        yield f"  trials      {seen['tries']}"


def _number(text: object) -> float | None:
    try:
        found = float(str(text))
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def _decisions(status: Object) -> Iterator[str]:
    found = (status.get("decisions") or ())[:3]
    if found:
        yield "  decisions"
    for one in found:
        change = f"{one['from']} -> {one.get('to', '')}" if one.get("from") else str(one.get("to", ""))
        yield f"    {str(one.get('time', ''))[:19]}  {one.get('reason', '')}: {change}"
        if one.get("message"):
            yield f"      {one['message']}"


def _waits(body: Object) -> Iterator[str]:
    """Conditions that are not as they should be, proposals and warnings: each with what the operator says of it."""
    status = body.get("status") or {}
    for one in status.get("conditions") or ():
        if one.get("status") == "False" and one.get("type") in _WAITED_FOR:
            yield f"  waits       {one['type']} {one.get('reason')}: {one.get('message', '')}"
    proposal = (status.get("rollout") or {}).get("proposal")
    if proposal:
        yield f"  proposes    {proposal.get('message', '')}"
        yield f"              speculative approve {body['metadata']['name']} -n {body['metadata']['namespace']}"
    for one in status.get("warnings") or ():
        yield f"  warning     {one.get('reason')}: {one.get('message')}"
