"""The shape of the definition: what the API server and its cost budget ask of every node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from speculative_operator.api.crd import SELECTABLE, crd, schema
from speculative_operator.api.rules import ALL_RULES
from speculative_operator.api.wire import VALIDATIONS, concatenation, literal

OPAQUE = "x-kubernetes-preserve-unknown-fields"


def nodes(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, node
    for name, field in node.get("properties", {}).items():
        yield from nodes(field, f"{path}.{name}")
    if "items" in node:
        yield from nodes(node["items"], f"{path}[]")
    if isinstance(node.get("additionalProperties"), dict):
        yield from nodes(node["additionalProperties"], f"{path}{{}}")


NODES = [*nodes(schema()["properties"]["spec"], "spec"), *nodes(schema()["properties"]["status"], "status")]


def is_plain_and_bounded(node: dict[str, Any]) -> bool:
    if node.get("x-kubernetes-int-or-string"):
        return node["anyOf"] == [{"type": "integer"}, {"type": "string"}] and "type" not in node
    if {"anyOf", "oneOf", "allOf", "$ref", "nullable", "title"} & set(node) or node.get("additionalProperties") is True:
        return False
    bounds = {
        "string": {"maxLength", "enum"},
        "array": {"maxItems"},
        "object": set(),
        "integer": set(),
        "boolean": set(),
    }
    bounded = not bounds[node["type"]] or bounds[node["type"]] & set(node) or node.get("format") == "date-time"
    return bool(bounded) and ("additionalProperties" not in node or "maxProperties" in node)


def test_every_node_is_plain_and_bounded() -> None:
    assert [path for path, node in NODES if not is_plain_and_bounded(node)] == []


def test_only_the_escape_hatches_are_opaque() -> None:
    assert [path for path, node in NODES if OPAQUE in node] == [
        "spec.speculator.options",
        "spec.template.spec",
    ]


def test_status_sets_no_words_in_stone() -> None:
    """A newer operator must be able to report what this definition has never heard of."""
    assert not [path for path, node in NODES if path.startswith("status") and "enum" in node]


def test_defaults_reach_into_objects_that_are_left_out() -> None:
    """The server fills nested defaults only where the parent is there."""
    for path, node in NODES:
        for name, field in node.get("properties", {}).items():
            inner = field.get("properties", {}).values()
            if field.get("default") == {}:
                assert not field.get("required"), f"{path}.{name} cannot be defaulted: it has required fields"
                assert any("default" in child for child in inner)


def test_later_booleans_have_no_default() -> None:
    """An operator older than the definition would refuse every object that the API server filled one in for."""
    assert not [path for path, node in NODES if node.get("type") == "boolean" and "default" in node]


def test_lists_of_named_things_are_keyed() -> None:
    keyed = {path: node["x-kubernetes-list-map-keys"] for path, node in NODES if "x-kubernetes-list-type" in node}
    assert keyed == {"spec.engine.env": ["name"], "spec.weights.env": ["name"], "status.conditions": ["type"]}


def test_rules_name_fields_that_exist() -> None:
    for path, node in NODES:
        for rule in node.get(VALIDATIONS, ()):
            inner = node
            for part in rule.get("fieldPath", "").split(".")[1:]:
                assert part in inner["properties"], f"{path}: {rule['fieldPath']}"
                inner = inner["properties"][part]


def test_rules_have_names_of_their_own() -> None:
    assert len({rule.id for rule in ALL_RULES}) == len(ALL_RULES)


def test_messages_have_a_remedy_and_fit() -> None:
    for rule in ALL_RULES:
        assert ": " in rule.text, f"{rule.id}: field and value, a colon, the remedy"
        entry = rule.schema()
        assert len(entry.get("message", "")) <= 2048, rule.id
        assert "\n" not in entry["rule"] + entry.get("messageExpression", ""), rule.id
        assert ("message" in entry) != ("messageExpression" in entry), rule.id


def test_definition_fits_a_last_applied_annotation() -> None:
    """Client-side `kubectl apply` keeps the whole object in an annotation of at most 256 KiB."""
    assert len(str(crd())) < 200_000


def test_selectable_fields_are_scalars() -> None:
    assert len(SELECTABLE) <= 8, "the API server takes eight"
    types = dict(NODES)
    assert {types[path]["type"] for path in SELECTABLE} == {"string"}


def test_texts_become_expressions() -> None:
    assert concatenation("plain") == "'plain'"
    assert concatenation('k is "{self.k}": less') == "'k is \"' + self.k + '\": less'"
    assert literal("it's \\") == "'it\\'s \\\\'"
