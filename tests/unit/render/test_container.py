"""What an engine decides of its container reaches the pod: files, command, user, limits, ports, place of metrics."""

import json
from dataclasses import replace

from tests.unit.render.test_manifests import CONTAINER, INPUT, SPEC, by_kind, deployment, engine

from speculative_operator.domain import names
from speculative_operator.domain.spec import AcceleratorRequest
from speculative_operator.domain.table import KTable
from speculative_operator.render import Capabilities, RenderInput


def test_no_user_id_where_the_engine_names_none() -> None:
    inp = replace(INPUT, container=replace(CONTAINER, user=None), capabilities=Capabilities(assigns_uids=False))
    assert "runAsUser" not in deployment(inp)["spec"]["template"]["spec"]["securityContext"]


FILES = replace(INPUT, container=replace(CONTAINER, payload=False, files={"b.json": '{"1": 3}', "a.yaml": "x: 1\n"}))
FILE_A, FILE_B = (f"{names.ANNOTATION_FILE}{name}" for name in ("a.yaml", "b.json"))


def test_files_are_annotations_of_the_template_projected_into_the_pod() -> None:
    template = deployment(FILES)["spec"]["template"]
    assert template["metadata"]["annotations"][FILE_A] == "x: 1\n"
    assert template["metadata"]["annotations"][FILE_B] == '{"1": 3}'
    (volume,) = [volume for volume in template["spec"]["volumes"] if volume["name"] == "config"]
    assert volume["downwardAPI"]["items"] == [
        {"path": name, "fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{annotation}']"}}
        for name, annotation in (("a.yaml", FILE_A), ("b.json", FILE_B))
    ]
    assert {"name": "config", "mountPath": names.CONFIG_MOUNT, "readOnly": True} in engine(FILES)["volumeMounts"]


def test_a_changed_file_is_a_changed_template_and_the_table_is_noted_beside_it() -> None:
    """An operator that dies right after this apply finds the table on the very object that carries its file."""
    changed = replace(
        FILES,
        container=replace(FILES.container, files={**FILES.container.files, "b.json": '{"1": 0}'}),
        table=KTable.constant(1, 256),
        table_version=2,
    )
    before, after = deployment(FILES), deployment(changed)
    assert before["spec"]["template"]["spec"] == after["spec"]["template"]["spec"]
    assert before["spec"]["template"] != after["spec"]["template"]
    told = json.loads(after["metadata"]["annotations"][names.ANNOTATION_TABLE])
    assert (told["version"], told["rows"]) == (2, [[1, 256, 1]])


def test_no_files_no_volume() -> None:
    assert not any(volume["name"] == "config" for volume in deployment()["spec"]["template"]["spec"]["volumes"])
    assert not any(key.startswith(names.ANNOTATION_FILE) for key in pod_annotations(INPUT))


def pod_annotations(inp: RenderInput) -> dict[str, str]:
    found: dict[str, str] = deployment(inp)["spec"]["template"]["metadata"]["annotations"]
    return found


def test_a_command_only_where_the_engine_names_one() -> None:
    assert "command" not in engine()
    words = ("python3", "-m", "sglang.launch_server")
    assert engine(replace(INPUT, container=replace(CONTAINER, command=words)))["command"] == list(words)


def test_metrics_are_where_the_engine_has_them() -> None:
    inp = replace(
        INPUT,
        container=replace(CONTAINER, metrics_path="/prometheus/metrics", payload=False),
        capabilities=Capabilities(pod_monitor=True),
    )
    assert pod_annotations(inp)["prometheus.io/path"] == "/prometheus/metrics"
    (endpoint,) = by_kind(inp)["PodMonitor", "demo"]["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("http", "/prometheus/metrics")


def test_telemetry_is_a_port_that_is_reached_and_scraped() -> None:
    inp = replace(INPUT, container=replace(CONTAINER, payload=True), capabilities=Capabilities(pod_monitor=True))
    children = by_kind(inp)
    ports = [(port["name"], port["containerPort"]) for port in engine(inp)["ports"]]
    assert ports == [("http", 8000), ("step-metrics", 8001)]
    endpoints = children["PodMonitor", "demo"]["spec"]["podMetricsEndpoints"]
    assert [(one["port"], one["path"]) for one in endpoints] == [("http", "/metrics"), ("step-metrics", "/metrics")]
    reached = children["NetworkPolicy", "demo"]["spec"]["ingress"][0]["ports"]
    assert [port["port"] for port in reached] == [8000, 8001, 15008]
    assert [port["port"] for port in children["Service", "demo"]["spec"]["ports"]] == [8000], "not for clients"


def test_without_telemetry_one_port() -> None:
    inp = replace(INPUT, container=replace(CONTAINER, payload=False))
    assert [port["containerPort"] for port in engine(inp)["ports"]] == [8000]
    reached = by_kind(inp)["NetworkPolicy", "demo"]["spec"]["ingress"][0]["ports"]
    assert [port["port"] for port in reached] == [8000, 15008]


def test_limits_of_the_engine_beside_the_accelerators_and_none_without_either() -> None:
    none = replace(INPUT, spec=replace(SPEC, accelerator=AcceleratorRequest(per_replica=0)))
    assert "limits" not in engine(none)["resources"]
    limited = replace(CONTAINER, limits={"hugepages-2Mi": "1Gi"})
    assert engine(replace(none, container=limited))["resources"]["limits"] == {"hugepages-2Mi": "1Gi"}
    assert engine(replace(INPUT, container=limited))["resources"]["limits"] == {
        "nvidia.com/gpu": "1",
        "hugepages-2Mi": "1Gi",
    }
