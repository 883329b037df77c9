"""Values of each template, complete: a template only places them. Called by `manifests`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.platform import Route
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.domain.table import BLOCK_STEPS, KTable, Trial
from speculative_operator.engines.images import mirror_of
from speculative_operator.engines.shared.arguments import ALL_INTERFACES
from speculative_operator.render import metadata, podspec, requests
from speculative_operator.render.bringing import bringing, join_volumes
from speculative_operator.render.inputs import RenderInput
from speculative_operator.render.metadata import digest
from speculative_operator.render.targets import target_of


def common(spec: DeploymentSpec, name: str) -> dict[str, Any]:
    """Values that every template takes: name and labels of the child, and its owner."""
    return {
        "name": name,
        "namespace": spec.namespace,
        "labels": metadata.common(spec),
        "selector": names.selector(spec.name, spec.candidate_of),
        "owner": metadata.owner(spec),
        "port_name": names.SERVING_PORT_NAME,
        "port": spec.port,
    }


def network(inp: RenderInput) -> dict[str, Any]:
    """Values of the children that reach pods: each port with its path of metrics, and who may reach which port."""
    ports = podspec.ports(inp)
    open_to_all = [one for one in ports if one["number"] != names.TELEMETRY_PORT or not _scrapers(inp)]
    rules = [{"ports": _allowed([*open_to_all, {"number": names.AMBIENT_PORT}])}]
    if len(open_to_all) < len(ports):
        rules.append({"ports": _allowed([one for one in ports if one not in open_to_all]), "from": _scrapers(inp)})
    return {"ports": ports, "ingress": rules}


def _allowed(ports: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{"port": one["number"], "protocol": "TCP"} for one in ports]


def scraping(inp: RenderInput, labels: Mapping[str, str]) -> dict[str, Any]:
    """Values of the PodMonitor beside its ports: its labels, and how often pods are scraped."""
    seconds = inp.capabilities.monitor_seconds
    return {
        "labels": {**dict(inp.capabilities.monitor_labels), **labels},
        "interval": f"{seconds}s",
        "timeout": f"{seconds - 1}s",
    }


def route(spec: DeploymentSpec, given: Route, canary: str) -> dict[str, Any]:
    """Values of the HTTPRoute: the Gateway and its one rule. `canary`: the Service that gets the canary's share."""
    told = {"name": given.gateway, "namespace": given.gateway_namespace, "sectionName": given.listener}
    rewritten = {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}}
    return {
        "gateway": {key: value for key, value in told.items() if value},
        "hostnames": list(given.hostnames),
        "path": given.path,
        "filters": [{"type": "URLRewrite", "urlRewrite": rewritten}] if given.path != "/" else [],
        "backends": _backends(spec, given, canary),
    }


def _backends(spec: DeploymentSpec, given: Route, canary: str) -> list[dict[str, Any]]:
    own = {"name": names.child(spec.name), "port": spec.port}
    if given.canary is None or not canary:
        return [own]
    weight = given.canary.weight
    # Without KServe, to which no route leads, every Service has the same port.
    return [{**own, "weight": 100 - weight}, {"name": canary, "port": spec.port, "weight": weight}]


def _scrapers(inp: RenderInput) -> list[dict[str, Any]]:
    return [dict(one) for one in inp.capabilities.step_metrics_from]


def _arguments(inp: RenderInput) -> list[str]:
    """The engine's arguments. Where pods have addresses of IPv6 first, engines listen at "::", which Linux has answer
    IPv4 too; elsewhere a kernel may have no IPv6, and "::" would keep the engine from starting."""
    found = list(inp.container.args)
    if inp.capabilities.ipv6 and ALL_INTERFACES in found:
        found[found.index(ALL_INTERFACES)] = "::"
    return found


def deployment(inp: RenderInput) -> dict[str, Any]:
    """Values of the Deployment."""
    spec, container = inp.spec, inp.container
    volumes, mounts = podspec.volumes_and_mounts(inp)
    brought = bringing(inp)
    scheme = "https" if spec.inference_service.tls else ""
    if brought is not None:
        volumes, mounts = join_volumes(volumes, brought.volumes), [*mounts, brought.mount]
    return {
        **common(spec, names.child(spec.name)),
        **network(inp),
        "annotations": _deployment_annotations(inp),
        "owns_replicas": inp.owns_replicas,
        "replicas": spec.replicas,
        "strategy": inp.strategy,
        "progress_deadline": container.startup_seconds
        + podspec.PROGRESS_MARGIN_SECONDS
        + (brought.seconds if brought is not None else 0),
        "pod_labels": {**metadata.of_pods(spec), **target_of(spec).labels(spec)},
        "pod_annotations": {
            "prometheus.io/scrape": "true",
            "prometheus.io/port": str(spec.port),
            "prometheus.io/path": container.metrics_path,
            **({"prometheus.io/scheme": scheme} if scheme else {}),
            **target_of(spec).annotations(spec),
            **podspec.file_annotations(inp),
        },
        "grace_seconds": podspec.grace_seconds(container.shutdown_seconds),
        "run_as_user": podspec.run_as_user(inp),
        "init_containers": brought.containers if brought is not None else (),
        "container": names.CONTAINER,
        "image": container.image if spec.engine.image else mirror_of(container.image, inp.capabilities.engine_registry),
        "command": list(container.command),
        "args": _arguments(inp),
        "env": podspec.environment(container.env),
        "requests": requests.requests(inp),
        "limits": podspec.limits(inp),
        "health": {
            "path": "/health",
            "port": names.SERVING_PORT_NAME,
            **({"scheme": scheme.upper()} if scheme else {}),
        },
        "startup_period": podspec.STARTUP_PERIOD_SECONDS,
        "startup_failures": podspec.startup_failures(container.startup_seconds),
        "pre_stop_seconds": podspec.PRE_STOP_SECONDS,
        "volumes": volumes,
        "mounts": mounts,
    }


def table_text(table: KTable, version: int, *, trials: Sequence[Trial] = (), until: float = 0.0) -> str:
    """Content of the table file that the payload reads."""
    content = _content(table, version)
    if trials:
        rows = [[one.first, one.last, list(one.ks), one.share] for one in trials]
        content["try"] = {"steps": BLOCK_STEPS, "rows": rows}
    if until:
        content["until"] = until
    return _json(content)


def table_digest(uid: str, table: KTable, version: int, *, removed: bool) -> str:
    """Digest of the table in the Deployment's annotation of object `uid`; it betrays an annotation edited by hand."""
    return digest([uid, _content(table, version, removed=removed)], 16)


def _content(table: KTable, version: int, *, removed: bool = False) -> dict[str, Any]:
    content: dict[str, Any] = {"version": version, "rows": table.rows()}
    return content | ({"speculatorRemoved": True} if removed else {})


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"))


def _deployment_annotations(inp: RenderInput) -> dict[str, str]:
    """Annotations of the Deployment; with the table, or the lack of a speculator, where that is in the pod template.

    An operator that is killed between changing it and writing status then finds it here instead of rolling back.
    """
    borne = {names.ANNOTATION_MADE_OF: inp.made_of} if inp.made_of else {}
    table, removed = inp.waiting or inp.table, inp.waiting is not None
    if table is None or inp.live:
        return borne
    content = _content(table, inp.table_version, removed=removed)
    mark = table_digest(inp.spec.uid, table, inp.table_version, removed=removed)
    return {**borne, names.ANNOTATION_TABLE: _json({**content, "digest": mark})}
