"""Services without iptables: which endpoints stand behind each service address, told to the forwarder process.

`table` is pure; ``agent`` feeds it from its informers and hands the result to a Forwarder.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_log = logging.getLogger(__name__)

Table = dict[str, list[str]]
_SOURCE_ROOT = Path(__file__).resolve().parents[2]


def table(services: Iterable[Mapping[str, Any]], slices: Iterable[Mapping[str, Any]]) -> Table:
    """``address:port`` -> endpoints ``address:port``, for cluster addresses; none without endpoints.

    Ready endpoints count; where none is ready, those that still serve while terminating, as kube-proxy does.
    """
    behind = _by_service(slices)
    found: Table = {}
    for service in services:
        meta, spec = service["metadata"], service["spec"]
        address = spec.get("clusterIP")
        if not address or address == "None":
            continue
        for port in spec.get("ports") or ():
            if port.get("protocol", "TCP") != "TCP":
                continue
            endpoints = _endpoints(behind.get((meta["namespace"], meta["name"]), ()), port.get("name") or "")
            if endpoints:
                found[f"{address}:{port['port']}"] = endpoints
    return found


def _by_service(slices: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for part in slices:
        name = (part["metadata"].get("labels") or {}).get("kubernetes.io/service-name")
        if name and part.get("addressType", "IPv4") == "IPv4":
            found.setdefault((part["metadata"]["namespace"], name), []).append(part)
    return found


def _endpoints(slices: Iterable[Mapping[str, Any]], port_name: str) -> list[str]:
    ready: set[str] = set()
    leaving: set[str] = set()
    for part in slices:
        numbers = [p["port"] for p in part.get("ports") or () if (p.get("name") or "") == port_name and p.get("port")]
        for endpoint in part.get("endpoints") or ():
            conditions = endpoint.get("conditions") or {}
            group = None
            if conditions.get("ready", True):
                group = ready
            elif conditions.get("serving") and conditions.get("terminating"):
                group = leaving
            if group is not None:
                group |= {f"{address}:{number}" for address in endpoint["addresses"][:1] for number in numbers}
    return sorted(ready or leaving)


class Forwarder:
    """The process that listens on service addresses; restarted should it ever end."""

    def __init__(self) -> None:
        self._table: Table = {}
        self._process: asyncio.subprocess.Process | None = None

    def set(self, fresh: Table) -> None:
        """Forward by this table from now on; open connections stay where they are."""
        if fresh != self._table:
            self._table = fresh
            self._send()

    def _send(self) -> None:
        if self._process is not None and self._process.stdin is not None and self._process.returncode is None:
            self._process.stdin.write(json.dumps(self._table).encode() + b"\n")

    async def run(self) -> None:
        """Keep the process running until cancelled."""
        while True:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "devcluster.node.forwarder", str(os.getpid())),
                stdin=asyncio.subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": str(_SOURCE_ROOT)},
            )
            self._send()
            code = await self._process.wait()
            _log.warning("the service forwarder ended with %s; starting it again", code)
            await asyncio.sleep(0.5)
