"""The emulator as a process of its own on the loopback address, for contract tests and the load script."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import requests
from tests.ports import free_port

MODEL, DRAFT = "Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B"
ROOT = Path(__file__).parents[2]
SOURCES = os.pathsep.join(str(ROOT / part) for part in ("operator", "lab"))
"""What PYTHONPATH names where an emulator is to start."""
START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Emulator:
    """A running emulator."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def metric(self, name: str, labels: str = "") -> float:
        """Value of one series, by its name without `vllm:`; 0 when it is absent."""
        for line in requests.get(f"{self.url}/metrics", timeout=5).text.splitlines():
            if line.startswith(f"vllm:{name}{{") and labels in line:
                return float(line.rsplit(" ", 1)[1])
        return 0.0

    def complete(self, timeout: float = 30.0, **body: object) -> requests.Response:
        """POST to /v1/completions."""
        return requests.post(f"{self.url}/v1/completions", json={"prompt": [1, 2, 3], **body}, timeout=timeout)


def command(*words: str) -> list[str]:
    """The command line of the emulator with these arguments."""
    return [sys.executable, "-m", "speculative_lab.emulator", *words]


def environment(**more: str) -> dict[str, str]:
    """This environment, the package on the path, no time for loading."""
    return {**os.environ, "EMULATOR_LOAD_SECONDS": "0", "PYTHONPATH": SOURCES, **more}


@contextlib.contextmanager
def emulator(*flags: str, **variables: str) -> Iterator[Emulator]:
    """A healthy emulator of MODEL with these flags; ended with the block, if it still runs then."""
    port = free_port()
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "log"
        words = ("serve", MODEL, "--host", "127.0.0.1", "--port", str(port), "--max-model-len", "4096", *flags)
        with log.open("wb") as sink:
            process = subprocess.Popen(command(*words), env=environment(**variables), stderr=sink)
        try:
            _until_healthy(f"http://127.0.0.1:{port}", process, log)
            yield Emulator(f"http://127.0.0.1:{port}", process, log)
        finally:
            process.terminate()
            process.wait(15)


def _until_healthy(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the emulator ended with {process.returncode}: {log.read_text()}")
        with contextlib.suppress(requests.ConnectionError):
            if requests.get(f"{url}/health", timeout=5).status_code == 200:
                return
        time.sleep(0.05)
    raise RuntimeError(f"the emulator is not healthy after {START_SECONDS:g} s: {log.read_text()}")
