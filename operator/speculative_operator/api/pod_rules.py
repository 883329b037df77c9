"""Constraints on the parts of a pod that the spec may hold, as CEL for the API server. A part of `rules`."""

from __future__ import annotations

from speculative_operator.api.wire import Rule, literal
from speculative_operator.domain import names

ENV_RULES = (
    Rule(
        "env-one-value",
        "!(has(self.value) && has(self.valueFrom))",
        'env "{self.name}" has value "{self.value}" and also valueFrom: keep one of the two',
        "value",
    ),
    Rule(
        "env-reserved",
        "!self.name.startsWith('SPECULATIVE_')",
        'env is named "{self.name}" but the operator owns names that begin with SPECULATIVE_: use another name',
        "name",
        "FieldValueForbidden",
    ),
)
_SOURCES = "[has(self.configMapKeyRef), has(self.secretKeyRef), has(self.fieldRef), has(self.resourceFieldRef)]"
SOURCE_RULES = (
    Rule(
        "env-source-one",
        f"{_SOURCES}.filter(given, given).size() == 1",
        f"valueFrom names {{#{_SOURCES}.filter(given, given).size()}} sources: "
        "name exactly one of configMapKeyRef, secretKeyRef, fieldRef, resourceFieldRef",
    ),
)
KEY_PATTERN = r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
"""Keys of labels and annotations: an optional domain, a slash, a name."""
_KEY_FITS = f"key.matches({literal(f'^({KEY_PATTERN})$')})"
KEY_RULES = (
    Rule(
        "key-form",
        f"self.all(key, {_KEY_FITS})",
        'key "{r}" is not a valid key of a label or annotation: write NAME or DOMAIN/NAME',
        among=f"self.filter(key, !{_KEY_FITS})",
    ),
)
_OWN_KEY = f"key.startsWith('{names.GROUP}/') || key == '{names.LABEL_MANAGED_BY}'"
LABEL_RULES = (
    Rule(
        "label-reserved",
        f"!self.exists(key, {_OWN_KEY})",
        f'label "{{self.filter(key, {_OWN_KEY})[0]}}" belongs to the operator, which selects its pods by it: remove it',
        "",
        "FieldValueForbidden",
    ),
)
