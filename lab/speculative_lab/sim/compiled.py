"""How the simulator's loops are compiled: decorators, and what makes the cache on disk notice changed code.

Used by `step` and `kernel` alone, because importing it needs numba.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from types import CodeType, ModuleType
from typing import ParamSpec, TypeVar

import numba
import numpy as np

P = ParamSpec("P")
T = TypeVar("T")


def compiled(function: Callable[P, T]) -> Callable[P, T]:
    """Compile on first use, as a part of what calls it."""
    jitted: Callable[P, T] = numba.njit(error_model="numpy")(function)
    return jitted


def cached(function: Callable[P, T]) -> Callable[P, T]:
    """Compile on first use and keep the result beside the function's file or in the user's cache folder.

    Where neither can be written, the result lasts as long as the process.
    """
    try:
        jitted: Callable[P, T] = numba.njit(cache=True, error_model="numpy")(function)
    except RuntimeError:
        return compiled(function)
    return jitted


def fingerprint(modules: Iterable[ModuleType]) -> str:
    """Eight hexadecimal digits of all functions and numbers in `modules`.

    The cache on disk looks at the file of the cached function alone, and at the types of its arguments: a field of this
    name in one of them makes the code of other files count, too.
    """
    parts = []
    for module in modules:
        for name, value in sorted(vars(module).items()):
            code = getattr(getattr(value, "py_func", value), "__code__", None)
            if isinstance(code, CodeType):
                parts.append(f"{name} {code.co_code.hex()} {code.co_consts} {code.co_names}")
            elif isinstance(value, int | float | np.ndarray):
                parts.append(f"{name} {value}")
    return f"{zlib.crc32(chr(10).join(parts).encode()):08x}"
