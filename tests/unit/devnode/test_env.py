"""Environment, command and downward API of a container, against the rules of the API documentation."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devcluster.node.env import EnvError, Scope, build, command, expand, referenced
from devcluster.node.fields import FieldError, pod_field
from devcluster.node.quantity import parse
from devcluster.options import Image

IMAGE = Image(("prog", "run"), env={"FROM_IMAGE": "yes", "PATH": "/image/bin"})
POD: dict[str, Any] = {
    "metadata": {"name": "web-0", "namespace": "ns", "uid": "u1", "labels": {"a": "1"}, "annotations": {"b": 'x"y'}},
    "spec": {"nodeName": "node-1", "serviceAccountName": "sa", "containers": [{"name": "c"}]},
}


def env(container: dict[str, Any], objects: dict[tuple[str, str], Any] | None = None) -> dict[str, str]:
    scope = Scope(POD, "10.88.1.7", "10.88.0.2", objects or {}, "10.96.0.1")
    return build({"name": "c", **container}, IMAGE, scope)


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(A)", "x1y1"),
        ("$(MISSING)", "$(MISSING)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(A", "$(A"),
        ("$", "$"),
        ("a$b", "a$b"),
        ("$()", "$()"),
        ("cost: 5$", "cost: 5$"),
    ],
)
def test_expansion(text: str, expanded: str) -> None:
    assert expand(text, {"A": "1"}) == expanded


@given(st.text(alphabet="$()AB"))
def test_doubled_dollars_protect_everything(text: str) -> None:
    assert expand(text.replace("$", "$$"), {"A": "1", "B": "2"}) == text


def test_command_replaces_the_entrypoint() -> None:
    assert command({}, IMAGE, {}) == ["prog", "run"]
    assert command({"args": ["$(A)"]}, IMAGE, {"A": "1"}) == ["prog", "run", "1"]
    assert command({"command": ["other"]}, IMAGE, {}) == ["other"]
    assert command({"command": ["other"], "args": ["x"]}, IMAGE, {}) == ["other", "x"]


def test_values_see_the_ones_before_them() -> None:
    values = env(
        {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)/$(C)"}, {"name": "C", "value": "3"}]}
    )
    assert values["B"] == "1/$(C)"
    assert values["PATH"] == "/image/bin"
    assert values["HOSTNAME"] == "web-0"
    assert (values["KUBERNETES_SERVICE_HOST"], values["KUBERNETES_SERVICE_PORT"]) == ("10.96.0.1", "443")


def test_references_to_fields_config_maps_and_secrets() -> None:
    objects: dict[tuple[str, str], Any] = {
        ("ConfigMap", "cm"): {"data": {"one": "1"}},
        ("Secret", "s"): {"data": {"token": base64.b64encode(b"hidden").decode()}},
    }
    container = {
        "env": [
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a']"}}},
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}},
            {"name": "MAYBE", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "no", "optional": True}}},
        ],
    }
    values = env(container, objects)
    assert (values["IP"], values["LABEL"], values["TOKEN"]) == ("10.88.1.7", "1", "hidden")
    assert "MAYBE" not in values
    assert referenced(container) == {("ConfigMap", "cm"), ("Secret", "s")}


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "gone", "key": "k"}}}]}, '"gone" not found'),
        ({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "k"}}}]}, "key k in ConfigMap"),
        ({"env": [{"name": "A", "valueFrom": {"magic": {}}}]}, "not supported"),
        ({"envFrom": [{"configMapRef": {"name": "cm"}}]}, "not supported"),
    ],
)
def test_what_is_missing_or_not_supported_is_named(container: dict[str, Any], message: str) -> None:
    with pytest.raises(EnvError, match=message):
        env(container, {("ConfigMap", "cm"): {"data": {}}})


def test_fields_that_are_not_there() -> None:
    assert pod_field(POD, "metadata.annotations['b']") == 'x"y'
    assert pod_field(POD, "metadata.annotations['none']") == ""
    with pytest.raises(FieldError, match=r"status\.phase"):
        pod_field(POD, "status.phase")


@given(st.integers(0, 2**50))
def test_quantities(number: int) -> None:
    assert parse(str(number)) == number
    assert parse(f"{number}Ki") == number * 1024
    assert parse(f"{number}m") * 1000 == number


@pytest.mark.parametrize("text", ["", "x", "1Qi", "Gi", "1 Gi"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        parse(text)
