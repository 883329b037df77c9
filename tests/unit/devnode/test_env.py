"""Environment, command and downward API of a container, against the rules of the API documentation."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devcluster.node.env import EnvError, Scope, build, command, expand, referenced
from devcluster.node.fields import FieldError, pod_field, resource_field
from devcluster.node.quantity import in_units, parse
from devcluster.options import Image

IMAGE = Image(("prog", "run"), env={"FROM_IMAGE": "yes", "PATH": "/image/bin"})
POD: dict[str, Any] = {
    "metadata": {"name": "web-0", "namespace": "ns", "uid": "u1", "labels": {"a": "1"}, "annotations": {"b": 'x"y'}},
    "spec": {"nodeName": "node-1", "serviceAccountName": "sa", "containers": [{"name": "c"}]},
}


def scope(**changes: Any) -> Scope:
    values: dict[str, Any] = {
        "pod": POD,
        "address": "10.88.1.7",
        "node_address": "10.88.0.2",
        "allocatable": {"cpu": "128", "memory": "1Ti"},
        "objects": {},
    }
    return Scope(**(values | changes))


def env(container: dict[str, Any], **changes: Any) -> dict[str, str]:
    return build({"name": "c", **container}, IMAGE, scope(**changes))


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


@given(st.text(alphabet=st.characters(exclude_characters="$")))
def test_text_without_dollar_stays_as_it_is(text: str) -> None:
    assert expand(text, {"A": "1"}) == text


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


def test_field_and_resource_references() -> None:
    container = {
        "name": "c",
        "resources": {"limits": {"memory": "8Gi"}, "requests": {"cpu": "1500m"}},
        "env": [
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a']"}}},
            {"name": "MIB", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
            {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu"}}},
            {"name": "ALL", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        ],
    }
    pod = {**POD, "spec": {**POD["spec"], "containers": [container]}}
    values = build(container, IMAGE, scope(pod=pod))
    assert {k: values[k] for k in ("IP", "LABEL", "MIB", "CPUS", "ALL")} == {
        "IP": "10.88.1.7",
        "LABEL": "1",
        "MIB": "8192",
        "CPUS": "2",
        "ALL": "128",
    }


def test_config_maps_and_secrets() -> None:
    objects: dict[tuple[str, str], Any] = {
        ("ConfigMap", "cm"): {"data": {"one": "1"}},
        ("Secret", "s"): {"data": {"token": base64.b64encode(b"hidden").decode()}},
    }
    container = {
        "envFrom": [
            {"configMapRef": {"name": "cm"}, "prefix": "CM_"},
            {"secretRef": {"name": "gone", "optional": True}},
        ],
        "env": [
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}},
            {"name": "MAYBE", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "no", "optional": True}}},
        ],
    }
    values = env(container, objects=objects)
    assert (values["CM_one"], values["TOKEN"]) == ("1", "hidden")
    assert "MAYBE" not in values
    assert referenced(container) == {("ConfigMap", "cm"), ("Secret", "s"), ("Secret", "gone")}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"configMapKeyRef": {"name": "gone", "key": "k"}}, 'configmap "gone" not found'),
        ({"configMapKeyRef": {"name": "cm", "key": "k"}}, "couldn't find key k in ConfigMap ns/cm"),
        ({"magic": {}}, "not supported"),
    ],
)
def test_missing_references_name_what_is_missing(source: dict[str, Any], message: str) -> None:
    with pytest.raises(EnvError, match=message):
        env({"env": [{"name": "A", "valueFrom": source}]}, objects={("ConfigMap", "cm"): {"data": {}}})


def test_service_links_can_be_turned_off_but_the_api_server_stays() -> None:
    service = {
        "metadata": {"name": "my-vllm"},
        "spec": {"clusterIP": "10.96.1.1", "ports": [{"port": 80, "name": "web"}]},
    }
    headless = {"metadata": {"name": "none"}, "spec": {"clusterIP": "None", "ports": [{"port": 1}]}}
    values = env({}, services=[service, headless], api_service=("10.96.0.1", 443))
    assert values["MY_VLLM_PORT"] == "tcp://10.96.1.1:80"
    assert values["MY_VLLM_SERVICE_PORT_WEB"] == "80"
    assert not any(name.startswith("NONE_") for name in values)
    quiet = {**POD, "spec": {**POD["spec"], "enableServiceLinks": False}}
    values = env({}, pod=quiet, services=[service], api_service=("10.96.0.1", 443))
    assert (values["KUBERNETES_SERVICE_HOST"], values["KUBERNETES_SERVICE_PORT"]) == ("10.96.0.1", "443")
    assert not any(name.startswith("MY_VLLM") for name in values)


def test_whole_maps_are_quoted_lines() -> None:
    assert pod_field(POD, "metadata.annotations") == 'b="x\\"y"'
    assert pod_field(POD, "metadata.annotations['none']") == ""
    with pytest.raises(FieldError, match=r"status\.phase"):
        pod_field(POD, "status.phase")
    with pytest.raises(FieldError, match="no container 'x'"):
        resource_field(POD["spec"], {"resource": "limits.cpu", "containerName": "x"}, {}, "c")


@pytest.mark.parametrize(
    ("text", "divisor", "number"),
    [("1500m", "1", 2), ("8Gi", "1Mi", 8192), ("2", "1m", 2000), ("1e3", "1", 1000), ("0", "0", 0)],
)
def test_quantities_round_up(text: str, divisor: str, number: int) -> None:
    assert in_units(text, divisor) == number


@given(st.integers(0, 2**50))
def test_plain_numbers_are_themselves(number: int) -> None:
    assert parse(str(number)) == number
    assert parse(f"{number}Ki") == number * 1024
    assert parse(f"{number}m") * 1000 == number


@pytest.mark.parametrize("text", ["", "x", "1Qi", "Gi", "1 Gi"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        parse(text)
