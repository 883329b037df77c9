"""Kubernetes quantities (``1500m``, ``8Gi``) to numbers, for resourceFieldRef and sizes of memory volumes.

Own code because the client library's parser imports its whole model package: a second of start time and 60 MB.
Syntax: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation

_SMALL = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1)}
_DECIMAL = {suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)}
_BINARY = {f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)}
_SUFFIXES = _SMALL | _DECIMAL | _BINARY


def parse(text: str) -> Decimal:
    """The number a quantity stands for, in its base unit (cores, bytes, counts). Raises ValueError."""
    number = text.rstrip("numkMGTPEi")
    suffix = text[len(number) :]
    try:
        return Decimal(number) * _SUFFIXES[suffix]
    except (InvalidOperation, KeyError) as error:
        raise ValueError(f"{text!r} is not a quantity such as 500m, 2 or 8Gi") from error


def in_units(text: str, divisor: str = "1") -> int:
    """A quantity in units of `divisor`, rounded up as resourceFieldRef does. Raises ValueError."""
    unit = parse(divisor) if divisor not in ("", "0") else Decimal(1)
    return math.ceil(parse(text) / unit)
