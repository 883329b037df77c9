"""What every wire type is made of: the base model, CEL rules, scalar types with their own remedy, and the error of
an object that cannot be served.

Every other module of `api` is written with it. `convert` raises the error, shell shows it as the condition SpecInvalid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from speculative_operator.api import cel

VALIDATIONS = "x-kubernetes-validations"


class Wire(BaseModel):
    """A JSON object of the API: camelCase outside, frozen, unknown fields refused."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True, use_attribute_docstrings=True)


@dataclass(frozen=True, slots=True)
class Rule:
    """One constraint that the API server checks. Its message names field, value and remedy.

    `text` may hold CEL expressions in braces: "{self.method}" gives a string, "{#self.k}" a whole number.
    """

    id: str
    cel: str
    text: str
    field: str = ""
    """Path of the field at fault, from the object that the rule sits on; empty: that object itself."""
    reason: str = "FieldValueInvalid"
    among: str = ""
    """CEL list of what breaks the rule; `text` then speaks of its first item, as `r`."""

    def schema(self) -> dict[str, str]:
        """The entry of x-kubernetes-validations."""
        entry = {"rule": self.cel, "reason": self.reason}
        if self.among:
            entry["messageExpression"] = f"{self.among}.map(r, {concatenation(self.text)})[0]"
        elif "{" in self.text:
            entry["messageExpression"] = concatenation(self.text)
        else:
            entry["message"] = self.text
        if self.field:
            entry["fieldPath"] = f".{self.field}"
        return entry


def concatenation(text: str) -> str:
    """CEL expression of a text with CEL expressions in braces."""
    parts = []
    for index, part in enumerate(re.split(r"[{}]", text)):
        if index % 2:
            parts.append(number(part[1:]) if part.startswith("#") else part)
        elif part:
            parts.append(literal(part))
    return " + ".join(parts)


def number(cel: str, digits: int = 5) -> str:
    """CEL expression of a whole number's last `digits` digits as text.

    Not `string(n)`: the API server cannot bound its length and refuses any message that it is joined to as too costly.
    """
    parts = []
    for place in (10**power for power in reversed(range(digits))):
        at = f"{cel} / {place} % 10" if place > 1 else f"{cel} % 10"
        digit = f"'0123456789'.substring({at}, {at} + 1)"
        parts.append(digit if place == 1 else f"({cel} >= {place} ? {digit} : '')")
    return " + ".join(parts)


def literal(text: str) -> str:
    """A CEL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def with_rules(*rules: Rule) -> dict[str, Any]:
    """For `json_schema_extra` of a field."""
    return {VALIDATIONS: [rule.schema() for rule in rules]}


def config_with_rules(*rules: Rule) -> ConfigDict:
    """Configuration of a model with rules."""
    return ConfigDict(json_schema_extra=with_rules(*rules))


@dataclass(frozen=True, slots=True)
class Text:
    """Metadata of a string type: the form it must have, in words when it has not."""

    pattern: str
    remedy: str
    limit: int
    cel: str = ""
    """What the pattern cannot say of `self`, a value that matches it."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._validate, handler(source))

    def _validate(self, value: str) -> str:
        fits = len(value) <= self.limit and re.fullmatch(self.pattern, value)
        if not fits or (self.cel and not cel.evaluate(self.cel, self=value)):
            raise PydanticCustomError("remedy", "{remedy}", {"remedy": self.remedy})
        return value

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        matches = f"self.matches({literal(f'^({self.pattern})$')})"
        rule = f"{matches} && {self.cel}" if self.cel else matches
        return {
            **handler(schema),
            "maxLength": self.limit,
            VALIDATIONS: [{"rule": rule, "message": self.remedy, "reason": "FieldValueInvalid"}],
        }


class SpecError(ValueError):
    """A value of the object that cannot be served; `str()` names field, value and remedy in one sentence."""

    def __init__(self, field: str, value: object, remedy: str) -> None:
        self.field = field
        self.value = value
        self.remedy = remedy
        super().__init__(f"{field} {describe_value(value)}: {remedy}")


class RuleError(SpecError):
    """A rule of the API that the object breaks; `message` names field, value and remedy."""

    def __init__(self, path: str, field: str, value: Any, message: str) -> None:
        self.field = ".".join(filter(None, (path, field)))
        for part in filter(None, field.split(".")):
            value = value.get(part) if isinstance(value, Mapping) else None
        if message.startswith(f"{field} "):
            super().__init__(self.field, value, message.partition(": ")[2])
            self.args = (f"{path}.{message}".lstrip("."),)
        else:
            super().__init__(self.field, value, message)


def describe_value(value: object, limit: int = 120) -> str:
    """`is VALUE` as JSON, cut to `limit` characters; `is not set` for None."""
    if value is None:
        return "is not set"
    text = json.dumps(value, default=str, ensure_ascii=False)
    return f"is {text if len(text) <= limit else text[: limit - 3] + '...'}"


def phrase(names: Sequence[str]) -> str:
    """Names, for a sentence."""
    *some, last = names
    return f"{', '.join(some)} and {last}" if some else last
