"""Kubernetes quantities (``500M``, ``8Gi``) to numbers, for sizes of memory volumes.

Own code because the client library's parser imports its whole model package: a second of start time and 60 MB.
Syntax: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

import re
from decimal import Decimal

_SMALL = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1)}
_DECIMAL = {suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)}
_BINARY = {f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)}
_QUANTITY = re.compile(r"(?P<number>[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)(?P<suffix>[A-Za-z]*)", re.ASCII)
_SUFFIXES = _SMALL | _DECIMAL | _BINARY


def parse(text: str) -> Decimal:
    """The number a quantity stands for, in its base unit. Raises ValueError."""
    found = _QUANTITY.fullmatch(text)
    if found is None or found["suffix"] not in _SUFFIXES:
        raise ValueError(f"{text!r} is not a quantity such as 500M, 2 or 8Gi")
    return Decimal(found["number"]) * _SUFFIXES[found["suffix"]]
