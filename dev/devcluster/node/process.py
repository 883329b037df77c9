"""Starting, signalling and waiting for the programs of containers, through the launcher.

``container`` starts a container's program here; ``actions`` runs commands inside it (exec probes, hooks).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SOURCE_ROOT = Path(__file__).resolve().parents[2]
_START_SECONDS = 30.0
_DRAIN_SECONDS = 0.2
_OUTPUT_BYTES = 4096
# The launcher needs nothing but the standard library: without the site packages it is up in a third of the time.
_LAUNCHER = (sys.executable, "-S", "-s", "-P", "-m", "devcluster.node.launcher")


class StartError(RuntimeError):
    """A program could not be started; the text says why."""


@dataclass
class Program:
    """A running program. `pid` is its process id as the node sees it: 1 in its own process table."""

    pid: int
    _launcher: asyncio.subprocess.Process

    async def wait(self) -> int:
        """Its exit code; 128 + signal number where it was killed."""
        return await self._launcher.wait()

    @property
    def running(self) -> bool:
        return self._launcher.returncode is None

    def signal(self, number: int) -> None:
        """Send a signal to the program; none to one that is gone."""
        if self.running:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def kill(self) -> None:
        """End the program and, as it is the first of its process table, everything it started."""
        self.signal(signal.SIGKILL)


async def start(spec: Mapping[str, Any], spec_path: Path, output: int, namespace_fd: int | None = None) -> Program:
    """Start the program that a launcher spec describes, its output going to a file descriptor. Raises StartError."""
    _write(spec_path, spec)
    reading, writing = os.pipe()
    extra = () if namespace_fd is None else (namespace_fd,)
    try:
        launcher = await asyncio.create_subprocess_exec(
            *_LAUNCHER,
            *(str(spec_path), str(writing), str(os.getpid()), *(str(fd) for fd in extra)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(writing, *extra),
            env={"PYTHONPATH": str(_SOURCE_ROOT)},
        )
    except OSError as error:
        os.close(reading)
        raise StartError(f"launcher: {error}") from error
    finally:
        os.close(writing)
    report = await _report(reading, launcher)
    lines = dict(line.split(" ", 1) for line in report.splitlines() if " " in line)
    if "error" in lines or "pid" not in lines:
        await launcher.wait()
        raise StartError(lines.get("error", f"the launcher ended with {launcher.returncode} and said nothing"))
    return Program(int(lines["pid"]), launcher)


def _write(path: Path, spec: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(json.dumps(spec))


async def _report(reading: int, launcher: asyncio.subprocess.Process) -> str:
    """What the launcher says until the program runs or cannot."""
    stream = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(reading, "rb"))
    try:
        return (await asyncio.wait_for(stream.read(), _START_SECONDS)).decode(errors="replace")
    except TimeoutError:
        launcher.kill()
        return f"error not started after {_START_SECONDS:.0f} s"
    finally:
        transport.close()


async def run_inside(
    pid: int, argv: list[str], env: Mapping[str, str], spec_path: Path, seconds: float
) -> tuple[int, str]:
    """Run a command in the namespaces of a running program. Returns exit code and the head of its output.

    Raises StartError, and TimeoutError when it takes longer than `seconds` (it is killed).
    """
    reading, writing = os.pipe()
    spec = {"argv": argv, "env": dict(env), "cwd": "/", "enter": pid}
    try:
        program = await start(spec, spec_path, writing)
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    stream = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(reading, "rb"))
    output = bytearray()
    drain = asyncio.create_task(_drain(stream, output))
    try:
        async with asyncio.timeout(seconds):
            code = await program.wait()
        # What the command left running may hold the pipe open for ever: its own output is in it by now.
        await asyncio.wait({drain}, timeout=_DRAIN_SECONDS)
    finally:
        drain.cancel()
        program.kill()
        transport.close()
        _remove(spec_path)
    return code, output.decode(errors="replace")


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


async def _drain(stream: asyncio.StreamReader, output: bytearray) -> None:
    while chunk := await stream.read(65536):
        output += chunk[: _OUTPUT_BYTES - len(output)]
