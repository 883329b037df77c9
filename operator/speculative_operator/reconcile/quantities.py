"""Kubernetes quantities by value: the API server writes `1000m` as `1` and `1024Mi` as `1Gi`. Used by `drift`."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Any

_FORM = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|n|u|[eE][+-]?[0-9]{1,3})?")
_SUFFIX = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
}


def quantity(value: Any) -> Decimal | None:
    """The number that a quantity stands for; None for a value that is no quantity."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    form = _FORM.fullmatch(str(value))
    if form is None or len(form.group()) > 64:
        return None
    number, suffix = form.group(1), form.group(2) or ""
    try:
        return Decimal(number) * _SUFFIX[suffix] if suffix in _SUFFIX else Decimal(number + suffix)
    except InvalidOperation:
        return None
