"""The parts of a pod that the spec may hold, with their rules as CEL: environment variables and the pod template
that is merged last. A part of `v1alpha1`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from speculative_operator.api.scalars import EnvName, LabelValue, ObjectName, Quantity
from speculative_operator.api.wire import Rule, Wire, config_with_rules, literal, with_rules
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


Key = Annotated[str, Field(min_length=1, max_length=253)]
KeyValue = Annotated[str, Field(max_length=4096)]


class KeyReference(Wire):
    """One key of a ConfigMap or Secret of the same namespace."""

    name: ObjectName
    """Name of the ConfigMap or Secret."""
    key: Key
    """Key in it."""
    optional: bool | None = Field(default=None, strict=True)
    """True: the pod starts without the variable if the object or key is missing."""


class FieldReference(Wire):
    """A field of the pod itself."""

    api_version: Key | None = None
    """Version of the pod schema; default v1."""
    field_path: Key
    """Path of the field, such as status.podIP."""


class ResourceFieldReference(Wire):
    """A request or limit of a container."""

    container_name: Key | None = None
    """Container; default the engine's."""
    resource: Key
    """Resource, such as limits.memory."""
    divisor: Quantity | None = None
    """Unit of the value; default 1."""


class EnvSource(Wire):
    """Source of a variable's value: exactly one of these fields."""

    model_config = config_with_rules(*SOURCE_RULES)

    config_map_key_ref: KeyReference | None = None
    """Key of a ConfigMap."""
    secret_key_ref: KeyReference | None = None
    """Key of a Secret."""
    field_ref: FieldReference | None = None
    """Field of the pod."""
    resource_field_ref: ResourceFieldReference | None = None
    """Request or limit of a container."""


class EnvVar(Wire):
    """An environment variable of a container."""

    model_config = config_with_rules(*ENV_RULES)

    name: EnvName
    """Name of the variable."""
    value: KeyValue | None = None
    """Value; $(OTHER) refers to a variable before it."""
    value_from: EnvSource | None = None
    """Source of the value, in place of `value`."""


EnvVars = Annotated[
    tuple[EnvVar, ...],
    Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}),
]
"""Environment variables, each name once."""


Labels = Annotated[dict[Key, LabelValue], Field(max_length=32, json_schema_extra=with_rules(*KEY_RULES, *LABEL_RULES))]
Annotations = Annotated[dict[Key, KeyValue], Field(max_length=32, json_schema_extra=with_rules(*KEY_RULES))]


class TemplateMetadata(Wire):
    """Labels and annotations to add to the serving pods."""

    labels: Labels | None = None
    """Labels to add. The operator's own labels cannot be changed."""
    annotations: Annotations | None = None
    """Annotations to add."""


class Template(Wire):
    """A pod template that the operator merges last into its own, for everything without a field in this object."""

    metadata: TemplateMetadata | None = None
    """Labels and annotations to add to the serving pods."""
    spec: Annotated[dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})] | None = (
        None
    )
    """Pod spec, merged strategically: named list items by name, other lists as a whole. The engine's container is named
    `engine`. If the API server refuses the result, the object reports RenderInvalid."""
