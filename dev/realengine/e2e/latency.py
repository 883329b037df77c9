"""Where the seconds between a change of the spec and a changed K went, from the API server's own record. Pure.

Every step leaves an exact moment: the audit log has when each request came and was answered, the node leaves the time
of the file it wrote, the payload logs when a table came into force, the engine's counters show the first step with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from demo.figures import unix
from speculative_operator.domain import names


@dataclass(frozen=True, slots=True)
class Call:
    """One write that the API server answered. Unix seconds."""

    who: str
    resource: str
    name: str
    received: float
    answered: float


@dataclass(frozen=True, slots=True)
class Split:
    """One change, in seconds. `operator` is what it took between being told and its last write, without the server's
    share; `counted` the whole, until the engine's counters showed the new K."""

    operator: float
    server: float
    node: float
    engine: float
    total: float
    counted: float


def calls(lines: Iterable[str]) -> list[Call]:
    """The successful writes of an audit log that matter here, in order."""
    found = []
    for line in lines:
        if '"verb":"patch"' not in line and '"verb":"update"' not in line:
            continue
        call = _call(json.loads(line))
        if call is not None:
            found.append(call)
    return sorted(found, key=lambda call: call.answered)


def _call(event: dict[str, Any]) -> Call | None:
    target = event.get("objectRef") or {}
    wanted = target.get("resource") in ("configmaps", "pods", names.PLURAL) and not target.get("subresource")
    if not wanted or (event.get("responseStatus") or {}).get("code") != 200:
        return None
    who = str(event["user"]["username"]).rpartition(":")[2]
    received, answered = unix(event["requestReceivedTimestamp"]), unix(event["stageTimestamp"])
    return Call(who, str(target["resource"]), str(target.get("name", "")), received, answered)


def split(
    every: Iterable[Call], name: str, changed: float, written: float, applied: float, counted: float
) -> Split | None:
    """The parts of one change. `changed` is a moment just before it was sent, `written` the time of the node's file,
    `applied` when it came into force in the engine, `counted` when the counters showed it. None when the audit log
    lacks a part of it."""
    later = [call for call in every if call.received >= changed and call.answered <= written + 0.001]
    edit = next((call for call in later if call.resource == names.PLURAL), None)
    ours = [call for call in later if call.who == names.OPERATOR]
    tables = (call for call in ours if call.resource == "configmaps" and call.name.startswith(f"{name}-table"))
    table = next(tables, None)
    poke = next((call for call in ours if call.resource == "pods"), None)
    if edit is None or table is None:
        return None
    last = poke or table
    server = table.answered - table.received + (last.answered - last.received if poke else 0.0)
    return Split(
        operator=last.answered - edit.answered - server,
        server=server,
        node=written - last.answered,
        engine=applied - written,
        total=applied - edit.answered,
        counted=counted - edit.answered,
    )
