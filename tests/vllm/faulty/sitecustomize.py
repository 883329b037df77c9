"""On PYTHONPATH of an engine, this has one part of the payload fail: the one that $SPECULATIVE_FAULT names.

Python imports a module of this name by itself. Used by `test_off`.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

FAULT = os.environ.get("SPECULATIVE_FAULT", "")


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


def _off(module: Any) -> None:
    if FAULT == "latch":
        module.Latch.step = fail
    if FAULT == "told":
        module.told = fail


def _unseen(module: Any) -> None:
    if FAULT == "made":
        module.made = fail
    if FAULT in ("rest", "before_pass", "_run"):
        setattr(module.Unseen, FAULT, fail)


CHANGES = {"speculative_worker": _worker, "speculative_off": _off, "speculative_unseen": _unseen}


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
