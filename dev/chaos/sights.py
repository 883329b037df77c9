"""Looks at everything that the judge compares: objects, pods, tables, requests, writes, what belongs to others.

Asks the API server, Prometheus and files directly, past the proxies that faults use. `run` takes a mark before a fault
and asks for everything since.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import requests

from chaos.judge import FOLLOW_THE_LOAD, Meanwhile, Pod, Requests, Served, Sight, Table, Write
from chaos.operators import ACCOUNT
from demo.scene import NAMESPACE, is_ready
from devcluster.apiclient import Json
from devcluster.objects import Objects
from speculative_operator.domain import names

ON_THE_WAY = frozenset({"Inspecting", "Downloading", "NoPods", "PodsNotReady", "ScaledToZero"})
"""Reasons of every new object, faults' own among them."""
CHANGING = {"create", "update", "patch", "delete", "deletecollection"}
OWNER_IN_PROMETHEUS = names.LABEL_DEPLOYMENT.replace(".", "_").replace("/", "_")


def table_of(text: str | None) -> Table | None:
    """The table of a file's text; None where it holds none."""
    try:
        found = json.loads(text or "")
        return Table(int(found["version"]), tuple((int(row[0]), int(row[1]), int(row[2])) for row in found["rows"]))
    except (ValueError, KeyError, TypeError, IndexError):
        return None


def conditions_of(body: Json) -> dict[str, tuple[str, str]]:
    """Type -> status and reason."""
    return {one["type"]: (one["status"], one["reason"]) for one in (body.get("status") or {}).get("conditions") or ()}


def identities(bodies: Iterable[Json], kind: str) -> dict[str, str]:
    """Objects, each with a text that any write to it changes."""
    metas = (body["metadata"] for body in bodies)
    return {f"{kind} {one['namespace']}/{one['name']}": f"{one['uid']}/{one['resourceVersion']}" for one in metas}


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment, as every record counts it."""

    tables: int
    told: int
    audit: int
    requests: int
    steps: Mapping[tuple[str, int], float]


class Observer:
    """Watches from its making on; `end` stops it."""

    def __init__(
        self, objects: Objects, prometheus: str, audit_log: Path, records: Path, allowed: Mapping[str, frozenset[int]]
    ):
        self._objects, self._prometheus, self._audit, self._records = objects, prometheus, audit_log, records
        self._allowed = allowed
        self._stopped = threading.Event()
        self._tables: list[tuple[str, Table]] = []
        self._told: list[tuple[str, str, str, str]] = []
        for work in (("configmaps", self._note_table), (names.PLURAL, self._note_conditions)):
            threading.Thread(target=self._follow, args=work, daemon=True).start()

    def end(self) -> None:
        self._stopped.set()

    def _follow(self, resource: str, note: Callable[[Json], None]) -> None:
        for body in self._objects.watch(resource, NAMESPACE, self._stopped):
            note(body)

    def _note_table(self, body: Json) -> None:
        meta = body.get("metadata") or {}
        owner = (meta.get("labels") or {}).get(names.LABEL_DEPLOYMENT)
        table = table_of((body.get("data") or {}).get(names.TABLE_KEY))
        if owner and table:
            self._tables.append((owner, table))

    def _note_conditions(self, body: Json) -> None:
        name = (body.get("metadata") or {}).get("name", "")
        self._told += [(name, kind, status, reason) for kind, (status, reason) in conditions_of(body).items()]

    # -- now

    def look(self, foreign: Mapping[str, str]) -> Sight:
        """Everything now; `foreign` as it is now."""
        bodies = {one["metadata"]["name"]: one for one in self._objects.list(names.PLURAL, NAMESPACE)}
        pods = [pod for pod in self._objects.list("pods", NAMESPACE, names.LABEL_DEPLOYMENT) if _serves(pod)]
        maps = self._objects.list("configmaps", NAMESPACE, names.LABEL_DEPLOYMENT)
        stored = {one["metadata"]["name"]: table_of((one.get("data") or {}).get(names.TABLE_KEY)) for one in maps}
        versions = self._versions()
        owned = self._children()
        served = {
            name: replace(
                _served(bodies[name], ks, [pod for pod in pods if _owner(pod) == name], stored),
                version_in_pods=versions.get(name),
                children=frozenset(owned[name]),
            )
            for name, ks in self._allowed.items()
            if name in bodies
        }
        return Sight(served, tuple(_pod(pod) for pod in pods if _owner(pod) in self._allowed), foreign)

    def _children(self) -> dict[str, set[str]]:
        """Owner -> `resource/name` of what it controls."""
        found: dict[str, set[str]] = defaultdict(set)
        for resource in ("deployments", "services", "configmaps", "networkpolicies"):
            for body in self._objects.list(resource, NAMESPACE, names.LABEL_DEPLOYMENT):
                meta = body["metadata"]
                for owner in meta.get("ownerReferences") or ():
                    found[owner["name"]].add(f"{resource}/{meta['name']}")
        return found

    def observed_at(self, name: str) -> str:
        """End of the window that an object's figures come from; empty where there are none."""
        status = self._objects.get(names.PLURAL, name, NAMESPACE).get("status") or {}
        return str((status.get("speculation") or {}).get("observedAt") or "")

    def _versions(self) -> dict[str, int]:
        """Version of the table that an object's pods run; none where they run several."""
        found: dict[str, set[int]] = defaultdict(set)
        for metric, value in self._ask(f'speculative_payload_table_version{{namespace="{NAMESPACE}"}}'):
            found[metric.get(OWNER_IN_PROMETHEUS, "")].add(int(value))
        return {name: versions.pop() if len(versions) == 1 else -1 for name, versions in found.items()}

    def _steps(self) -> dict[tuple[str, int], float]:
        query = f'sum by ({OWNER_IN_PROMETHEUS}, k) (speculative_payload_steps_total{{namespace="{NAMESPACE}"}})'
        return {
            (metric.get(OWNER_IN_PROMETHEUS, ""), int(metric.get("k", "0"))): value
            for metric, value in self._ask(query)
        }

    def _ask(self, query: str) -> list[tuple[dict[str, str], float]]:
        answer = requests.get(f"{self._prometheus}/api/v1/query", params={"query": query}, timeout=20)
        answer.raise_for_status()
        return [(one["metric"], float(one["value"][1])) for one in answer.json()["data"]["result"]]

    # -- since a mark

    def mark(self) -> Mark:
        return Mark(
            len(self._tables), len(self._told), self._audit.stat().st_size, self._records.stat().st_size, self._steps()
        )

    def since(self, mark: Mark) -> Meanwhile:
        """Everything that was since the mark."""
        tables: dict[str, set[Table]] = defaultdict(set)
        for owner, table in self._tables[mark.tables :]:
            tables[owner].add(table)
        steps: dict[str, dict[int, float]] = defaultdict(dict)
        for (owner, k), value in self._steps().items():
            steps[owner][k] = value - mark.steps.get((owner, k), 0.0)
        return Meanwhile(
            requests=self.requests(mark.requests),
            tables={owner: frozenset(found) for owner, found in tables.items()},
            steps=dict(steps),
            writes=tuple(writes_of(_lines(self._audit, mark.audit))),
        )

    def requests(self, offset: int) -> dict[str, Requests]:
        """What the load generator has recorded from `offset` bytes on."""
        found: dict[str, Requests] = {}
        for record in _lines(self._records, offset):
            got = found.get(record["target"], Requests())
            bad = bool(record["failed"])
            error = str(record.get("error") or f"status {record.get('status')}, {record.get('tokens')} tokens")
            first = got.first_error or (error if bad else "")
            found[record["target"]] = Requests(got.answered + (not bad), got.failed + bad, first)
        return found

    def told(self, mark: Mark, baseline: Mapping[str, Served]) -> list[str]:
        """Conditions that were otherwise than in `baseline` at some time since the mark, as `Type=Status Reason`."""
        found: dict[str, None] = {}
        for name, kind, status, reason in self._told[mark.told :]:
            was = baseline[name].conditions.get(kind) if name in baseline else None
            usual = name not in baseline and (status != "False" or reason in ON_THE_WAY)
            if kind not in FOLLOW_THE_LOAD and was != (status, reason) and not usual:
                found[f"{kind}={status} {reason}"] = None
        return list(found)


def writes_of(events: Iterable[Json]) -> list[Write]:
    """What the operator changed, of the events of an audit log."""
    found = []
    for event in events:
        mine = event.get("user", {}).get("username") == ACCOUNT and event.get("verb") in CHANGING
        if mine and event.get("responseStatus", {}).get("code", 500) < 400:
            what = event.get("objectRef", {})
            found.append(
                Write(event["verb"], what.get("namespace", ""), what.get("resource", ""), what.get("name", ""))
            )
    return found


def _lines(path: Path, offset: int) -> list[Any]:
    """Complete lines of JSON from `offset` bytes on; a first one that began before is left out."""
    with path.open("rb") as file:
        file.seek(offset)
        lines = [line for line in file.read().splitlines(keepends=True) if line.endswith(b"\n")]
    return [json.loads(line) for line in lines if line.startswith(b"{")]


def _owner(pod: Json) -> str:
    return str(pod["metadata"]["labels"].get(names.LABEL_DEPLOYMENT, ""))


def _serves(pod: Json) -> bool:
    """No Job's, and not about to go."""
    meta = pod["metadata"]
    return names.LABEL_JOB not in meta["labels"] and "deletionTimestamp" not in meta


def _pod(pod: Json) -> Pod:
    status = pod.get("status") or {}
    restarts = sum(one["restartCount"] for one in status.get("containerStatuses") or ())
    meta = pod["metadata"]
    return Pod(_owner(pod), meta["name"], meta["uid"], restarts, is_ready(pod))


def _served(body: Json, ks: frozenset[int], pods: list[Json], stored: Mapping[str, Table | None]) -> Served:
    status = body.get("status") or {}
    speculation = status.get("speculation") or {}
    told = json.dumps({"version": speculation.get("tableVersion"), "rows": speculation.get("table")})
    mounted = {table for pod in pods for table in _mounted(pod, stored)}
    current = status.get("observedGeneration") == body["metadata"]["generation"]
    one = mounted.pop() if len(mounted) == 1 else None
    return Served(ks, conditions_of(body), current, table_of(told), one, None)


def _mounted(pod: Json, stored: Mapping[str, Table | None]) -> Iterable[Table]:
    """Tables in the ConfigMaps that a pod mounts."""
    volumes = json.dumps(pod["spec"].get("volumes") or ())
    return [table for name, table in stored.items() if table and f'"name": "{name}"' in volumes]
