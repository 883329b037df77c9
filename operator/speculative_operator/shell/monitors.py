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
from urllib.parse import urlsplit

from speculative_operator.shell.errors import ApiError
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.resources import Resource

log = logging.getLogger(__name__)

_GROUP = "monitoring.coreos.com/v1"
SERVERS = (
    Resource(_GROUP, "Prometheus", "prometheuses"),
    Resource("monitoring.coreos.com/v1alpha1", "PrometheusAgent", "prometheusagents"),
)
_KEY = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_MOST = 8
_NOT_FOR_US = frozenset((403, 404, 405))


async def wanted_labels(kube: Kube, namespace: str) -> dict[str, str]:
    """The labels that a PodMonitor needs in this cluster; none where nobody may ask. `namespace`: of the Prometheus
    that the operator asks, where it is known. Raises ApiError where the answer is not known."""
    found: list[Mapping[str, Any]] = []
    for server in SERVERS:
        try:
            if await kube.served(server):
                found += [one async for one in kube.list(server)]
        except ApiError as error:
            if error.status not in _NOT_FOR_US:
                raise
            log.info("no selector of a Prometheus server may be read; PodMonitors get no label for it: %s", error)
    return labels_of(found, namespace)


def namespace_of(url: str) -> str:
    """Namespace of the Service that the URL of Prometheus names; empty where it names none."""
    parts = (urlsplit(url).hostname or "").split(".")
    return parts[1] if len(parts) >= 3 and parts[2] == "svc" else ""


def labels_of(servers: Iterable[Mapping[str, Any]], namespace: str = "") -> dict[str, str]:
    """What the selectors of the servers in `namespace` ask for together, or of all where none is there. A label of
    which two servers want other values is left out: which of them is to be obeyed is for the settings to say."""
    every = list(servers)
    ours = [one for one in every if (one.get("metadata") or {}).get("namespace") == namespace] or every
    wanted: dict[str, set[str]] = {}
    for server in ours:
        selector = (server.get("spec") or {}).get("podMonitorSelector")
        for key, value in _asked(selector) if isinstance(selector, Mapping) else ():
            if _allowed(key, value):
                wanted.setdefault(key, set()).add(value)
    agreed = sorted((key, min(values)) for key, values in wanted.items() if len(values) == 1)
    return dict(agreed[:_MOST])


def _asked(selector: Mapping[str, Any]) -> Iterable[tuple[Any, Any]]:
    yield from (selector.get("matchLabels") or {}).items()
    for one in selector.get("matchExpressions") or ():
        if one.get("operator") == "In" and one.get("values"):
            yield one.get("key"), one["values"][0]
        elif one.get("operator") == "Exists":
            yield one.get("key"), "true"


def _allowed(key: Any, value: Any) -> bool:
    """False for what is no label, and for one with a prefix: these belong to other programs, which act by them."""
    texts = isinstance(key, str) and isinstance(value, str)
    return texts and bool(_KEY.fullmatch(key) and _VALUE.fullmatch(value))
