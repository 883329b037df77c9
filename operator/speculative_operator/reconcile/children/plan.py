"""Desired against actual: the actions that are still missing. Called by `tick`.

Equal hash and no drift: no action. So the plan for a world in which every action was carried out is empty.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.actions import Action, ApplyChild, Condition, DeleteChild, PokePod, Truth
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.domain.spec import Target
from speculative_operator.reconcile.children.desired import Desired
from speculative_operator.reconcile.observed.drift import first_difference, first_surplus
from speculative_operator.reconcile.observed.route import KIND as HTTP_ROUTE
from speculative_operator.reconcile.observed.route import canary
from speculative_operator.reconcile.snapshot.pods import Pod
from speculative_operator.reconcile.snapshot.take import Snapshot
from speculative_operator.reconcile.snapshot.workload import Rollout, Workload
from speculative_operator.render import http_route
from speculative_operator.render.targets import target_of

KINDS = frozenset({"Deployment", "Service", "ConfigMap", "NetworkPolicy", "PodDisruptionBudget", "PodMonitor"})
"""Kinds that tell an object that was served before from a new one."""
DELETED = frozenset({"ConfigMap", "PodDisruptionBudget", "HTTPRoute"})
"""Kinds that an edit makes needless; they are deleted then. The operator may delete no other but Jobs."""

_HASHES = (names.ANNOTATION_MADE_OF, names.ANNOTATION_RESOLVED)
"""Annotations that follow from fields: as the reason of a change they tell people less than the field itself."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The actions to carry out, and the problems that prevent others."""

    actions: tuple[Action, ...]
    problems: tuple[Condition, ...] = ()
    held: tuple[ApplyChild, ...] = ()
    """Actions to carry out after the others: a Deployment whose new pods would look for a ConfigMap in vain."""


def plan(world: Snapshot, desired: Desired, rollout: Rollout, changed: Reason) -> Plan:
    """The actions that bring the children to `desired`. `changed` is the reason given for children whose manifest is a
    new one."""
    conflicts = {key: problem for one in desired.manifests for key, problem in _conflicts(world, one)}
    why = {one.config: one.reason for one in desired.tables if one.reason is not None}
    actions: list[Action] = []
    held: list[ApplyChild] = []
    for manifest in desired.manifests:
        key = _key(manifest)
        if key in conflicts or (key[0] == "Deployment" and any(kind == "ConfigMap" for kind, _ in conflicts)):
            continue  # pods must never mount a stranger's ConfigMap
        action = _apply(world, manifest, why.get(key[1], changed) if key[0] == "ConfigMap" else changed)
        if action is not None:
            # An operator that is killed in between must find the table rather than only the pods that follow it.
            (held if key in world.children and _lacks_config(world, key, actions) else actions).append(action)
    settled = rollout.complete and not held and not any(isinstance(one, ApplyChild) for one in actions)
    actions += _deletions(world, {_key(manifest) for manifest in desired.manifests}, settled)
    actions += _pokes(world, desired)
    return Plan(tuple(actions), tuple(conflicts.values()), tuple(held))


def _lacks_config(world: Snapshot, key: tuple[str, str], actions: Sequence[Action]) -> bool:
    """True for a Deployment while a ConfigMap is only being created. Manifests are in order: ConfigMaps come first."""
    made = (_key(one.manifest) for one in actions if isinstance(one, ApplyChild))
    return key[0] == "Deployment" and any(one[0] == "ConfigMap" and one not in world.children for one in made)


def rolls(world: Snapshot, actions: Sequence[Action]) -> bool:
    """True when an action changes which pods there are to be: from then on the old ones are not what is asked for. How
    pods are replaced does not count."""
    return any(_differ({**wanted, "strategy": {}}, found) for wanted, found in _specs(world, actions))


def replaces(world: Snapshot, actions: Sequence[Action]) -> bool:
    """True when an action replaces running pods. Scaling does not."""
    return any(_differ(wanted["template"], world.workload.template) for wanted, _ in _specs(world, actions))


def _specs(world: Snapshot, actions: Sequence[Action]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """The spec of each Deployment that is applied: as it is to be, and as it is."""
    for action in actions:
        if isinstance(action, ApplyChild) and action.manifest["kind"] == "Deployment":
            yield action.manifest["spec"], world.workload.spec


def _differ(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    return bool(first_difference(wanted, found) or first_surplus(wanted, found))


def follow_route(world: Snapshot) -> tuple[Action, ...]:
    """The actions that an existing route needs while nothing else is done: no request may be led to a canary that is
    gone, nor to a model whose route was taken back."""
    route, key = world.spec.route, (HTTP_ROUTE, names.child(world.spec.name))
    found = world.children.get(key)
    if found is None or not found.owned:
        return ()
    if route is None:
        return (*_deletions(world, (), settled=False, kinds={HTTP_ROUTE}),)
    action = _apply(world, http_route(world.spec, route, canary(world)), Reason.SPEC_CHANGED)
    return (action,) if action is not None else ()


def keep_pods(world: Snapshot, planned: Plan, *, repairs: bool) -> Plan:
    """The plan with only the actions that leave pods as they are: their table, where they re-read it, and the poke that
    tells them; their number, which an autoscaler may set at any time; the route; and missing children. `repairs`: also
    fields that somebody else has changed, so that pods stay as they were made."""
    kept: list[Action] = []
    for action in planned.actions:
        if repairs and isinstance(action, ApplyChild) and action.manifest["kind"] == "Deployment":
            kept += _scale(world, action)
        elif _spares(world, action, repairs):
            kept.append(action)
    return Plan(tuple(kept), planned.problems)


def _spares(world: Snapshot, action: Action, repairs: bool) -> bool:
    """True for an action that pods which stay can use, or do not notice: no request may be led to a canary that is
    gone."""
    if not isinstance(action, ApplyChild):
        return isinstance(action, PokePod) or action.kind == HTTP_ROUTE
    key = kind, name = _key(action.manifest)
    if kind == HTTP_ROUTE or is_table(action.manifest):
        return True
    if kind == "Deployment":
        return key in world.children and not replaces(world, (action,))
    if kind == "ConfigMap" and repairs:
        # What runs in the engine goes with the template: pods that stay have no use for another release's.
        return name in world.workload.configs.values()
    return key not in world.children or (repairs and action.reason is Reason.REPAIRED)


def _scale(world: Snapshot, action: ApplyChild) -> tuple[ApplyChild, ...]:
    """The Deployment as it is, with the replicas that are asked for."""
    replicas, found = action.manifest["spec"].get("replicas"), world.workload
    if replicas is None or replicas == found.replicas:
        return ()
    manifest = {
        **action.manifest,
        "metadata": {**action.manifest["metadata"], "annotations": dict(found.annotations)},
        "spec": {**found.spec, "replicas": replicas},
    }
    return (ApplyChild(manifest, action.reason, f"{_name(world, _key(manifest))}: spec.replicas changed"),)


def is_table(manifest: Mapping[str, Any]) -> bool:
    """True for the ConfigMap of a table that pods re-read."""
    return manifest["kind"] == "ConfigMap" and names.TABLE_KEY in manifest["data"]


def _key(manifest: Mapping[str, Any]) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


def _conflicts(world: Snapshot, manifest: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], Condition]]:
    key = _key(manifest)
    found = world.children.get(key)
    if found is None or found.owned:
        return
    whose = f"belongs to {found.owner}" if found.owner else "has no owner"
    message = (
        f"{found.kind} {key[1]} exists and {whose}, so the operator leaves it. Delete or rename it, or this object"
    )
    yield key, Condition(ConditionType.READY, Truth.FALSE, Reason.NAME_CONFLICT, message)


def _apply(world: Snapshot, manifest: Mapping[str, Any], changed: Reason) -> ApplyChild | None:
    key = _key(manifest)
    what = _name(world, key)
    found = world.children.get(key)
    if found is None:
        reason = Reason.REPAIRED if changed is not Reason.RESUMED and _was_there(world, key) else Reason.CREATED
        return ApplyChild(manifest, reason, f"{what} is missing")
    if found.deleting:
        return None  # gone soon, then missing
    difference = first_difference(manifest, found.body, world.applied.get(key))
    if found.hash != manifest["metadata"]["annotations"][names.ANNOTATION_HASH]:
        if difference.endswith(_HASHES):
            difference = first_difference({"spec": manifest["spec"]}, found.body) or difference
        if difference.startswith("spec.strategy."):
            # People ask why pods are replaced, not how.
            why = first_difference({"spec": {"template": manifest["spec"]["template"]}}, found.body)
            difference, changed = why or difference, changed if why or world.edited else Reason.ROLLING_OUT
        surplus = "" if difference else first_surplus(manifest, found.body)
        verb = "changed" if difference else "was removed"
        return ApplyChild(manifest, changed, f"{what}: {difference or surplus or 'a field'} {verb}")
    if difference:
        return ApplyChild(manifest, Reason.REPAIRED, f"{what}: {difference} was changed by somebody else")
    return None


def repairs_of_group(world: Snapshot, desired: Desired, actions: Sequence[Action]) -> Iterator[Action]:
    """The actions that repair a LeaderWorkerSet that others have changed where the workload, which is made of the
    leader's template alone, does not show it; none where the workload itself is written."""
    written = any(isinstance(one, ApplyChild) and one.manifest["kind"] == "Deployment" for one in actions)
    if world.spec.target is not Target.LEADER_WORKER_SET or written:
        return
    for manifest in target_of(world.spec).write(world.spec, dict(desired.workload)):
        key = _key(manifest)
        found = world.children.get(key)
        if found is None:
            continue
        difference = first_difference(manifest, found.body, world.applied.get(key))
        if found.hash == manifest["metadata"]["annotations"][names.ANNOTATION_HASH] and difference:
            why = f"{key[0]} {key[1]}: {difference} was changed by somebody else"
            yield ApplyChild(manifest, Reason.REPAIRED, why)


def _name(world: Snapshot, key: tuple[str, str]) -> str:
    """Kind and name of a child for messages; for the workload, the kind of the target in place of Deployment."""
    return f"{target_of(world.spec).kind if key[0] == 'Deployment' else key[0]} {key[1]}"


def _was_there(world: Snapshot, key: tuple[str, str]) -> bool:
    """True when the child had been made before: it was deleted, not yet to be created."""
    if key[0] == "PodMonitor":
        return False  # its kind may have come to the cluster just now
    if any(kind in KINDS for kind, _ in world.applied):
        return key in world.applied
    return not world.edited and any(kind in KINDS for kind, _ in world.children)


def _deletions(
    world: Snapshot, wanted: Collection[tuple[str, str]], settled: bool, kinds: Collection[str] = DELETED
) -> Iterator[DeleteChild]:
    """Deletions of children that are no longer wanted, once no pod can need them: pods of an old template still mount
    its ConfigMaps."""
    bearers: tuple[Pod | Workload, ...] = (*world.pods, world.workload)
    needed = {config for one in bearers for config in one.configs.values()}
    for (kind, name), child in sorted(world.children.items(), key=lambda one: one[0]):
        if (kind, name) in wanted or kind not in kinds or not child.uid or not child.owned:
            continue
        if child.deleting or (kind == "ConfigMap" and (not settled or name in needed)):
            continue
        yield DeleteChild(kind, name, child.uid, f"{kind} {name} is no longer wanted")


def _pokes(world: Snapshot, desired: Desired) -> Iterator[PokePod]:
    """Pokes for pods that may lack their table. None before the ConfigMap in the cluster holds it: a poke would deliver
    the old one."""
    for table in desired.tables:
        config = world.children.get(("ConfigMap", table.config))
        if config is None or not config.owned or config.table.version != table.version:
            continue
        # The first version was there before any pod was.
        known = {str(table.version)} | ({""} if table.version == 1 else set())
        for pod in world.pods:
            if pod.running and pod.pair in table.pairs and pod.poked not in known:
                yield PokePod(pod.name, table.version)
