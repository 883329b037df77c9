"""The load generator (`load`) as a process under way in the cluster's network."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from demo.load import read_records
from demo.scene import ROOT, SceneError, service_url
from devcluster.cluster import Cluster


def evenly(seconds: float, rate: float, prompt: int, output: int) -> list[dict[str, float]]:
    """Arrivals at an even rate, with the tokens of each."""
    return [{"at": n / rate, "prompt": prompt, "output": output} for n in range(int(seconds * rate))]


class Sender:
    """Sends `arrivals` to every target from its making on; ended with its block, whatever became of it.

    `targets` maps the name in the records to the model asked for and the Service that serves it, or its address;
    `models` gives those whose three names are one. The plan and what ends it lie beside `out`, the file of records.
    """

    def __init__(
        self,
        cluster: Cluster,
        out: Path,
        targets: Mapping[str, tuple[str, str]],
        arrivals: Iterable[Mapping[str, float]],
        timeout: float = 120.0,
    ) -> None:
        self.out, self._enough = out, out.with_suffix(".enough")
        plan = out.with_suffix(".plan")
        for path in (out, self._enough):
            path.unlink(missing_ok=True)
        asked: dict[str, Any] = {
            "timeout": timeout,
            "targets": [
                {"name": name, "model": model, "url": service if "://" in service else service_url(cluster, service)}
                for name, (model, service) in targets.items()
            ],
            "arrivals": [{"number": number, **one} for number, one in enumerate(arrivals)],
        }
        plan.write_text(json.dumps(asked))
        argv = ["-m", "demo.load", "--plan", str(plan), "--out", str(out), "--until", str(self._enough)]
        self._process: subprocess.Popen[bytes] = cluster.inside(
            [sys.executable, *argv], env={"PYTHONPATH": str(ROOT / "dev")}
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    @property
    def sending(self) -> bool:
        """False once the last answer is there."""
        return self._process.poll() is None

    def records(self) -> list[dict[str, Any]]:
        """Complete records so far."""
        return read_records(self.out)

    def wait(self, seconds: float) -> list[dict[str, Any]]:
        """Wait for the last answer; all records. Raises SceneError where it does not come."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise SceneError(f"the last answers did not come within {seconds:.0f} s") from None
        if code:
            raise SceneError(f"the load generator failed with exit code {code}")
        return self.records()

    def finish(self, seconds: float) -> list[dict[str, Any]]:
        """Send nothing more, and wait for the answers."""
        self._enough.touch()
        return self.wait(seconds)

    def end(self) -> None:
        """End it now; harmless where it has ended."""
        if self.sending:
            self._process.terminate()
            self._process.wait(10)


def models(*names: str) -> dict[str, tuple[str, str]]:
    """Targets of objects whose model and Service bear their name."""
    return {name: (name, name) for name in names}
