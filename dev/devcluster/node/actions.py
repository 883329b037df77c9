"""What probes and lifecycle hooks do: exec, httpGet, tcpSocket, sleep. Called by ``probes`` and ``container``."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from .process import Program, StartError, run_inside

_COUNT = itertools.count()


@dataclass(frozen=True)
class Target:
    """The running container an action is for. `address` is the pod's; `scratch` a directory for commands' output."""

    program: Program
    container: Mapping[str, Any]
    env: Mapping[str, str]
    address: str
    scratch: Path
    http: aiohttp.ClientSession


async def act(action: Mapping[str, Any], target: Target, seconds: float) -> tuple[bool, str]:
    """Carry an action out. Returns whether it succeeded, and if not a sentence about why."""
    try:
        async with asyncio.timeout(seconds):
            return await _act(action, target, seconds)
    except TimeoutError:
        return False, f"timed out after {seconds:g} s"
    except (OSError, aiohttp.ClientError, StartError, LookupError, ValueError) as error:
        return False, str(error) or type(error).__name__


async def _act(action: Mapping[str, Any], target: Target, seconds: float) -> tuple[bool, str]:
    if "exec" in action:
        path = target.scratch / f"exec-{next(_COUNT)}"
        code, output = await run_inside(target.program.pid, action["exec"]["command"], target.env, path, seconds)
        return code == 0, output.strip() or f"command ended with {code}"
    if "httpGet" in action:
        return await _http(action["httpGet"], target)
    if "tcpSocket" in action:
        where = action["tcpSocket"]
        _, writer = await asyncio.open_connection(
            where.get("host") or target.address, port_of(where["port"], target.container)
        )
        writer.close()
        return True, ""
    if "sleep" in action:
        await asyncio.sleep(float(action["sleep"]["seconds"]))
        return True, ""
    raise ValueError(
        f"action {sorted(action)} is not supported by the process node; use exec, httpGet, tcpSocket or sleep"
    )


async def _http(action: Mapping[str, Any], target: Target) -> tuple[bool, str]:
    host = action.get("host") or target.address
    port = port_of(action["port"], target.container)
    url = f"{action.get('scheme', 'HTTP').lower()}://{host}:{port}/{action.get('path', '/').lstrip('/')}"
    headers = {header["name"]: header["value"] for header in action.get("httpHeaders") or ()}
    async with target.http.get(url, headers=headers, allow_redirects=False) as response:
        await response.content.read(1024)
        return 200 <= response.status < 400, f"HTTP probe failed with statuscode: {response.status}"


def port_of(port: int | str, container: Mapping[str, Any]) -> int:
    """A port number, or the number of the container port of that name. Raises LookupError."""
    if isinstance(port, int) or str(port).isdigit():
        return int(port)
    for known in container.get("ports") or ():
        if known.get("name") == port:
            return int(known["containerPort"])
    raise LookupError(f"no container port named {port!r}")


def http_session() -> aiohttp.ClientSession:
    """A session for probes: a new connection each time and no certificate checks, as a kubelet's."""
    connector = aiohttp.TCPConnector(force_close=True, ssl=False, limit=64)
    return aiohttp.ClientSession(connector=connector, headers={"User-Agent": "kube-probe/process-node"})
