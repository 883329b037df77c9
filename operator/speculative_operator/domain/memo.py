"""Keeps results of pure functions for one object, so that the next reconcile need not compute them again.

At rest every object is rendered, compared and looked up in the catalogue only to find that nothing differs. The shell
holds one memo for each object, `reconcile` asks it, and it goes with the object.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from hashlib import sha256
from typing import Any, TypeVar

_Result = TypeVar("_Result")


class Memo:
    """Results of this reconcile and of the one before, by key: a result is dropped when a whole reconcile has not asked
    for it."""

    def __init__(self) -> None:
        self._now: dict[Hashable, Any] = {}
        self._before: dict[Hashable, Any] = {}

    def begin(self) -> None:
        """Begins another reconcile: drops the results that the last one did not ask for."""
        self._before, self._now = self._now, {}

    def get(self, key: Hashable, compute: Callable[[], _Result]) -> _Result:
        """The result of `compute` for `key`, computed once. `key` names the function and holds everything that the
        result depends on; callers do not change a result."""
        if key not in self._now:
            self._now[key] = self._before[key] if key in self._before else compute()
        result: _Result = self._now[key]
        return result


def digest(value: object) -> bytes:
    """SHA-256 digest of `value`, a dataclass or plain data, by its `repr`."""
    return sha256(repr(value).encode("utf-8", "surrogatepass")).digest()
