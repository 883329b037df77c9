"""JSON from the API server, cut where somebody nested it without end. Used by `kube`, `errors` and `watches`.

The API server stores values that nest 10,000 levels deep wherever a definition allows any field. Parsing, comparing or
copying such a value raises RecursionError, at a depth that differs between releases of Python. Nothing that is real
nests a quarter as deep as DEEPEST; what lies deeper is left out, so that the rest of a list or a watch stays readable,
and `api.convert` refuses the object by name.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import Any

DEEPEST = 128
"""Most levels of nesting that are read."""
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_TOKEN = re.compile(_STRING.pattern + rb"|[\[\]{}]", re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEP = {**dict.fromkeys(b"[{", 1), **dict.fromkeys(b"]}", -1)}


def parse(data: bytes) -> Any:
    """The value in `data`, with null for each value below DEEPEST levels. Raises ValueError for what is not JSON."""
    return json.loads(shallow(data))


def shallow(data: bytes) -> bytes:
    """`data` itself where it nests at most DEEPEST levels, else with null for each value below them."""
    opened = data.count(b"{") + data.count(b"[")
    if opened <= DEEPEST or _depth(data) <= DEEPEST:
        return data
    parts, depth, start = [], 0, 0
    for token in _TOKEN.finditer(data):
        step = _STEP.get(data[token.start()], 0)
        if step > 0 and depth == DEEPEST:
            parts.append(data[start : token.start()] + b"null")
        elif step < 0 and depth == DEEPEST + 1:
            start = token.end()
        depth += step
    return b"".join((*parts, data[start:] if depth <= DEEPEST else b""))


def _depth(data: bytes) -> int:
    brackets = _STRING.sub(b"", data).translate(None, _NO_BRACKETS)
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0)
