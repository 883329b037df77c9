"""A stand-in for prometheus-operator: Prometheus scrapes the PodMonitors that its object selects, and nothing else.

It turns what the operator's PodMonitors say into scrape jobs, as prometheus-operator does: namespace, labels of the
pods, port by name, path, interval. So a PodMonitor that kube-prometheus-stack would not choose brings no figure.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import requests
import yaml
from tests import definitions

from devcluster import Cluster

Json = dict[str, Any]
STACK = {"release": "kube-prometheus-stack"}
"""The selector of kube-prometheus-stack where nobody set another one."""
_POD = "__meta_kubernetes_pod_"


@contextmanager
def stack(cluster: Cluster) -> Iterator[None]:
    """The definitions, kube-prometheus-stack's Prometheus object as its defaults make it, and the stand-in at work."""
    definitions.install(cluster, [*definitions.read("monitoring"), definitions.PROMETHEUS])
    spec = {"podMonitorSelector": {"matchLabels": STACK}, "podMonitorNamespaceSelector": {}}
    meta = {"name": "kube-prometheus-stack-prometheus", "namespace": "monitoring"}
    server = {"apiVersion": f"{definitions.MONITORING}/v1", "kind": "Prometheus", "metadata": meta, "spec": spec}
    cluster.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(server))
    stop = threading.Event()
    thread = threading.Thread(target=_work, args=(cluster, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10.0)


def _work(cluster: Cluster, stop: threading.Event) -> None:
    path = cluster.state_dir / "prometheus" / "prometheus.yml"
    base = yaml.safe_load(path.read_text())
    chosen = ",".join(f"{key}={value}" for key, value in STACK.items())
    former = None
    while not stop.wait(2.0):
        found = cluster.kubectl("get", "podmonitors", "-A", "-l", chosen, "-o", "json", check=False)
        config = config_of(base, json.loads(found.stdout)["items"]) if found.returncode == 0 else former
        if config != former:
            path.write_text(yaml.safe_dump(config))
            requests.post(f"{cluster.prometheus_url}/-/reload", timeout=10).raise_for_status()
            former = config


def config_of(base: Json, monitors: list[Json]) -> Json:
    """The development cluster's configuration with the jobs of these PodMonitors in place of its own."""
    (discovery,) = next(one for one in base["scrape_configs"] if one["job_name"] == "pods")["kubernetes_sd_configs"]
    return base | {"scrape_configs": [job for monitor in monitors for job in _jobs(monitor, discovery)]}


def _jobs(monitor: Mapping[str, Any], discovery: Json) -> Iterator[Json]:
    meta, spec = monitor["metadata"], monitor["spec"]
    for number, endpoint in enumerate(spec["podMetricsEndpoints"]):
        yield {
            "job_name": f"podMonitor/{meta['namespace']}/{meta['name']}/{number}",
            "kubernetes_sd_configs": [discovery | {"namespaces": {"names": [meta["namespace"]]}}],
            "metrics_path": endpoint["path"],
            "scrape_interval": endpoint["interval"],
            "scrape_timeout": endpoint["scrapeTimeout"],
            "relabel_configs": [
                *(_keep(f"label_{re.sub('[^a-zA-Z0-9_]', '_', key)}", value)
                  for key, value in spec["selector"]["matchLabels"].items()),
                _keep("container_port_name", endpoint["port"]),
                {"action": "drop", "source_labels": [f"{_POD}phase"], "regex": "Succeeded|Failed"},
                {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
                {"source_labels": [f"{_POD}name"], "target_label": "pod"},
            ],
        }  # fmt: skip


def _keep(label: str, value: str) -> Json:
    return {"action": "keep", "source_labels": [f"{_POD}{label}"], "regex": re.escape(value)}
