"""Service addresses to endpoints, names to addresses, claims to volumes, images to programs: the tables of a node."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devcluster.node.hosts import Hosts, names, render
from devcluster.node.images import normalize, select
from devcluster.node.provisioner import CLASS, PROVISIONER, released, volume_for, wanted
from devcluster.node.services import table
from devcluster.options import Image


def service(name: str, address: str, ports: list[dict[str, Any]], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "ns"}, "spec": {"clusterIP": address, "ports": ports, **spec}}


def piece(name: str, ports: list[dict[str, Any]], endpoints: list[dict[str, Any]]) -> dict[str, Any]:
    meta = {"name": f"{name}-x", "namespace": "ns", "labels": {"kubernetes.io/service-name": name}}
    return {"metadata": meta, "addressType": "IPv4", "ports": ports, "endpoints": endpoints}


def endpoint(address: str, **conditions: bool) -> dict[str, Any]:
    return {"addresses": [address], "conditions": conditions}


def test_only_ready_endpoints_by_port_name() -> None:
    ports = [{"name": "http", "port": 80}, {"name": "metrics", "port": 90}]
    ends = [endpoint("10.88.1.2", ready=True), endpoint("10.88.1.3", ready=False)]
    parts = [piece("web", [{"name": "http", "port": 8000}, {"name": "metrics", "port": 9000}], ends)]
    assert table([service("web", "10.96.0.5", ports)], parts) == {
        "10.96.0.5:80": ["10.88.1.2:8000"],
        "10.96.0.5:90": ["10.88.1.2:9000"],
    }


def test_terminating_endpoints_serve_only_when_there_is_nothing_better() -> None:
    ports = [{"port": 80}]
    leaving = endpoint("10.88.1.2", ready=False, serving=True, terminating=True)
    fresh = endpoint("10.88.1.3", ready=True)
    web = [service("web", "10.96.0.5", ports)]
    assert table(web, [piece("web", [{"port": 8000}], [leaving])]) == {"10.96.0.5:80": ["10.88.1.2:8000"]}
    assert table(web, [piece("web", [{"port": 8000}], [leaving, fresh])]) == {"10.96.0.5:80": ["10.88.1.3:8000"]}


@pytest.mark.parametrize(
    "skipped",
    [
        service("web", "None", [{"port": 80}]),
        service("web", "10.96.0.5", [{"port": 80, "protocol": "UDP"}]),
        service("web", "10.96.0.5", [{"port": 80, "name": "other"}]),
        service("none", "10.96.0.5", [{"port": 80}]),
    ],
)
def test_what_is_not_forwarded(skipped: dict[str, Any]) -> None:
    assert table([skipped], [piece("web", [{"port": 8000}], [endpoint("10.88.1.2")])]) == {}


def test_names_short_in_the_own_namespace_only() -> None:
    known = names([service("web", "10.96.0.5", [])], [])
    long = "web.ns.svc.cluster.local\tweb.ns.svc\tweb.ns"
    assert f"10.96.0.5\t{long}\tweb\n" in render([], known, "ns")
    assert f"10.96.0.5\t{long}\n" in render([], known, "other")


def test_headless_services_resolve_to_ready_pods() -> None:
    ends = [endpoint("10.88.1.2", ready=True), endpoint("10.88.1.3", ready=False)]
    found = {(n.label, n.address) for n in names([service("web", "None", [])], [piece("web", [], ends)])}
    assert found == {("web", "10.88.1.2")}


def test_hosts_file_keeps_its_inode_and_shrinks(tmp_path: Path) -> None:
    hosts = Hosts()
    path = tmp_path / "hosts"
    hosts.add("u", path, "ns", ["10.88.1.9\tme"])
    inode = path.stat().st_ino
    hosts.update([service("web", "10.96.0.5", [])], [])
    assert "10.96.0.5\tweb." in path.read_text()
    hosts.update([], [])
    assert "10.96.0.5" not in path.read_text()
    assert "10.88.1.9\tme\n" in path.read_text()
    assert path.stat().st_ino == inode
    hosts.remove("u")
    hosts.update([service("web", "10.96.0.5", [])], [])
    assert "10.96.0.5" not in path.read_text()


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("python", "docker.io/library/python:latest"),
        ("vllm/vllm-openai:v0.32.0", "docker.io/vllm/vllm-openai:v0.32.0"),
        ("python:3.12@sha256:abc", "python:3.12"),
        ("host:5000/a/b", "host:5000/a/b:latest"),
    ],
)
def test_spellings_of_one_image(name: str, same: str) -> None:
    assert normalize(name) == normalize(same)


@given(st.from_regex(r"([a-z]+/)?[a-z]+(:[a-z0-9.]+)?", fullmatch=True))
def test_normalizing_twice_changes_nothing(name: str) -> None:
    assert normalize(normalize(name)) == normalize(name)


def test_any_tag_of_a_repository() -> None:
    images = {"a/b:*": Image(("x",)), "a/b:2": Image(("y",))}
    assert [getattr(select(images, name), "entrypoint", None) for name in ("a/b:1", "a/b", "a/b:2", "a/c:1")] == [
        ("x",),
        ("x",),
        ("y",),
        None,
    ]


def claim(**spec: Any) -> dict[str, Any]:
    whole = {"storageClassName": CLASS, "accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    return {
        "metadata": {"name": "c", "namespace": "ns", "uid": "u1"},
        "spec": {**whole, **spec},
        "status": {"phase": "Pending"},
    }


def test_claims_of_our_class_get_a_directory() -> None:
    assert wanted(claim())
    assert not wanted(claim(storageClassName="fast"))
    assert not wanted(claim(volumeName="pv"))
    volume = volume_for(claim(), Path("/state/volumes"))
    assert volume["spec"]["hostPath"]["path"] == "/state/volumes/pvc-u1"
    assert volume["spec"]["claimRef"]["uid"] == "u1"
    assert not released(volume)
    assert released({**volume, "status": {"phase": "Released"}})
    assert volume["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"] == PROVISIONER
