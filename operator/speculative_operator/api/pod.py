"""The parts of a pod that the spec may hold: environment variables and the pod template that is merged last."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from speculative_operator.api.pod_rules import ENV_RULES, KEY_RULES, LABEL_RULES, SOURCE_RULES
from speculative_operator.api.scalars import EnvName, LabelValue, ObjectName, Quantity
from speculative_operator.api.wire import Wire, config_with_rules, with_rules

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
