"""Which pods Prometheus scrapes and where, judged by carrying its relabelling rules out on discovered targets."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster import prometheus
from devcluster.controlplane import Files

_FILES = Files(Path("/state"))


def _target(**changed: str) -> dict[str, str]:
    """What Kubernetes discovery says of one container port of an annotated pod."""
    return {
        "__address__": "10.88.1.7:8000",
        "__metrics_path__": "/metrics",
        "__scheme__": "http",
        "__meta_kubernetes_namespace": "team",
        "__meta_kubernetes_pod_name": "web-1",
        "__meta_kubernetes_pod_node_name": "node-1",
        "__meta_kubernetes_pod_ip": "10.88.1.7",
        "__meta_kubernetes_pod_phase": "Running",
        "__meta_kubernetes_pod_container_init": "false",
        "__meta_kubernetes_pod_container_port_name": "http",
        "__meta_kubernetes_pod_container_port_number": "8000",
        "__meta_kubernetes_pod_label_app": "web",
        "__meta_kubernetes_pod_annotation_prometheus_io_scrape": "true",
        "__meta_kubernetes_pod_annotation_prometheus_io_port": "8000",
        **{f"__meta_kubernetes_pod_{key}": value for key, value in changed.items()},
    }


def _relabel(rules: list[dict[str, Any]], labels: dict[str, str]) -> dict[str, str] | None:
    """Prometheus' relabelling, of the actions used here; None for a dropped target."""
    labels = dict(labels)
    for rule in rules:
        action = rule.get("action", "replace")
        value = ";".join(labels.get(name, "") for name in rule.get("source_labels", []))
        match = re.fullmatch(rule.get("regex", "(.*)"), value)
        if action == "labelmap":
            for name in list(labels):
                if mapped := re.fullmatch(rule["regex"], name):
                    labels[mapped[1]] = labels[name]
        elif action == "dropequal":
            if value == labels.get(rule["target_label"], ""):
                return None
        elif action in {"keep", "drop"}:
            if bool(match) != (action == "keep"):
                return None
        elif match:
            replacement = re.sub(r"\$(\d)", r"\\\1", rule.get("replacement", "$1"))
            labels[rule["target_label"]] = match.expand(replacement)
    return labels


def _scraped(job: str, target: dict[str, str]) -> str | None:
    """URL that a job scrapes for a target."""
    jobs = {item["job_name"]: item for item in prometheus.config(_FILES, 5)["scrape_configs"]}
    labels = _relabel(jobs[job]["relabel_configs"], target)
    if labels is None:
        return None
    return f"{labels['__scheme__']}://{labels['__address__']}{labels['__metrics_path__']}"


@pytest.mark.parametrize(
    ("target", "url"),
    [
        (_target(), "http://10.88.1.7:8000/metrics"),
        (_target(annotation_prometheus_io_port="9000"), "http://10.88.1.7:9000/metrics"),
        (_target(annotation_prometheus_io_port=""), "http://10.88.1.7:8000/metrics"),
        (_target(annotation_prometheus_io_port="http"), "http://10.88.1.7:8000/metrics"),
        (_target(annotation_prometheus_io_path="/stats"), "http://10.88.1.7:8000/stats"),
        (_target(annotation_prometheus_io_scheme="https"), "https://10.88.1.7:8000/metrics"),
        (_target(annotation_prometheus_io_scrape="false"), None),
        (_target(annotation_prometheus_io_scrape=""), None),
        (
            _target(annotation_prometheus_io_scrape="", label_prometheus_io_scrape="true"),
            "http://10.88.1.7:8000/metrics",
        ),
        (
            _target(annotation_prometheus_io_port="", label_prometheus_io_port="9001"),
            "http://10.88.1.7:9001/metrics",
        ),
        (_target(phase="Succeeded"), None),
        (_target(phase="Failed"), None),
        (_target(phase="Pending"), "http://10.88.1.7:8000/metrics"),
        (_target(container_init="true"), None),
    ],
)
def test_annotated_pod_is_scraped_where_it_says(target: dict[str, str], url: str | None) -> None:
    assert _scraped("pods", target) == url


@pytest.mark.parametrize(
    ("port_name", "port_number", "annotated", "url"),
    [
        ("payload-metrics", "9400", "8000", "http://10.88.1.7:9400/metrics"),
        ("metrics", "9400", "8000", "http://10.88.1.7:9400/metrics"),
        ("http", "9400", "8000", None),
        ("metrics", "8000", "8000", None),
        ("metrics", "9400", "", None),
    ],
)
def test_second_metrics_port_is_scraped_once(port_name: str, port_number: str, annotated: str, url: str | None) -> None:
    target = _target(
        container_port_name=port_name,
        container_port_number=port_number,
        annotation_prometheus_io_port=annotated,
    )
    target["__address__"] = f"10.88.1.7:{port_number}"
    assert _scraped("pod-ports", target) == url


def test_ports_of_one_pod_become_one_target() -> None:
    """Discovery offers a target per port; equal label sets are scraped once."""
    rules = next(item for item in prometheus.config(_FILES, 5)["scrape_configs"] if item["job_name"] == "pods")
    seen = {
        tuple(sorted((key, value) for key, value in labels.items() if not key.startswith("__meta")))
        for number in ("8000", "9400")
        if (labels := _relabel(rules["relabel_configs"], _target(container_port_number=number)))
    }
    assert len(seen) == 1


def test_series_carry_namespace_pod_node_and_the_pods_labels() -> None:
    rules = next(item for item in prometheus.config(_FILES, 5)["scrape_configs"] if item["job_name"] == "pods")
    labels = _relabel(rules["relabel_configs"], _target()) or {}
    kept = {key: value for key, value in labels.items() if not key.startswith("__")}
    assert kept == {"app": "web", "namespace": "team", "node": "node-1", "pod": "web-1"}


def test_interval_is_the_one_asked_for_and_timeouts_fit_into_it(tmp_path: Path) -> None:
    files = Files(tmp_path)
    prometheus.write_config(files, 2)
    written = yaml.safe_load((tmp_path / "prometheus" / "prometheus.yml").read_text())
    assert written["global"]["scrape_interval"] == "2s"
    assert written["global"]["scrape_timeout"] == "2s"
    assert prometheus.config(files, 60)["global"]["scrape_timeout"] == "10s"
