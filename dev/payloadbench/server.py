"""Real engines on loopback for measurements: started, awaited, stopped, and asked what they cost the processor.

Called by `measure` and `off`. Flags and environment are those of `realengine.serving`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from realengine import paths, serving
from realengine.image import seed

PAYLOAD = Path(
    os.environ.get("SPECULATIVE_PAYLOAD") or paths.ROOT / "operator" / "speculative_operator" / "payload"
).resolve()
"""What pods are given; another folder where a release is proven that it does not name."""
STEADY = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "PYTHONHASHSEED": "0"}
"""Variables of engines that are compared: large pages, and no luck in hashes."""
START_SECONDS = 900.0
STOP_SECONDS = 30.0


class ServerError(RuntimeError):
    """An engine that does not start; the message ends with the end of its log."""


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def write_table(path: Path, version: int, rows: Sequence[Sequence[int]]) -> None:
    """Put a table in the place of the one there, at once, as the kubelet does."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps({"version": version, "rows": list(map(list, rows))}))
    new.rename(path)


def schedule(rows: Sequence[Sequence[int]], max_k: int, draft: Path) -> list[str]:
    """Flags of a draft model under a boot schedule."""
    config = {
        "method": "draft_model", "model": str(draft), "num_speculative_tokens": max_k,
        "num_speculative_tokens_per_batch_size": list(map(list, rows)),
    }  # fmt: skip
    return ["--speculative-config", json.dumps(config)]


class Server:
    """One engine as a context: it serves within, and is gone after."""

    def __init__(
        self,
        python: Path,
        home: Path,
        flags: Sequence[str],
        variables: Mapping[str, str],
        verifier: Path | None = None,
        within: float = START_SECONDS,
    ) -> None:
        self._within = within
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = home / "engine.log"
        home.mkdir(parents=True, exist_ok=True)
        self._argv = serving.argv(python, verifier or paths.models() / "target", self.port, flags)
        # this project's own PYTHONPATH would bring its packages into the engine
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self._environment = {**inherited, **serving.environment(home), **variables}
        seed(python.parents[1], self._environment["VLLM_CACHE_ROOT"])
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Server:
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                self._argv, env=self._environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            self._await()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _await(self) -> None:
        assert self._process is not None
        until = time.monotonic() + self._within
        while time.monotonic() < until and self._process.poll() is None:
            try:
                urllib.request.urlopen(f"{self.url}/health", timeout=5).close()  # noqa: S310  (loopback)
            except (urllib.error.URLError, OSError):
                time.sleep(0.5)
            else:
                return
        end = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
        raise ServerError(f"the engine did not start within {self._within:.0f} s; the end of {self.log}:\n{end}")

    def _stop(self) -> None:
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            print(f"engine {process.pid} did not end; killing its group", file=sys.stderr)
        # the engine's other processes are of its session; none is left behind
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
