"""Starting, signalling and waiting for the programs of containers.

``container`` starts a container's program here; ``actions`` runs commands inside it (exec probes, hooks).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SOURCE_ROOT = Path(__file__).resolve().parents[2]
_START_SECONDS = 30.0
_OUTPUT_BYTES = 4096
_NSENTER = shutil.which("nsenter") or "nsenter"
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


async def start(spec: Mapping[str, Any], spec_path: Path, output: int, namespace_fd: int) -> Program:
    """Start the program that a launcher spec describes in a network namespace, its output going to a file descriptor.
    Raises StartError."""
    _write(spec_path, spec)
    reading, writing = os.pipe()
    try:
        launcher = await asyncio.create_subprocess_exec(
            *_LAUNCHER,
            *(str(spec_path), str(writing), str(os.getpid()), str(namespace_fd)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(writing, namespace_fd),
            env={"PYTHONPATH": str(_SOURCE_ROOT)},
        )
    except BaseException as error:
        os.close(reading)
        if isinstance(error, OSError):
            raise StartError(f"launcher: {error}") from error
        raise
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
    """What the launcher says until the program runs or cannot; closes the descriptor.

    A reader of the loop, not a pipe transport: uvloop closes the descriptor of a pipe transport twice, and the second
    time it may be somebody else's.
    """
    loop = asyncio.get_running_loop()
    os.set_blocking(reading, False)
    said = bytearray()
    ended = loop.create_future()

    def read() -> None:
        chunk = os.read(reading, 65536)
        said.extend(chunk)
        if not chunk and not ended.done():
            ended.set_result(None)

    loop.add_reader(reading, read)
    try:
        await asyncio.wait_for(ended, _START_SECONDS)
    except TimeoutError:
        _end(launcher)
        return f"error not started after {_START_SECONDS:.0f} s"
    except asyncio.CancelledError:
        _end(launcher)
        raise
    finally:
        loop.remove_reader(reading)
        os.close(reading)
    return said.decode(errors="replace")


def _end(process: asyncio.subprocess.Process) -> None:
    """Kill a process of the node; the program of a launcher goes with it."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()


async def run_inside(
    pid: int, argv: list[str], env: Mapping[str, str], output_path: Path, seconds: float
) -> tuple[int, str]:
    """Run a command in the namespaces of a running program. Returns exit code and the head of its output.

    Through nsenter, because probes run often and the launcher costs ten times as much. `output_path` is a file that
    exists meanwhile. Raises StartError, and TimeoutError when the command takes longer than `seconds` (it is killed).
    """
    output = os.open(output_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        entering = await asyncio.create_subprocess_exec(
            *(_NSENTER, f"--target={pid}", "--mount", "--net", "--uts", "--pid", "--", *argv),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=dict(env),
        )
        try:
            async with asyncio.timeout(seconds):
                code = await entering.wait()
        finally:
            _end_with_children(entering)
        return code if code >= 0 else 128 - code, os.pread(output, _OUTPUT_BYTES, 0).decode(errors="replace")
    except OSError as error:
        raise StartError(f"{_NSENTER}: {error}") from error
    finally:
        os.close(output)
        _remove(output_path)


def _end_with_children(entering: asyncio.subprocess.Process) -> None:
    """nsenter waits outside for the command inside, which does not end with it."""
    if entering.returncode is not None:
        return
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{entering.pid}/task/{entering.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
    _end(entering)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
