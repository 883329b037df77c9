"""The error of an object that cannot be served. Raised by `convert`, shown by shell as the condition SpecInvalid."""

from __future__ import annotations

import json


class SpecError(ValueError):
    """A value of the object that cannot be served; `str()` names field, value and remedy in one sentence."""

    def __init__(self, field: str, value: object, remedy: str) -> None:
        self.field = field
        self.value = value
        self.remedy = remedy
        super().__init__(f"{field} {describe_value(value)}: {remedy}")


def describe_value(value: object, limit: int = 120) -> str:
    """`is VALUE` as JSON, cut to `limit` characters; `is not set` for None."""
    if value is None:
        return "is not set"
    text = json.dumps(value, default=str, ensure_ascii=False)
    return f"is {text if len(text) <= limit else text[: limit - 3] + '...'}"
