"""The things of a cluster that `doctor` looks at, asked once for all its checks, and the findings of a check."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from speculative_operator.cli.cluster import Cluster, Object
from speculative_operator.cli.diagnosis import Finding, faults_of, warnings_of
from speculative_operator.cli.errors import UnseenError
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
