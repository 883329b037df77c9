"""What the operator asked of the API server, by its audit log. Used by the tests that compare it with the roles."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from demo import scene
from generate.rbac import Permission
from speculative_operator.domain import names

USER = f"system:serviceaccount:{scene.OPERATOR_NAMESPACE}:{names.OPERATOR}"
READS = frozenset({"get", "list", "watch"})
Right = tuple[str, str, str]
"""Group, resource with its subresource, and verb."""


def events(log: Path, since: int = 0, about: str = "") -> Iterator[dict[str, Any]]:
    """What stands in the log after its first `since` bytes, in lines with `about`. An answer is there before its line
    is, and a line may be half written."""
    with log.open("rb") as lines:
        lines.seek(since)
        yield from (json.loads(line) for line in lines if about.encode() in line and line.endswith(b"\n"))


def requests(log: Path, since: int = 0) -> list[dict[str, Any]]:
    """Answered requests of the operator's ServiceAccount, after the first `since` bytes of the log."""
    found = events(log, since, USER)
    return [one for one in found if one["user"]["username"] == USER and "responseStatus" in one]


def describe_request(event: dict[str, Any]) -> str:
    """One request in words."""
    return f"{event['verb']} {event['requestURI'].partition('?')[0]}: {event['responseStatus'].get('code')}"


def pod_of(event: dict[str, Any]) -> str:
    """The pod whose token a request bore."""
    found: list[str] = event["user"].get("extra", {}).get("authentication.kubernetes.io/pod-name", [""])
    return found[0]


def denied(events: Iterable[dict[str, Any]]) -> list[str]:
    """Requests that were refused to the operator, by its roles or by an admission rule."""
    return sorted({describe_request(one) for one in events if one["responseStatus"].get("code") in (401, 403)})


def writes(events: Iterable[dict[str, Any]]) -> list[str]:
    """Requests that would change something, whatever became of them; those for the Lease aside."""
    found = (one for one in events if one["verb"] not in READS and "objectRef" in one)
    return [describe_request(one) for one in found if one["objectRef"].get("resource") != "leases"]


def used(events: Iterable[dict[str, Any]]) -> set[Right]:
    """The rights that the requests took. A server-side apply that makes an object takes `create` too."""
    found: set[Right] = set()
    for one in events:
        where = one.get("objectRef")
        if where is None:
            continue  # discovery, which is everybody's
        resource = "/".join(part for part in (where.get("resource"), where.get("subresource")) if part)
        verbs = {one["verb"]} | ({"create"} if one["responseStatus"].get("code") == 201 else set())
        found |= {(where.get("apiGroup", ""), resource, verb) for verb in verbs}
    return found


def rights_of(permissions: Iterable[Permission]) -> set[Right]:
    """What the roles grant."""
    return {(one.group, one.resource, verb) for one in permissions for verb in one.verbs}
