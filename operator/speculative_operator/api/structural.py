"""JSON schema of pydantic to the structural schema that Kubernetes asks of a CRD: nothing but plain, inlined, typed
nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

DROPPED = ("title", "additionalProperties", "$defs", "propertyNames")
ORDER = ("description", "type", "format", "enum", "default")


class NotStructuralError(TypeError):
    """A wire type says something that a CRD cannot. The message names the node."""


def structural(model: type[BaseModel]) -> dict[str, Any]:
    """Structural schema of a wire type. Raises NotStructuralError."""
    schema = model.model_json_schema(by_alias=True, mode="validation")
    return _node(schema, schema.get("$defs", {}), model.__name__)


def _node(schema: Mapping[str, Any], definitions: Mapping[str, Any], where: str) -> dict[str, Any]:
    schema = _plain(schema, definitions, where)
    out = {key: value for key, value in schema.items() if key not in DROPPED}
    if "description" in out:
        out["description"] = " ".join(out["description"].split())
    if out.get("default", ...) in (None, [], "", ()):
        del out["default"]
    if "properties" in out:
        out["properties"] = {k: _node(v, definitions, f"{where}.{k}") for k, v in out["properties"].items()}
    if "items" in out:
        out["items"] = _node(out["items"], definitions, f"{where}[]")
    values = schema.get("additionalProperties")
    if isinstance(values, Mapping) and not out.get("x-kubernetes-preserve-unknown-fields"):
        out["additionalProperties"] = _node(values, definitions, f"{where}{{}}")
    if "type" not in out and not out.get("x-kubernetes-int-or-string"):
        raise NotStructuralError(f"{where} has no type: {schema}")
    return {key: out[key] for key in (*(k for k in ORDER if k in out), *(k for k in out if k not in ORDER))}


def _plain(schema: Mapping[str, Any], definitions: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The node without references and without the alternative null; keys beside a reference win over its target's."""
    out = dict(schema)
    while "$ref" in out or ("anyOf" in out and not out.get("x-kubernetes-int-or-string")):
        if "$ref" in out:
            target = definitions[out.pop("$ref").rpartition("/")[2]]
        else:
            options = [option for option in out.pop("anyOf") if option.get("type") != "null"]
            if len(options) != 1:
                raise NotStructuralError(f"{where} may be {len(options)} things; give it one type")
            target = options[0]
        out = {**target, **out}
    return out
