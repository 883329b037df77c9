"""What pure functions returned for one object lately: the same at the next reconcile at no cost.

At rest every object is rendered, compared and looked up in the catalogue only to find that nothing differs. The shell
holds one memo for each object, `reconcile` asks it, and it goes with the object.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from hashlib import sha256
from typing import Any, TypeVar

_Result = TypeVar("_Result")


class Memo:
    """Results of this reconcile and of the one before, by what was asked: nothing that is asked for at rest is ever
    dropped, and nothing that nobody asks for stays."""

    def __init__(self) -> None:
        self._now: dict[Hashable, Any] = {}
        self._before: dict[Hashable, Any] = {}

    def begin(self) -> None:
        """Another reconcile begins: drops what the last one did not ask for."""
        self._before, self._now = self._now, {}

    def get(self, key: Hashable, compute: Callable[[], _Result]) -> _Result:
        """What `compute` returned for `key`. `key` names the function and holds all that the result depends on; callers
        do not change a result."""
        if key not in self._now:
            self._now[key] = self._before[key] if key in self._before else compute()
        result: _Result = self._now[key]
        return result


def digest(value: object) -> bytes:
    """What tells the `value` of a dataclass or of plain data from others."""
    return sha256(repr(value).encode("utf-8", "surrogatepass")).digest()
