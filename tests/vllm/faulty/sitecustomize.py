"""On PYTHONPATH of an engine, this has one part of the payload fail: the one that $SPECULATIVE_FAULT names, in every
worker or, as in `rest@1`, in the one of that rank.

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
from types import ModuleType
from typing import Any

FAULT, _, RANK = os.environ.get("SPECULATIVE_FAULT", "").partition("@")
if FAULT == "hear" and os.environ.get("VLLM_TARGET_DEVICE") == "cpu":
    runpy.run_path(str(Path(__file__).parents[1] / "asynchronous" / "sitecustomize.py"))


class InjectedError(Exception):
    """What the faulty part raises."""


def failing(own: Callable[..., Any]) -> Callable[..., Any]:
    """`own`, which fails in the rank that is meant."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if not RANK or importlib.import_module("torch").distributed.get_rank() == int(RANK):
            raise InjectedError(FAULT)
        return own(*args, **kwargs)

    return call


def _worker(module: Any) -> None:
    if FAULT == "why_not":
        module.why_not = failing(module.why_not)


def _unseen(module: Any) -> None:
    if FAULT == "made":
        module.made = failing(module.made)
    if FAULT == "requests":
        module.Unseen.requests = property(failing(module.Unseen.requests.fget))
    _methods("Unseen", "learn", "rest", "missed", "_inputs", "compute")(module)


def _methods(name: str, *methods: str) -> Callable[[Any], None]:
    """Has the method of that class fail, if it is one of these."""

    def change(module: Any) -> None:
        if FAULT in methods:
            changed = getattr(module, name)
            setattr(changed, FAULT, failing(getattr(changed, FAULT)))

    return change


CHANGES = {
    "speculative_worker": _worker,
    "speculative_off": _methods("Latch", "step", "mark", "hear", "count_drafts"),
    "speculative_unseen": _unseen,
    "speculative_blocks": _methods("Blocks", "k_for", "count"),
    "speculative_table": _methods("TableFile", "poll"),
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
