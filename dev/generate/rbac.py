"""Every permission, in one table: of the operator, of its Lease, and of users by the built-in view, edit and admin.

`generate` writes the rules for the chart; manifests/ follow from the chart. Tests hold the table to the kinds that the
shell touches.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from speculative_operator.domain import names

CHILD_VERBS = ("get", "list", "watch", "create", "patch", "delete")
LASTING_VERBS = ("get", "list", "watch", "create", "patch")
"""Of children that go with their object alone, by the garbage collector."""
FOLLOW = ("list", "watch")
SEE = ("get", *FOLLOW)
EVENT_GROUP = "events.k8s.io"
CHANGE = ("create", "update", "patch", "delete", "deletecollection")


@dataclass(frozen=True, slots=True)
class Permission:
    """Verbs on a resource, and what they are for."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    why: str
    only: tuple[str, ...] = ()
    """Names of the only objects that it holds for; empty: all."""

    def rule(self) -> dict[str, Any]:
        """As in `rules` of a Role."""
        rule: dict[str, Any] = {"apiGroups": [self.group], "resources": [self.resource], "verbs": list(self.verbs)}
        return {**rule, "resourceNames": list(self.only)} if self.only else rule


OPERATOR: tuple[Permission, ...] = (
    Permission(
        names.GROUP,
        names.PLURAL,
        (*FOLLOW, "create", "delete"),
        "what to serve; candidates of speculator.measure, which are another object's, are made and deleted",
    ),
    Permission(names.GROUP, f"{names.PLURAL}/status", ("patch",), "conditions, figures and decisions"),
    Permission(
        names.GROUP,
        f"{names.PLURAL}/finalizers",
        ("update",),
        "children that block their owner's deletion (asked for where OwnerReferencesPermissionEnforcement is on)",
    ),
    Permission(names.GROUP, names.TRAINING_PLURAL, ("list",), "which speculators to train"),
    Permission(names.GROUP, f"{names.TRAINING_PLURAL}/status", ("patch",), "how far a training is"),
    Permission(names.GROUP, f"{names.TRAINING_PLURAL}/finalizers", ("update",), "Jobs that block its deletion"),
    Permission("apps", "deployments", LASTING_VERBS, "the serving pods"),
    Permission("apps", "replicasets", ("list",), "whether one mounts a payload that is to be deleted; works without"),
    Permission("apps", "statefulsets", ("list",), "the same"),
    Permission("", "services", LASTING_VERBS, "the address of the model"),
    Permission("", "configmaps", CHILD_VERBS, "the table of K, and the plug-in that re-reads it"),
    Permission("networking.k8s.io", "networkpolicies", LASTING_VERBS, "who reaches the serving pods"),
    Permission("policy", "poddisruptionbudgets", CHILD_VERBS, "drains leave replicas standing"),
    Permission("monitoring.coreos.com", "podmonitors", LASTING_VERBS, "scraping, where prometheus-operator runs"),
    Permission("serving.kserve.io", "servingruntimes", LASTING_VERBS, "target InferenceService, where KServe runs"),
    Permission("serving.kserve.io", "inferenceservices", LASTING_VERBS, "the same; what KServe makes is only read"),
    Permission("serving.kserve.io", "llminferenceservices", LASTING_VERBS, "the same for target LLMInferenceService"),
    Permission("gateway.networking.k8s.io", "httproutes", CHILD_VERBS, "spec.route, where the Gateway API is"),
    Permission("leaderworkerset.x-k8s.io", "leaderworkersets", LASTING_VERBS, "target LeaderWorkerSet, where it runs"),
    Permission("batch", "jobs", CHILD_VERBS, "reading and fetching models, training speculators"),
    Permission(
        "", "persistentvolumeclaims", LASTING_VERBS, "caches of weights; never deleted: others may have what is in them"
    ),
    Permission("", "pods", (*FOLLOW, "patch"), "readiness; an annotation that brings a changed table at once"),
    Permission("", "pods/log", ("get",), "how far a download or a training is: the log's last lines; works without"),
    Permission(EVENT_GROUP, "events", ("create",), "what was decided and why"),
)
"""In every namespace that is served."""

CLUSTER: tuple[Permission, ...] = (
    Permission(
        "monitoring.coreos.com",
        "prometheuses",
        ("list",),
        "labels by which Prometheus chooses PodMonitors; works without, see settings",
    ),
    Permission("monitoring.coreos.com", "prometheusagents", ("list",), "the same"),
)
"""Where all namespaces are served."""

LEASES = "leases"
LEASE_GROUP = "coordination.k8s.io"


def leader(lease: str) -> tuple[Permission, ...]:
    """In the operator's own namespace. `create` cannot be bound to a name."""
    return (
        Permission(LEASE_GROUP, LEASES, ("create",), "the Lease of the leader"),
        Permission(LEASE_GROUP, LEASES, ("get", "update"), "keeping and giving back that Lease", only=(lease,)),
    )


def seers(lease: str) -> tuple[Permission, ...]:
    """In the operator's own namespace, of everybody: whether the figures of a status are those of an operator that
    lives."""
    return (Permission(LEASE_GROUP, LEASES, ("get",), "when the leader last renewed its Lease", only=(lease,)),)


VIEW: tuple[Permission, ...] = (
    Permission(names.GROUP, names.PLURAL, SEE, "see deployments"),
    Permission(names.GROUP, f"{names.PLURAL}/status", ("get",), "see their status"),
    Permission(names.GROUP, f"{names.PLURAL}/scale", ("get",), "see their scale"),
    Permission(names.GROUP, names.TRAINING_PLURAL, SEE, "see trainings"),
    Permission(names.GROUP, f"{names.TRAINING_PLURAL}/status", ("get",), "see their status"),
)
EDIT: tuple[Permission, ...] = (
    Permission(names.GROUP, names.PLURAL, (*SEE, *CHANGE), "deploy"),
    Permission(names.GROUP, f"{names.PLURAL}/status", ("get",), "see their status"),
    Permission(names.GROUP, f"{names.PLURAL}/scale", ("get", "update", "patch"), "scale"),
    Permission(names.GROUP, names.TRAINING_PLURAL, (*SEE, *CHANGE), "train"),
    Permission(names.GROUP, f"{names.TRAINING_PLURAL}/status", ("get",), "see their status"),
)
USERS = {"view": VIEW, "edit": EDIT}
"""Aggregated into the built-in ClusterRoles: `view` into view, edit and admin, `edit` into edit and admin.
Nobody but the operator writes status."""


def rules(permissions: Iterable[Permission]) -> list[dict[str, Any]]:
    """`rules` of a Role: one for each set of verbs and group, resources together."""
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    for permission in permissions:
        rule = permission.rule()
        key = (permission.group, permission.verbs, permission.only)
        if key in merged:
            merged[key]["resources"] += rule["resources"]
        else:
            merged[key] = rule
    return list(merged.values())


def written() -> list[dict[str, Any]]:
    """Kinds of children as `resourceRules` of an admission policy. Status, Leases and Events are bounded by roles."""
    groups: dict[str, list[str]] = {}
    for permission in OPERATOR:
        ours = permission.group in (names.GROUP, EVENT_GROUP) and permission.resource != names.PLURAL
        if not ours and {"patch", "delete"} & {*permission.verbs}:
            groups.setdefault(permission.group, []).append(permission.resource)
    return [
        {
            "apiGroups": [group],
            "apiVersions": ["*"],
            "operations": ["CREATE", "UPDATE", "DELETE"],
            "resources": resources,
        }
        for group, resources in groups.items()
    ]


def chart_rules(lease: str = names.OPERATOR) -> dict[str, Any]:
    """What the chart reads from files/rules.yaml."""
    return {
        "operator": rules(OPERATOR),
        "cluster": rules(CLUSTER),
        "leader": rules(leader(lease)),
        "seers": rules(seers(lease)),
        "written": written(),
        **{name: rules(permissions) for name, permissions in USERS.items()},
    }
