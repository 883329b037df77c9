"""Constraints on a speculator that is left to the operator: it stands in place of a method and all that a method has.

Gathered by `rules`, whose module tells how they are written.
"""

from __future__ import annotations

from speculative_operator.api.wire import Rule

_AUTO = "has(self.auto) && self.auto"


def _not_beside_auto(field: str, shown: str) -> Rule:
    return Rule(
        f"auto-without-{field.lower()}",
        f"!({_AUTO}) || has(self.method) || !has(self.{field})",
        f"{field} is {shown} but auto is true: remove {field}, which the catalogue sets; or remove auto and set method",
        field,
        "FieldValueForbidden",
    )


AUTO_RULES = (
    Rule(
        "method-or-auto",
        f"has(self.method) || ({_AUTO})",
        "method is not set and auto is not true: set auto: true to let the operator pick a speculator, or set method "
        "(and model, if the method needs weights of its own)",
        "method",
        "FieldValueRequired",
    ),
    Rule(
        "method-without-auto",
        f"!has(self.method) || !({_AUTO})",
        "method is {self.method} but auto is true: remove one of the two",
        "method",
        "FieldValueForbidden",
    ),
    _not_beside_auto("model", '"{self.model}"'),
    _not_beside_auto("revision", '"{self.revision}"'),
    _not_beside_auto("tensorParallelSize", "{#self.tensorParallelSize}"),
    _not_beside_auto("quantization", '"{self.quantization}"'),
    _not_beside_auto("parallelDrafting", "set"),
    _not_beside_auto("heterogeneousVocabulary", "set"),
    _not_beside_auto("promptLookup", "set"),
)
