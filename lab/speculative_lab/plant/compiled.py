"""How the plant's loops are compiled. Their cache on disk lies in a folder named by the code of all of them."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numba
import numba.core.config

_OPTIONS: dict[str, Any] = {"cache": True, "error_model": "numpy", "_nrt": False}
P = ParamSpec("P")
T = TypeVar("T")

_HERE = Path(__file__).parent
_CODE = b"".join(
    (_HERE / name).read_bytes()
    for name in ("layout.py", "types.py", "texts.py", "steptime.py", "queueing.py", "replica.py")
)
setattr(numba.core.config, "CACHE_DIR", str(Path(tempfile.gettempdir()) / f"speculative-plant-{zlib.crc32(_CODE):08x}"))  # noqa: B010


def compiled(function: Callable[P, T]) -> Callable[P, T]:
    """Compiled on first use, and kept on disk. What is compiled allocates nothing, so that no array is counted."""
    jitted: Callable[P, T] = numba.njit(**_OPTIONS)(function)
    return jitted
