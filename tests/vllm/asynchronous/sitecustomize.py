"""On PYTHONPATH of an engine, this has it schedule asynchronously where vLLM's CPU platform says that it need not.

Python imports a module of this name by itself. Used by `test_off`: on accelerators vLLM schedules so by default.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

PLATFORM = "vllm.platforms.cpu"


class _Finder(importlib.abc.MetaPathFinder):
    """Changes one method of one module as it is imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != PLATFORM:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        assert spec is not None
        loader: Any = spec.loader
        own = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            own(module)
            _change(module)

        loader.exec_module = exec_module
        return spec


def _change(module: Any) -> None:
    checked = module.CpuPlatform.check_and_update_config.__func__

    def check_and_update_config(cls: Any, config: Any) -> None:
        checked(cls, config)
        config.scheduler_config.async_scheduling = True

    module.CpuPlatform.check_and_update_config = classmethod(check_and_update_config)


sys.meta_path.insert(0, _Finder())
