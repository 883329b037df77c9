"""Files of projected volumes, tokens' age, pod addresses and log tails."""

import base64
from ipaddress import IPv4Network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devcluster.node.logserver import tail_offset
from devcluster.node.network import AddressPool, NetworkError
from devcluster.node.payloads import Inputs, PayloadError, TokenWish, files, is_projected, needed, still_good

POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"a": "b"}},
    "spec": {"containers": [{"name": "c"}]},
}


def inputs(**objects: Any) -> Inputs:
    known = {("ConfigMap", "cm"): objects.get("cm"), ("Secret", "s"): objects.get("s")}
    return Inputs(POD, "10.88.1.2", "10.88.0.2", known, {TokenWish("", 3607): "jwt"})


def contents(volume: dict[str, Any], **objects: Any) -> dict[str, tuple[bytes, int]]:
    return {path: (file.data, file.mode) for path, file in files(volume, inputs(**objects)).items()}


def test_whole_config_map_has_the_mode_of_the_volume() -> None:
    cm = {"data": {"a": "1"}}
    assert contents({"configMap": {"name": "cm", "defaultMode": 0o440}}, cm=cm) == {"a": (b"1", 0o440)}


def test_chosen_items_have_their_own_path_and_mode() -> None:
    secret = {"data": {"k": base64.b64encode(b"v").decode(), "other": ""}}
    volume = {"secret": {"secretName": "s", "items": [{"key": "k", "path": "d/k", "mode": 0o400}]}}
    assert contents(volume, s=secret) == {"d/k": (b"v", 0o400)}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"configMap": {"name": "cm"}}, 'configmap "cm" not found'),
        ({"secret": {"secretName": "s", "items": [{"key": "x", "path": "x"}]}}, "references non-existent key: x"),
        ({"projected": {"sources": [{"clusterTrustBundle": {}}]}}, "is not supported"),
        ({"downwardAPI": {"items": [{"path": "a", "resourceFieldRef": {}}]}}, "is not supported"),
    ],
)
def test_what_is_missing_is_named(source: dict[str, Any], message: str) -> None:
    with pytest.raises(PayloadError, match=message):
        files(source, inputs(s={"data": {}}))


def test_optional_parts_may_be_missing() -> None:
    assert contents({"configMap": {"name": "cm", "optional": True}}) == {}
    some = {"configMap": {"name": "cm", "optional": True, "items": [{"key": "no", "path": "no"}]}}
    assert contents(some, cm={"data": {"a": "1"}}) == {}


def test_service_account_volume_as_admission_injects_it() -> None:
    volume = {
        "projected": {
            "defaultMode": 420,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "cm", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
            ],
        }
    }
    assert contents(volume, cm={"data": {"ca.crt": "PEM"}}) == {
        "token": (b"jwt", 0o644),
        "ca.crt": (b"PEM", 0o644),
        "namespace": (b"ns", 0o644),
    }
    assert needed([volume, {"emptyDir": {}}]) == ({("ConfigMap", "cm")}, {TokenWish("", 3607)})


def test_downward_volume_of_single_annotations_is_their_bare_text() -> None:
    """How files of an engine reach its pod: keys with a domain and a dot, texts with quotes and line ends."""
    keys = {name: f"serving.speculative.dev/file.{name}" for name in ("adaptive.json", "empty.yaml", "absent.txt")}
    text = '{"1": {"steps": [0, 3]}}\nx: "y"\n'
    annotations = {keys["adaptive.json"]: text, keys["empty.yaml"]: ""}
    pod = {**POD, "metadata": {**POD["metadata"], "annotations": annotations}}
    items = [
        {"path": name, "fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{key}']"}}
        for name, key in keys.items()
    ]
    volume = {"downwardAPI": {"items": items, "defaultMode": 0o444}}
    found = files(volume, Inputs(pod, "10.88.1.2", "10.88.0.2", {}, {}))
    assert {path: (file.data, file.mode) for path, file in found.items()} == {
        "adaptive.json": (text.encode(), 0o444),
        "empty.yaml": (b"", 0o444),
        "absent.txt": (b"", 0o444),
    }


def test_which_volumes_the_node_writes() -> None:
    assert is_projected({"name": "a", "configMap": {"name": "cm"}})
    assert not is_projected({"name": "a", "emptyDir": {}})


@pytest.mark.parametrize(
    ("issued", "expires", "now", "good"),
    [(0, 3600, 2879, True), (0, 3600, 2880, False), (0, 10**6, 86399, True), (0, 10**6, 86400, False)],
)
def test_tokens_are_renewed_in_time(issued: float, expires: float, now: float, good: bool) -> None:
    assert still_good(issued, expires, now) is good


def test_addresses_are_reused_last_and_run_out() -> None:
    pool = AddressPool(IPv4Network("10.88.1.0/29"))
    assert pool.gateway == "10.88.1.1"
    taken = [pool.take() for _ in range(5)]
    assert taken == [f"10.88.1.{n}" for n in range(2, 7)]
    with pytest.raises(NetworkError, match="no free pod address"):
        pool.take()
    pool.give_back(taken[3])
    pool.give_back(taken[0])
    assert [pool.take(), pool.take()] == [taken[3], taken[0]]


@given(st.lists(st.text(alphabet="ab", max_size=3), max_size=8), st.booleans(), st.integers(0, 9))
def test_tail_is_the_last_lines(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], ended: bool, count: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    text = "\n".join(lines) + ("\n" if ended and lines else "")
    path.write_text(text)
    kept = text.splitlines(keepends=True)
    assert text[tail_offset(path, count) :] == "".join(kept[len(kept) - min(count, len(kept)) :])
