"""The command line in small segments, in processes of its own that tests may kill or end:
`python -m tests.unit.weights.loopback fetch ...`."""

from __future__ import annotations

import functools
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from unittest import mock

from tests.unit.weights.shelf import BRISK

from speculative_operator.weights import __main__, command

ROOT = Path(__file__).resolve().parents[3]


def start(
    environment: Mapping[str, str], cache: Path, uri: str, *options: str, within: tuple[str, ...] = ()
) -> subprocess.Popen[str]:
    """`speculative-weights fetch` of a model, run by the program `within`."""
    arguments = ["fetch", "--cache", str(cache), "--verifier", uri, *options]
    return subprocess.Popen(
        [*within, sys.executable, "-m", "tests.unit.weights.loopback", *arguments],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": "operator:dev:.", "NO_PROXY": "*", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def forked(environment: Mapping[str, str], log: Path, arguments: Sequence[str]) -> BaseProcess:
    """The command line in a process that need not import anything anew. What it says goes to `log`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "speculative_operator.weights.hub"])
    process = context.Process(target=_run, args=(dict(environment), str(log), list(arguments)), daemon=True)
    process.start()
    return process


def _run(environment: dict[str, str], log: str, arguments: list[str]) -> None:
    os.environ.update(environment)
    with Path(log).open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.exit(main(arguments))


def main(arguments: Sequence[str] | None = None) -> int:
    """`speculative-weights` in small segments."""
    with mock.patch.object(command, "Limits", functools.partial(replace, BRISK)):
        return __main__.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
