"""The inspection of a cluster by `doctor`: what it asks of the cluster once for all its checks, the findings of a
check, and the checks on what is installed: the definition, the operator's Deployment, and what it may do.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from speculative_operator import __version__
from speculative_operator.cli.cluster import Cluster, Object
from speculative_operator.cli.commands import UnseenError
from speculative_operator.cli.diagnosis import Finding, faults_of, warnings_of
from speculative_operator.domain import names

GOOD, WRONG, UNKNOWN = "ok", "wrong", "unknown"
OPERATORS = f"app.kubernetes.io/name={names.OPERATOR}"
OURS = f"{names.LABEL_MANAGED_BY}={names.OPERATOR}"


@dataclass(frozen=True, slots=True)
class Found:
    """One thing that a check found."""

    message: str
    next: str = ""
    """The command or field that mends it."""
    result: str = WRONG


class Look:
    """One look at a cluster. Every member raises UnseenError where this user may not ask."""

    def __init__(self, at: Cluster) -> None:
        self.at = at
        self.narrow = False
        """True where only objects of the user's namespace could be listed."""

    @cached_property
    def operators(self) -> list[Object]:
        """Deployments of the operator."""
        return self.at.list_objects("apps/v1", "deployments", label_selector=OPERATORS)

    @cached_property
    def objects(self) -> list[Object]:
        """SpeculativeDeployments of all namespaces, else of the user's own."""
        try:
            return self.at.objects(everywhere=True)
        except UnseenError:
            self.narrow = True
            return self.at.objects()

    @cached_property
    def pods(self) -> list[Object]:
        """Pods of all namespaces that have not ended."""
        return self.at.every_pod(field_selector="status.phase!=Succeeded,status.phase!=Failed")

    @cached_property
    def figures(self) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
        """The operator's own metrics, of the pod that leads: name without its prefix -> labels -> value. Empty where no
        pod leads."""
        from prometheus_client.parser import text_string_to_metric_families

        prefix = "speculative_operator_"
        for pod in self.at.every_pod(label_selector=OPERATORS, field_selector="status.phase=Running"):
            found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
            for family in text_string_to_metric_families(self.at.page(pod, "8080", "metrics")):
                for one in family.samples:
                    labels = tuple(sorted(one.labels.items()))
                    found.setdefault(one.name.removeprefix(prefix), {})[labels] = one.value
            if found.get("leader", {}).get((), 1.0):
                return found
        return {}

    @cached_property
    def leads(self) -> bool:
        """True unless it is known that no operator leads: what the status of an object says may then be old."""
        try:
            return bool(self.figures)
        except UnseenError:
            return self.at.operator_silent(time.time()) is None

    def pods_of(self, body: Object) -> list[Object]:
        """Serving pods of an object."""
        meta = body["metadata"]
        wanted = names.selector(meta["name"]).items()
        return [
            pod
            for pod in self.pods
            if pod["metadata"]["namespace"] == meta["namespace"]
            and wanted <= (pod["metadata"].get("labels") or {}).items()
        ]

    def findings(self) -> Iterator[tuple[Object, Finding]]:
        """Yield every object with each finding that its status gives."""
        for body in self.objects:
            for one in (*faults_of(body), *warnings_of(body)):
                yield body, one


def full_name(body: Object) -> str:
    """Namespace and name of an object."""
    return f"{body['metadata']['namespace']}/{body['metadata']['name']}"


_DEFINITION = f"{names.PLURAL}.{names.GROUP}"
_INSTALL = "helm install the chart (README.md)"
_UPGRADE = "helm upgrade the chart, or kubectl apply --server-side -f crds/ of the operator's release"
_MOST_NAMED = 5


def first_few(every: Sequence[str]) -> str:
    """The first of these names or rights, and how many there are besides."""
    more = f" and {len(every) - _MOST_NAMED} more" if every[_MOST_NAMED:] else ""
    return f"{', '.join(every[:_MOST_NAMED])}{more}"


def definition(look: Look) -> Iterator[Found]:
    """Yield a finding where the CRD is missing, or lacks fields of the status: the API server drops what is written
    there."""
    from speculative_operator.api.crd import schema

    found = look.at.list_objects(
        "apiextensions.k8s.io/v1", "customresourcedefinitions", field_selector=f"metadata.name={_DEFINITION}"
    )
    if not found:
        yield Found("the definition of SpeculativeDeployment is not installed", _INSTALL)
        return
    versions = found[0]["spec"].get("versions") or ()
    held: Mapping[str, Any] = next(
        (one["schema"]["openAPIV3Schema"] for one in versions if one.get("name") == names.VERSION), {}
    )
    lacking = list(missing_fields(schema()["properties"]["status"], (held.get("properties") or {}).get("status") or {}))
    if not lacking:
        return
    fields = first_few(lacking)
    others = set[str]()
    with suppress(UnseenError):
        labels = [one["metadata"].get("labels") or {} for one in look.operators]
        others = {each.get("app.kubernetes.io/version") or __version__ for each in labels} - {__version__}
    if others:
        told = f"the operator is of release {', '.join(sorted(others))}, this command of {__version__}, whose {fields}"
        yield Found(f"{told} the definition does not declare", "install the command of the operator's release", UNKNOWN)
    else:
        yield Found(f"the definition is older than release {__version__}: it does not declare {fields}", _UPGRADE)


def missing_fields(wanted: Mapping[str, Any], held: Mapping[str, Any], path: str = "status") -> Iterator[str]:
    """Yield the fields of the schema `wanted` that `held` lacks, the outermost of each."""
    if held.get("x-kubernetes-preserve-unknown-fields"):
        return
    if "items" in wanted:
        yield from missing_fields(wanted["items"], held.get("items") or {}, path)
    known = held.get("properties") or {}
    for name, field in (wanted.get("properties") or {}).items():
        if name not in known:
            yield f"{path}.{name}"
        else:
            yield from missing_fields(field, known[name], f"{path}.{name}")


def operator(look: Look) -> Iterator[Found]:
    """Yield findings on the operator's Deployment, and on what its leading pod says of itself."""
    if not look.operators:
        yield Found("no Deployment of the operator was found", _INSTALL)
    for one in look.operators:
        space, name = one["metadata"]["namespace"], one["metadata"]["name"]
        if not (one.get("status") or {}).get("readyReplicas"):
            yield Found(
                f"the operator {space}/{name} has no ready pod", f"kubectl describe deployment {name} -n {space}"
            )
            return
    if look.operators and not look.figures:
        yield Found(
            "no pod of the operator leads", "kubectl get lease -A; kubectl logs of the operator says who holds it"
        )
    for labels, fails in look.figures.get("unwatched", {}).items():
        if fails:
            kind = dict(labels).get("resource", "")
            yield Found(f"the operator cannot watch {kind}, and lists them instead", "its log has the answer it got")
    if any(look.figures.get("catalogue_bad", {}).values()):
        yield Found(
            "the operator cannot read your rows of the catalogue", "its log has the line; correct pairs.catalogue"
        )


def rights(look: Look) -> Iterator[Found]:
    """Yield a finding for each right that every object needs and the operator's ServiceAccount lacks."""
    for one in look.operators:
        space, pod = one["metadata"]["namespace"], one["spec"]["template"]["spec"]
        user = f"system:serviceaccount:{space}:{pod.get('serviceAccountName') or 'default'}"
        for namespace in settings_of(pod).get("NAMESPACES", "").split(","):  # an empty name stands for all
            lacking = [
                f"{verb} {resource}"
                for resource, group, verbs in required_kinds()
                for verb in verbs
                if not look.at.may(user, namespace, verb, resource, group)
            ]
            if lacking:
                where = f"in namespace {namespace}" if namespace else "in all namespaces"
                grant = f"helm upgrade the chart with rbac.create=true; kubectl auth can-i --list --as={user}"
                yield Found(f"{user} may not {first_few(lacking)} {where}", grant)


def settings_of(pod: Object) -> dict[str, str]:
    """Name without its prefix -> value of the settings that the pod template of an operator has."""
    env = (pod.get("containers") or [{}])[0].get("env") or ()
    prefix = "SPECULATIVE_"
    return {one["name"].removeprefix(prefix): one.get("value") or "" for one in env if one["name"].startswith(prefix)}


def required_kinds() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield (resource, group, verbs) of the kinds without which no object is served. A test holds them to the
    chart's."""
    from speculative_operator.shell.resources import CHILDREN, EVENT, OWNER, POD

    yield OWNER.plural, OWNER.group, ("list", "watch")
    yield f"{OWNER.plural}/status", OWNER.group, ("patch",)
    yield POD.plural, POD.group, ("list", "watch", "patch")
    yield EVENT.plural, EVENT.group, ("create",)
    for kind in CHILDREN:
        if not kind.optional:
            yield kind.plural, kind.group, ("get", "list", "watch", "create", "patch")
