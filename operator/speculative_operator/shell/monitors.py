"""The cluster's Prometheus servers: by which labels they choose PodMonitors, and which one is to be asked. Asked by
`resync` when it looks what there is.

A Prometheus of prometheus-operator scrapes the PodMonitors that its `spec.podMonitorSelector` selects: in
kube-prometheus-stack those with the label `release: NAME`. PodMonitors of serving pods bear what these selectors ask
for, so that nobody has to look it up; nor has anybody to look up the address of the only server that there is.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from speculative_operator.settings import Settings
from speculative_operator.shell.errors import ApiError
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.prometheus import Address
from speculative_operator.shell.resources import Resource

log = logging.getLogger(__name__)

DEFAULT_URL = str(Settings.model_fields["prometheus_url"].default)
_GROUP = "monitoring.coreos.com/v1"
SERVERS = (
    Resource(_GROUP, "Prometheus", "prometheuses"),
    Resource("monitoring.coreos.com/v1alpha1", "PrometheusAgent", "prometheusagents"),
)
_KEY = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_SERVICE = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_PREFIX = re.compile(r"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*/?")
_MOST = 8
_TOLD = 4
_OF_OPENSHIFT = "openshift-"
_REMEDY = "set the address of the one that has the pods' metrics (chart: prometheus.url)"
_NOT_FOR_US = frozenset((403, 404, 405))


async def servers_of(kube: Kube, namespace: str, *, everywhere: bool) -> list[Mapping[str, Any]]:
    """The Prometheus and PrometheusAgent objects of the cluster, or of `namespace` where the roles allow no more; empty
    where they allow none. Without `everywhere` the roles are asked for first, because those of an operator of some
    namespaces mostly allow nothing of the kind. Raises ApiError where the answer is not known."""
    found: list[Mapping[str, Any]] = []
    for server in SERVERS:
        try:
            if not await kube.is_served(server):
                continue
            within = "" if everywhere else await _readable(kube, server, namespace)
            if within is not None:
                found += [one async for one in kube.list(server, within)]
        except ApiError as error:
            if error.status not in _NOT_FOR_US:
                raise
            log.info("no %s may be read: %s", server.plural, error)
    return found


async def _readable(kube: Kube, server: Resource, namespace: str) -> str | None:
    """The namespace in which the roles allow listing `server`: empty for all namespaces, None for none."""
    for within in ("", namespace):
        if await kube.may("list", server, within):
            return within
    return None


def namespace_of(url: str) -> str:
    """Namespace of the Service that the URL of Prometheus names; empty where it names none."""
    parts = (urlsplit(url).hostname or "").split(".")
    return parts[1] if len(parts) >= 3 and parts[2] == "svc" else ""


def labels_of(servers: Iterable[Mapping[str, Any]], namespace: str = "") -> dict[str, str]:
    """The labels that the selectors of the servers in `namespace` ask for together, or of all servers where it has
    none. A label for which two servers want other values is left out: the settings must say which of them counts."""
    every = list(servers)
    ours = [one for one in every if (one.get("metadata") or {}).get("namespace") == namespace] or every
    wanted: dict[str, set[str]] = {}
    for server in ours:
        selector = (server.get("spec") or {}).get("podMonitorSelector")
        for key, value in _example_labels(selector) if isinstance(selector, Mapping) else ():
            if _is_allowed(key, value):
                wanted.setdefault(key, set()).add(value)
    agreed = sorted((key, min(values)) for key, values in wanted.items() if len(values) == 1)
    return dict(agreed[:_MOST])


def address_of(servers: Iterable[Mapping[str, Any]]) -> Address:
    """Address of the only Prometheus server; the default address where there is none. Of several servers the one in the
    default's namespace; else the settings must choose, because each server has other pods, and `fault` says so."""
    found = [one for one in servers if one.get("kind") == "Prometheus" and _is_sound(one)]
    ours = [one for one in found if not _place(one)[0].startswith(_OF_OPENSHIFT)]
    default = [one for one in ours if _place(one)[0] == namespace_of(DEFAULT_URL)]
    if len(default) == 1 or len(ours) == 1:
        return Address(_url(*(default if len(default) == 1 else ours)))
    if ours:
        places = ", ".join(sorted("/".join(_place(one)) for one in ours)[:_TOLD])
        return Address("", f"there are {len(ours)} Prometheus servers ({places}): {_REMEDY}")
    if found:
        return Address("", f"OpenShift's own Prometheus servers answer through Thanos only: {_REMEDY}")
    return Address(DEFAULT_URL)


def _is_sound(server: Mapping[str, Any]) -> bool:
    """False where the fields that become parts of the address would make it another one than that of a Service."""
    spec = server.get("spec") or {}
    service, prefix = spec.get("serviceName") or "prometheus-operated", spec.get("routePrefix") or "/"
    sound = _matches(_SERVICE, service) and _matches(_PREFIX, prefix)
    if not sound:
        log.warning("Prometheus %s/%s is passed over: serviceName or routePrefix is none", *_place(server))
    return sound


def _matches(form: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and form.fullmatch(value) is not None


def _place(server: Mapping[str, Any]) -> tuple[str, str]:
    return server["metadata"]["namespace"], server["metadata"]["name"]


def _url(server: Mapping[str, Any]) -> str:
    """URL of the Service that prometheus-operator makes for the server."""
    spec = server.get("spec") or {}
    scheme = "https" if (spec.get("web") or {}).get("tlsConfig") else "http"
    service, prefix = spec.get("serviceName") or "prometheus-operated", str(spec.get("routePrefix") or "").strip("/")
    return f"{scheme}://{service}.{_place(server)[0]}.svc:9090{'/' if prefix else ''}{prefix}"


def _example_labels(selector: Mapping[str, Any]) -> Iterable[tuple[Any, Any]]:
    yield from (selector.get("matchLabels") or {}).items()
    for one in selector.get("matchExpressions") or ():
        if one.get("operator") == "In" and one.get("values"):
            yield one.get("key"), one["values"][0]
        elif one.get("operator") == "Exists":
            yield one.get("key"), "true"


def _is_allowed(key: Any, value: Any) -> bool:
    """False for a text that is no label, and for a label with a prefix: other programs own those, and act by them."""
    return _matches(_KEY, key) and _matches(_VALUE, value)
