"""spec.template over the rendered pod template."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculative_operator.render import RenderError
from speculative_operator.render.merge import merge

BASE: dict[str, Any] = {
    "metadata": {"labels": {"a": "1"}},
    "spec": {
        "grace": 10,
        "containers": [
            {
                "name": "engine",
                "args": ["m", "--x"],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "ports": [{"name": "http", "containerPort": 8000, "protocol": "TCP"}],
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                "livenessProbe": {"periodSeconds": 10, "httpGet": {"path": "/health"}},
            }
        ],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    },
}


def engine(patch: dict[str, Any]) -> dict[str, Any]:
    merged = merge(BASE, {"spec": {"containers": [{"name": "engine", **patch}]}})
    container: dict[str, Any] = merged["spec"]["containers"][0]
    return container


def test_maps_merge_key_by_key() -> None:
    merged = merge(BASE, {"metadata": {"labels": {"b": "2"}}, "spec": {"nodeSelector": {"gpu": "h100"}}})
    assert merged["metadata"]["labels"] == {"a": "1", "b": "2"}
    assert merged["spec"]["nodeSelector"] == {"gpu": "h100"}
    assert merged["spec"]["containers"] == BASE["spec"]["containers"]


def test_items_merge_by_name() -> None:
    container = engine({"env": [{"name": "B", "value": "9"}, {"name": "C", "value": "3"}]})
    assert container["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "9"}, {"name": "C", "value": "3"}]
    assert container["args"] == ["m", "--x"]


def test_unknown_names_are_added() -> None:
    merged = merge(BASE, {"spec": {"containers": [{"name": "sidecar", "image": "x"}]}})
    assert [item["name"] for item in merged["spec"]["containers"]] == ["engine", "sidecar"]


def test_mounts_merge_by_path() -> None:
    container = engine({"volumeMounts": [{"name": "fast", "mountPath": "/tmp"}, {"name": "x", "mountPath": "/x"}]})
    assert container["volumeMounts"] == [{"name": "fast", "mountPath": "/tmp"}, {"name": "x", "mountPath": "/x"}]


def test_ports_merge_by_number_and_protocol() -> None:
    container = engine({"ports": [{"containerPort": 8000, "hostPort": 80}, {"containerPort": 8000, "protocol": "UDP"}]})
    assert container["ports"] == [
        {"name": "http", "containerPort": 8000, "protocol": "TCP", "hostPort": 80},
        {"containerPort": 8000, "protocol": "UDP"},
    ]


def test_other_lists_and_scalars_are_replaced() -> None:
    container = engine({"args": ["other"]})
    assert container["args"] == ["other"]
    assert merge(BASE, {"spec": {"grace": 99}})["spec"]["grace"] == 99


def test_null_removes() -> None:
    assert "livenessProbe" not in engine({"livenessProbe": None})
    assert engine({"livenessProbe": {"periodSeconds": None}})["livenessProbe"] == {"httpGet": {"path": "/health"}}


def test_patch_delete_removes_maps_and_items() -> None:
    assert "livenessProbe" not in engine({"livenessProbe": {"$patch": "delete"}})
    assert engine({"env": [{"name": "A", "$patch": "delete"}]})["env"] == [{"name": "B", "value": "2"}]
    assert engine({"env": [{"name": "never-there", "$patch": "delete"}]})["env"] == BASE["spec"]["containers"][0]["env"]


def test_patch_replace_takes_the_whole() -> None:
    probe = engine({"livenessProbe": {"$patch": "replace", "tcpSocket": {"port": 1}}})["livenessProbe"]
    assert probe == {"tcpSocket": {"port": 1}}
    assert engine({"env": [{"$patch": "replace"}, {"name": "Z", "value": "z"}]})["env"] == [{"name": "Z", "value": "z"}]


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ({"spec": {"containers": [{"image": "x"}]}}, r"spec\.containers\[0\] has no name"),
        ({"spec": {"volumes": ["tmp"]}}, r"spec\.volumes\[0\] has no name"),
        ({"spec": {"$setElementOrder/containers": []}}, "not supported"),
        ({"spec": {"$patch": "remove"}}, "'remove'"),
    ],
)
def test_what_cannot_be_merged_is_named(patch: dict[str, Any], message: str) -> None:
    with pytest.raises(RenderError, match=message):
        merge(BASE, patch)


NAMES = st.text("abc", min_size=1, max_size=2)
LEAVES = st.booleans() | st.integers() | st.text(max_size=5)
PATCHES = st.dictionaries(
    NAMES, st.recursive(LEAVES, lambda inner: st.dictionaries(NAMES, inner, max_size=3), max_leaves=8), max_size=3
)


@given(patch=PATCHES)
def test_merging_twice_is_merging_once_and_changes_nothing_given(patch: dict[str, Any]) -> None:
    base, before = deepcopy(BASE), deepcopy(patch)
    once = merge(base, patch)
    assert merge(once, patch) == once
    assert base == BASE
    assert patch == before


@given(patch=PATCHES)
def test_an_empty_patch_is_neutral(patch: dict[str, Any]) -> None:
    assert merge(patch, {}) == patch
