"""A real Prometheus inside the enclosure that finds pods by their annotations, as on many clusters.

It runs beside the pods, not as one: it has its own ServiceAccount, Service and address in namespace `monitoring`, so
that pods reach it by name and network policies that admit the namespace `monitoring` fit. Called by `cluster.py`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from devcluster import addresses
from devcluster.apiclient import ApiClient
from devcluster.component import Component
from devcluster.controlplane import INSIDE_SERVER, Files, flags
from devcluster.pki import write_private
from devcluster.toolchain import Toolchain

NAMESPACE = "monitoring"
NAME = "prometheus"
SERVICE = "prometheus-operated"
"""The name that the Prometheus operator gives its Service, so that what expects one finds this one."""
INSIDE_URL = f"http://{addresses.PROMETHEUS}:{addresses.PROMETHEUS_PORT}"
_TOKEN_SECONDS = 365 * 24 * 3600
_POD = "__meta_kubernetes_pod_"
_ANNOTATION = f"{_POD}annotation_prometheus_io_"
_LABEL = f"{_POD}label_prometheus_io_"


def token_path(files: Files) -> Path:
    """ServiceAccount token of Prometheus; it starts when the file is there."""
    return files.directory / "prometheus" / "token"


def component(files: Files, tools: Toolchain) -> Component:
    """The supervised server."""
    directory = files.directory / "prometheus"
    return Component(
        name="prometheus",
        argv=(
            str(tools.prometheus),
            *flags(
                {
                    "config.file": directory / "prometheus.yml",
                    "storage.tsdb.path": directory / "data",
                    "storage.tsdb.retention.time": "1d",
                    "web.listen-address": f"{addresses.PROMETHEUS}:{addresses.PROMETHEUS_PORT}",
                }
            ),
            "--web.enable-lifecycle",
        ),
        ready=f"{INSIDE_URL}/-/ready",
        after=("kube-apiserver",),
        needs=(str(token_path(files)),),
    )


def write_config(files: Files, scrape_interval_seconds: int) -> None:
    """Write prometheus.yml."""
    directory = files.directory / "prometheus"
    directory.mkdir(exist_ok=True)
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config(files, scrape_interval_seconds), sort_keys=False))


def config(files: Files, scrape_interval_seconds: int) -> dict[str, Any]:
    """Pods with `prometheus.io/scrape: "true"` as annotation or label are scraped at `prometheus.io/port` and `path`.

    Container ports named `metrics` or `*-metrics` of such a pod are scraped too: one annotation cannot name two ports.
    """
    tls = {"ca_file": str(files.authority)}
    authorization = {"credentials_file": str(token_path(files))}
    discovery = {"role": "pod", "api_server": INSIDE_SERVER, "tls_config": tls, "authorization": authorization}
    return {
        "global": {
            "scrape_interval": f"{scrape_interval_seconds}s",
            "scrape_timeout": f"{min(scrape_interval_seconds, 10)}s",
            "evaluation_interval": f"{scrape_interval_seconds}s",
        },
        "scrape_configs": [
            {"job_name": "prometheus", "static_configs": [{"targets": [INSIDE_URL.removeprefix("http://")]}]},
            {
                "job_name": "pods",
                # As in the chart `prometheus`: the operator's metrics of an object name the object's namespace.
                "honor_labels": True,
                "tls_config": {"insecure_skip_verify": True},  # likewise: certificates name Services, targets are pods
                "kubernetes_sd_configs": [discovery],
                "relabel_configs": [*_wanted_pods(), *_annotated_address(), *_pod_labels()],
            },
            {
                "job_name": "pod-ports",
                "kubernetes_sd_configs": [discovery],
                "relabel_configs": [*_wanted_pods(), *_other_metrics_ports(), *_pod_labels()],
            },
        ],
    }


def _wanted_pods() -> Iterator[dict[str, Any]]:
    yield {
        "action": "keep",
        "source_labels": [f"{_ANNOTATION}scrape", f"{_LABEL}scrape"],
        "regex": "true;.*|.*;true",
    }
    yield {"action": "drop", "source_labels": [f"{_POD}phase"], "regex": "Succeeded|Failed"}
    yield {"action": "drop", "source_labels": [f"{_POD}container_init"], "regex": "true"}


def _annotated_address() -> Iterator[dict[str, Any]]:
    for source, regex, target in (
        # A pod without the port annotation is scraped at each declared port, which is what discovery offers.
        ([f"{_POD}ip", f"{_LABEL}port"], r"([^;]+);(\d+)", "__address__"),
        ([f"{_POD}ip", f"{_ANNOTATION}port"], r"([^;]+);(\d+)", "__address__"),
    ):
        yield {"source_labels": source, "regex": regex, "target_label": target, "replacement": "$1:$2"}
    yield {"source_labels": [f"{_ANNOTATION}path"], "regex": "(.+)", "target_label": "__metrics_path__"}
    yield {"source_labels": [f"{_ANNOTATION}scheme"], "regex": "(https?)", "target_label": "__scheme__"}


def _other_metrics_ports() -> Iterator[dict[str, Any]]:
    port = f"{_POD}container_port_"
    yield {"action": "keep", "source_labels": [f"{port}name"], "regex": "(.+-)?metrics"}
    yield {"action": "dropequal", "source_labels": [f"{_ANNOTATION}port"], "target_label": f"{port}number"}
    # Without the annotation the port was scraped by the other job.
    yield {"action": "keep", "source_labels": [f"{_ANNOTATION}port", f"{_LABEL}port"], "regex": r".*\d.*"}


def _pod_labels() -> Iterator[dict[str, Any]]:
    """The labels that a PodMonitor gives, and the pod's own."""
    yield {"action": "labelmap", "regex": f"{_POD}label_(.+)"}
    for source, target in ((f"{_POD}name", "pod"), (f"{_POD}node_name", "node")):
        yield {"source_labels": [source], "target_label": target}
    yield {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"}


def bootstrap(client: ApiClient, files: Files) -> None:
    """Create Prometheus' objects and its token; run when the API server is ready."""
    client.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    namespaced = f"/api/v1/namespaces/{NAMESPACE}"
    client.create(f"{namespaced}/serviceaccounts", {"metadata": {"name": NAME}})
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    client.create(f"{rbac}/clusterroles", _cluster_role())
    client.create(f"{rbac}/clusterrolebindings", _cluster_role_binding())
    client.create(f"{namespaced}/services", _service())
    client.create(f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices", _endpoint_slice())
    answer = client.request(
        "POST",
        f"{namespaced}/serviceaccounts/{NAME}/token",
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": _TOKEN_SECONDS},
        },
    )
    partial = token_path(files).with_suffix(".partial")
    write_private(partial, answer["status"]["token"].encode())
    partial.rename(token_path(files))


def _cluster_role() -> dict[str, Any]:
    return {
        "metadata": {"name": NAME},
        "rules": [
            {"apiGroups": [""], "resources": ["pods", "services", "nodes"], "verbs": ["get", "list", "watch"]},
            {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
        ],
    }


def _cluster_role_binding() -> dict[str, Any]:
    return {
        "metadata": {"name": NAME},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
    }


def _service() -> dict[str, Any]:
    return {
        "metadata": {"name": SERVICE},
        "spec": {
            "clusterIP": addresses.PROMETHEUS_SERVICE,
            "ports": [{"name": "web", "port": addresses.PROMETHEUS_PORT}],
        },
    }


def _endpoint_slice() -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"{SERVICE}-devcluster",
            "labels": {
                "kubernetes.io/service-name": SERVICE,
                "endpointslice.kubernetes.io/managed-by": "devcluster",
            },
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [addresses.PROMETHEUS], "conditions": {"ready": True}}],
        "ports": [{"name": "web", "port": addresses.PROMETHEUS_PORT, "protocol": "TCP"}],
    }
