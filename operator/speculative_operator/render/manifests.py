"""`render`: all children of one object, in the order in which they are best applied. Called by `reconcile`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.platform import Route
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.domain.table import KTable, Trial
from speculative_operator.render import podspec, resolved, values
from speculative_operator.render.environment import RenderError, plain, render_manifest
from speculative_operator.render.inputs import RenderInput
from speculative_operator.render.merge import merge
from speculative_operator.render.metadata import with_hash
from speculative_operator.render.targets import target_of

Manifest = dict[str, Any]


def render(inp: RenderInput) -> tuple[Manifest, ...]:
    """Every child of one object: whole intent, labelled, owned by it, and hashed.

    ConfigMaps come first: a pod whose ConfigMap is missing waits until its kubelet looks again. The Deployment's pod
    template does not depend on the table where pods re-read it. Raises RenderError.
    """
    spec = inp.spec
    children: list[Manifest] = []
    if inp.live and inp.table is not None:
        config = inp.table_config or podspec.table_name(spec)
        children.append(table_config(spec, config, inp.table, inp.table_version, trials=inp.trials))
    children.append(_deployment(inp))
    common = values.common(spec, names.child(spec.name))
    reached = {**common, **values.network(inp)}
    if not target_of(spec).reaches_pods:
        children.append(with_hash(render_manifest("service", common)))
        children.append(with_hash(render_manifest("networkpolicy", reached)))
    group = target_of(spec).group(spec)
    if group:
        among = [{"from": [{"podSelector": {"matchLabels": group}}]}]
        policy = {**common, "name": names.group(spec.name), "selector": group, "ingress": among}
        children.append(with_hash(render_manifest("networkpolicy", policy)))
    if spec.replicas > 1 or not inp.owns_replicas:
        budget = {**common, "selector": group or common["selector"]}
        children.append(with_hash(render_manifest("poddisruptionbudget", budget)))
    # A candidate's pods are scraped by the PodMonitor of the object that it is measured for.
    if inp.capabilities.pod_monitor and not spec.candidate_of:
        children.append(with_hash(render_manifest("podmonitor", {**reached, **values.scraping(inp, common["labels"])})))
    if spec.route is not None and inp.capabilities.http_route:
        children.append(http_route(spec, spec.route, inp.canary))
    return tuple(children)


def http_route(spec: DeploymentSpec, route: Route, canary: str) -> Manifest:
    """The HTTPRoute of `route`. `canary`: the Service that gets the canary's share; empty: none does."""
    common = values.common(spec, names.child(spec.name))
    return with_hash(render_manifest("httproute", {**common, **values.route(spec, route, canary)}))


def table_config(
    spec: DeploymentSpec, name: str, table: KTable, version: int, *, trials: Sequence[Trial] = (), until: float = 0.0
) -> Manifest:
    """The ConfigMap `name` with the table, which serving pods re-read. `until`: unix time at which they go back to the
    table before; 0: never."""
    return _config(spec, name, {names.TABLE_KEY: values.table_text(table, version, trials=trials, until=until)})


def notes_config(spec: DeploymentSpec, data: Mapping[str, str]) -> Manifest:
    """The ConfigMap of the object's notes, which only the operator reads; no pod mounts it."""
    return _config(spec, names.notes(spec.name), data)


def _config(spec: DeploymentSpec, name: str, data: Mapping[str, str]) -> Manifest:
    return with_hash(
        render_manifest("configmap", {**values.common(spec, name), "data": dict(data), "immutable": False})
    )


def _deployment(inp: RenderInput) -> Manifest:
    manifest = render_manifest("deployment", values.deployment(inp))
    template = merge(manifest["spec"]["template"], plain(inp.spec.template), "spec.template", field="template")
    _check_selector(inp.spec, template)
    target_of(inp.spec).check(template)
    metadata = manifest["metadata"]
    if inp.made_of:
        borne = {**metadata["annotations"], names.ANNOTATION_RESOLVED: resolved.record(inp, template)}
        metadata = {**metadata, "annotations": borne}
    return with_hash({**manifest, "metadata": metadata, "spec": {**manifest["spec"], "template": template}})


def _check_selector(spec: DeploymentSpec, template: Mapping[str, Any]) -> None:
    """Raises RenderError when overrides took away the labels by which Deployment and Service find the pods."""
    metadata = template.get("metadata")
    found = metadata.get("labels") if isinstance(metadata, Mapping) else None
    for label, wanted in names.selector(spec.name, spec.candidate_of).items():
        value = found.get(label) if isinstance(found, Mapping) else None
        if value != wanted:
            raise RenderError(
                f"spec.template.metadata.labels[{label}] is {value!r}; leave it out: it must stay {wanted!r}, "
                "the pods are found by it"
            )
