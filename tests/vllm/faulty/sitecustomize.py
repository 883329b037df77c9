"""On PYTHONPATH of an engine, this has one part of the payload fail: the one that $SPECULATIVE_FAULT names.

Python imports a module of this name by itself, and only one: where scheduling is to be asynchronous too, that is asked
for from here. Used by `test_off`.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

FAULT = os.environ.get("SPECULATIVE_FAULT", "")
if FAULT == "to_send":
    runpy.run_path(str(Path(__file__).parents[1] / "asynchronous" / "sitecustomize.py"))


class InjectedError(Exception):
    """What the faulty part raises."""


def fail(*_: Any, **__: Any) -> Any:
    raise InjectedError(FAULT)


def _worker(module: Any) -> None:
    if FAULT in ("rests", "why_not"):
        setattr(module, FAULT, fail)
    if FAULT == "sample":
        module.any = fail  # the builtin's name in that module
    if FAULT in ("is_tensor", "empty"):
        own = module.change

        def change(runner: Any, torch: Any) -> None:
            parts = {"is_tensor": torch.is_tensor, "empty": torch.empty, FAULT: fail}
            own(runner, SimpleNamespace(int64=torch.int64, **parts))

        module.change = change


def _unseen(module: Any) -> None:
    if FAULT == "made":
        module.made = fail
    if FAULT == "requests":
        module.Unseen.requests = property(fail)
    _methods("Unseen", "rest", "before_pass", "_run")(module)


def _off(module: Any) -> None:
    if FAULT == "told":
        module.told = fail
    _methods("Latch", "step", "to_send", "count_drafts")(module)


def _methods(name: str, *methods: str) -> Callable[[Any], None]:
    """Has the method of that class fail, if it is one of these."""

    def change(module: Any) -> None:
        if FAULT in methods:
            setattr(getattr(module, name), FAULT, fail)

    return change


CHANGES = {
    "speculative_worker": _worker,
    "speculative_off": _off,
    "speculative_unseen": _unseen,
    "speculative_blocks": _methods("Blocks", "k_for", "count"),
    "speculative_table": _methods("TableFile", "due", "poll"),
    "speculative_telemetry": _methods("Meter", "scheduling", "scheduled", "finished"),
}


class _Finder(importlib.abc.MetaPathFinder):
    """Changes modules as they are imported, before the last line of the worker's has run."""

    def __init__(self) -> None:
        self._within: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in CHANGES or fullname in self._within:
            return None
        self._within.add(fullname)
        spec = importlib.util.find_spec(fullname)
        assert spec is not None
        loader: Any = spec.loader

        def exec_module(module: ModuleType) -> None:
            source = loader.get_source(fullname).removesuffix("install()\n")
            exec(compile(source, fullname, "exec"), module.__dict__)
            CHANGES[fullname](module)
            if hasattr(module, "install"):
                module.install()

        loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, _Finder())
