"""Where an object differs from its manifest, and where it only seems to."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculative_operator.domain import names
from speculative_operator.domain.formats import quantity
from speculative_operator.reconcile.observed.drift import first_difference, first_surplus

CONTAINER = {
    "name": "engine",
    "image": "i",
    "args": ["a", "--k=1"],
    "env": [{"name": "A", "value": "1"}],
    "resources": {"limits": {"nvidia.com/gpu": "1", "memory": "1024Mi"}},
    "ports": [{"name": "http", "containerPort": 8000, "protocol": "TCP"}],
}
DESIRED: dict[str, Any] = {
    "kind": "Deployment",
    "metadata": {"name": "demo", "labels": {"x": "y"}, "annotations": {names.ANNOTATION_HASH: "h"}},
    "spec": {
        "replicas": 2,
        "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        "template": {"spec": {"containers": [CONTAINER], "volumes": [{"name": "tmp", "emptyDir": {}}]}},
    },
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The manifest with one value in it replaced, or removed with None."""
    found = deepcopy(DESIRED)
    *way, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    inner: Any = found
    for part in way:
        inner = inner[part]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return found


ENGINE = "spec/template/spec/containers/0"


@pytest.mark.parametrize(
    ("path", "value", "difference"),
    [
        ("spec/replicas", 3, "spec.replicas"),
        ("spec/strategy/rollingUpdate/maxSurge", 1, "spec.strategy.rollingUpdate.maxSurge"),
        ("metadata/labels/x", "z", "metadata.labels.x"),
        ("metadata/labels", None, "metadata.labels"),
        (f"{ENGINE}/image", "other", "spec.template.spec.containers[engine].image"),
        (f"{ENGINE}/args", ["a"], "spec.template.spec.containers[engine].args"),
        (f"{ENGINE}/args/1", "--k=2", "spec.template.spec.containers[engine].args[1]"),
        (f"{ENGINE}/env/0/value", "2", "spec.template.spec.containers[engine].env[A].value"),
        (f"{ENGINE}/env", [], "spec.template.spec.containers[engine].env[A]"),
        (f"{ENGINE}/resources/limits/memory", "2Gi", "spec.template.spec.containers[engine].resources.limits.memory"),
        (f"{ENGINE}/name", "other", "spec.template.spec.containers[engine]"),
        ("spec/template/spec/volumes/0", {"name": "tmp", "hostPath": {}}, "spec.template.spec.volumes[tmp].emptyDir"),
        ("spec/template", "nonsense", "spec.template"),
    ],
)
def test_differences_are_named(path: str, value: Any, difference: str) -> None:
    assert first_difference(DESIRED, changed(path, value)) == difference


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("status", {"replicas": 9}),
        ("metadata/annotations/" + "other", "x"),
        ("metadata/name", "ignored: it is how the object was found"),
        ("spec/strategy/rollingUpdate/maxSurge", None),
        (f"{ENGINE}/resources/limits/memory", "1Gi"),
        (f"{ENGINE}/resources/limits/nvidia.com", "x"),
        (f"{ENGINE}/env", [{"name": "INJECTED", "value": "1"}, {"name": "A", "value": "1"}]),
        (f"{ENGINE}/terminationMessagePath", "/dev/termination-log"),
    ],
)
def test_what_others_add_and_the_server_normalises_is_no_difference(path: str, value: Any) -> None:
    assert first_difference(DESIRED, changed(path, value)) == ""


def test_integers_and_strings_are_the_same_quantity() -> None:
    desired = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
    assert first_difference(desired, {"resources": {"limits": {"nvidia.com/gpu": "1"}}}) == ""
    assert first_difference({"env": {"value": "1000m"}}, {"env": {"value": "1"}}) == "env.value"


def test_the_servers_own_normalisation_is_no_drift() -> None:
    applied = changed(f"{ENGINE}/image", "docker.io/library/i:latest")
    assert first_difference(DESIRED, applied, applied) == ""
    assert first_difference(DESIRED, DESIRED, applied) == ""


def test_what_the_server_dropped_is_no_drift() -> None:
    applied = changed("spec/replicas", None)
    assert first_difference(DESIRED, applied, applied) == ""


def test_a_hand_edit_after_normalisation_is_drift() -> None:
    applied = changed(f"{ENGINE}/image", "docker.io/library/i:latest")
    assert first_difference(DESIRED, changed(f"{ENGINE}/image", "evil"), applied).endswith(".image")


def test_another_renders_answer_says_nothing() -> None:
    applied = changed(f"{ENGINE}/image", "old")
    applied["metadata"]["annotations"] = {names.ANNOTATION_HASH: "older"}
    assert first_difference(DESIRED, applied, applied).endswith(".image")


def test_a_removed_item_is_named() -> None:
    without = changed(f"{ENGINE}/env", [])
    assert first_difference(without, DESIRED) == ""
    assert first_surplus(without, DESIRED) == "spec.template.spec.containers[engine].env[A]"
    assert first_surplus(DESIRED, DESIRED) == ""


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "env", "name"]), inner, max_size=3)
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from(["a", "b", "env", "spec", "metadata"]), JSON, max_size=4)


@given(manifest=OBJECTS)
def test_nothing_differs_from_itself(manifest: dict[str, Any]) -> None:
    assert first_difference(manifest, deepcopy(manifest)) == ""
    assert first_surplus(manifest, manifest) == ""


@given(manifest=OBJECTS, actual=OBJECTS, applied=OBJECTS)
def test_nothing_makes_it_fail(manifest: dict[str, Any], actual: dict[str, Any], applied: dict[str, Any]) -> None:
    assert isinstance(first_difference(manifest, actual, applied), str)
    assert isinstance(first_surplus(manifest, actual), str)


@pytest.mark.parametrize(
    ("one", "other"),
    [("1000m", 1), ("1Gi", "1024Mi"), ("0.5", "500m"), ("1e3", "1k"), ("2", "2000000u"), (".5", "500m")],
)
def test_equal_quantities(one: Any, other: Any) -> None:
    assert quantity(one) == quantity(other) is not None


@pytest.mark.parametrize("value", ["", "x", "1 Gi", "Gi", "1GB", True, None, 1.5, "1e99999", "9" * 200])
def test_what_is_no_quantity(value: Any) -> None:
    assert quantity(value) is None
