"""Look for what keeps objects from being tuned: the definition, the operator, how Prometheus finds the pods, and every
object whose conditions say that something is wrong. Each finding names what to do, and what the user may not list is
named as not looked at."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence

from speculative_operator.cli import cluster
from speculative_operator.cli.cluster import Cluster, Object
from speculative_operator.cli.diagnosis import faults_of
from speculative_operator.cli.errors import FAILED, OK, ForbiddenError
from speculative_operator.domain import names

EPILOG = """examples:
  speculative doctor

exit status: 0 nothing is wrong in what could be looked at, 1 something is"""

_OPERATORS = f"app.kubernetes.io/name={names.OPERATOR}"
_OURS = f"{names.LABEL_MANAGED_BY}={names.OPERATOR}"
_DEFINITIONS = "apiextensions.k8s.io/v1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments; `main` calls it."""
    cluster.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print what was found; the exit status. Raises CommandError."""
    at = Cluster(arguments)
    found, unseen = [], []
    for part in (_defined, _running, _scraped, _objects):
        wrong, refused = _looked(part, at)
        found += wrong
        unseen += refused
    for line in (*found, *unseen):
        print(cluster.plain(line))
    if not found:
        print("nothing is wrong in what could be looked at" if unseen else "nothing is wrong")
    return FAILED if found else OK


def _looked(part: Callable[[Cluster], Iterator[str]], at: Cluster) -> tuple[list[str], list[str]]:
    """What one part found, and what the user may not list for it."""
    try:
        return list(part(at)), []
    except ForbiddenError as problem:
        if part is not _objects:
            return [], [f"not looked at: {problem.problem}"]
    only = f"only objects of namespace {at.namespace} were looked at: you may not list those of all namespaces"
    try:
        return [line for body in at.objects() for line in complaints(body)], [only]
    except ForbiddenError as problem:
        return [], [f"not looked at: {problem.problem}"]


def _defined(at: Cluster) -> Iterator[str]:
    definition = f"{names.PLURAL}.{names.GROUP}"
    known = at.listed(_DEFINITIONS, "customresourcedefinitions", field_selector=f"metadata.name={definition}")
    if not known:
        yield "the definition of SpeculativeDeployment is not installed: helm install the chart (README.md)"


def _running(at: Cluster) -> Iterator[str]:
    operators = at.listed("apps/v1", "deployments", label_selector=_OPERATORS)
    if not operators:
        yield "no Deployment of the operator was found: helm install the chart (README.md)"
    for one in operators:
        meta, ready = one["metadata"], (one.get("status") or {}).get("readyReplicas", 0)
        if not ready:
            space, name = meta["namespace"], meta["name"]
            yield f"the operator {space}/{name} has no ready pod: kubectl describe deployment {name} -n {space}"


def _scraped(at: Cluster) -> Iterator[str]:
    """PodMonitors that no Prometheus of the cluster selects."""
    from speculative_operator.shell.monitors import SERVERS
    from speculative_operator.shell.resources import POD_MONITOR

    servers = [found for one in SERVERS for found in at.listed(one.api_version, one.plural)]
    monitors = at.listed(POD_MONITOR.api_version, POD_MONITOR.plural, label_selector=_OURS)
    selectors = [(one["metadata"], (one.get("spec") or {}).get("podMonitorSelector")) for one in servers]
    for one in monitors if selectors else ():
        labels = one["metadata"].get("labels") or {}
        if not any(selects(selector, labels) for _, selector in selectors):
            wanted = "; ".join(
                f"{meta['namespace']}/{meta['name']} asks for {selector}" for meta, selector in selectors
            )
            yield (
                f"PodMonitor {one['metadata']['namespace']}/{one['metadata']['name']} is selected by no Prometheus "
                f"({wanted}): set prometheus.podMonitors.labels in the chart"
            )


def selects(selector: object, labels: Mapping[str, str]) -> bool:
    """True where a label selector of Kubernetes takes these labels; one that is absent takes none."""
    if not isinstance(selector, Mapping):
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_holds(one, labels) for one in selector.get("matchExpressions") or ())


def _holds(one: Mapping[str, object], labels: Mapping[str, str]) -> bool:
    key, values = str(one.get("key")), one.get("values")
    known: Sequence[object] = values if isinstance(values, list) else ()
    return {
        "In": labels.get(key) in known,
        "NotIn": labels.get(key) not in known,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }.get(str(one.get("operator")), False)


def _objects(at: Cluster) -> Iterator[str]:
    for body in at.objects(everywhere=True):
        yield from complaints(body)


def complaints(body: Object) -> Iterator[str]:
    """What the conditions of one object say is wrong, each with what its reason means."""
    named = f"{body['metadata']['namespace']}/{body['metadata']['name']}"
    if not body.get("status"):
        yield f"{named} has no status: the operator has not looked at it; watchNamespaces may leave its namespace out"
    for one in faults_of(body):
        step = f"; next: {one.next}" if one.next else ""
        yield f"{named}: {one.source} {one.reason}: {one.message}. {one.means}{step}"
