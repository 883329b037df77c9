"""Definitions of other projects' kinds (tests/fixtures), for tests that apply objects of these kinds to an API server.
No controller of them works here."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from devcluster import Cluster

Json = dict[str, Any]
FIXTURES = Path(__file__).parent / "fixtures"


def read(project: str) -> list[Json]:
    """The definitions of `monitoring`, `keda` or `olm`."""
    found: list[Json] = json.loads(gzip.decompress((FIXTURES / project / "definitions.json.gz").read_bytes()))
    return found


def install(cluster: Cluster, definitions: list[Json]) -> None:
    """Apply them, and wait until their kinds are served."""
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": definitions})
    cluster.kubectl("apply", "--server-side", "-f", "-", input=body)
    cluster.wait_for_kinds(*(one["metadata"]["name"] for one in definitions))


def stand_in(group: str, version: str, kind: str, plural: str) -> Json:
    """A definition that takes any object, for a kind of which one field is read and nothing written."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
    named = {"plural": plural, "kind": kind, "listKind": f"{kind}List", "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": named, "versions": [served]},
    }  # fmt: skip


MONITORING = "monitoring.coreos.com"
PROMETHEUS = stand_in(MONITORING, "v1", "Prometheus", "prometheuses")
AGENT = stand_in(MONITORING, "v1alpha1", "PrometheusAgent", "prometheusagents")


def accepted(cluster: Cluster, body: Json) -> Json:
    """The object as the API server would store it; a field that the definition lacks is refused instead of dropped."""
    strictly = ("--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict")
    done = cluster.kubectl("apply", *strictly, "-o", "json", "-f", "-", input=json.dumps(body))
    assert "Warning" not in done.stderr, done.stderr
    found: Json = json.loads(done.stdout)
    return found
