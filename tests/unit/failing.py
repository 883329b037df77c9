"""One rule held to many cases by one test, which names every case that breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Case = TypeVar("Case")


def failing(check: Callable[[Case], None], cases: Iterable[Case], show: Callable[[Case], object] = str) -> list[str]:
    """The cases for which `check` fails, each with what the assertion said."""
    found = []
    for case in cases:
        try:
            check(case)
        except AssertionError as problem:
            found.append(f"{show(case)}: {problem}")
    return found
