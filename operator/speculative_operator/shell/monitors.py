"""Labels by which the cluster's Prometheus servers choose PodMonitors. Asked by `resync` when it looks what there is.

A Prometheus of prometheus-operator scrapes the PodMonitors that its `spec.podMonitorSelector` selects: in
kube-prometheus-stack those with the label `release: NAME`. PodMonitors of serving pods bear what these selectors ask
for, so that nobody has to look it up.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any

from speculative_operator.domain import names
from speculative_operator.shell.errors import ApiError
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.resources import Resource

log = logging.getLogger(__name__)

_GROUP = "monitoring.coreos.com/v1"
SERVERS = (
    Resource(_GROUP, "Prometheus", "prometheuses"),
    Resource("monitoring.coreos.com/v1alpha1", "PrometheusAgent", "prometheusagents"),
)
_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_MOST = 8


async def wanted_labels(kube: Kube, before: Mapping[str, str]) -> dict[str, str]:
    """The labels that a PodMonitor needs in this cluster; those `before` where nobody may ask, or can."""
    found: list[Mapping[str, Any]] = []
    for server in SERVERS:
        try:
            if await kube.served(server):
                found += [one async for one in kube.list(server)]
        except ApiError as error:
            log.info(
                "the selectors of Prometheus servers cannot be read, so that PodMonitors keep their labels: %s", error
            )
            return dict(before)
    return labels_of(found)


def labels_of(servers: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """What the selectors of all servers ask for together. Where two ask for other values of one label, the first server
    by namespace and name has its own: a PodMonitor cannot be chosen by both."""
    labels: dict[str, str] = {}
    for server in sorted(servers, key=_name):
        selector = (server.get("spec") or {}).get("podMonitorSelector")
        for key, value in _asked(selector) if isinstance(selector, Mapping) else ():
            if _allowed(key, value) and len(labels) < _MOST:
                labels.setdefault(key, value)
    return labels


def _name(server: Mapping[str, Any]) -> tuple[str, str]:
    meta = server.get("metadata") or {}
    return str(meta.get("namespace", "")), str(meta.get("name", ""))


def _asked(selector: Mapping[str, Any]) -> Iterable[tuple[Any, Any]]:
    yield from (selector.get("matchLabels") or {}).items()
    for one in selector.get("matchExpressions") or ():
        if one.get("operator") == "In" and one.get("values"):
            yield one.get("key"), one["values"][0]
        elif one.get("operator") == "Exists":
            yield one.get("key"), "true"


def _allowed(key: Any, value: Any) -> bool:
    """False for what is no label, and for labels by which the operator and Kubernetes know objects."""
    if not isinstance(key, str) or not isinstance(value, str) or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
        return False
    return not key.startswith(("app.kubernetes.io/", f"{names.GROUP}/"))
