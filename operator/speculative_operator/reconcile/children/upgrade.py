"""Keeps pods as they are when only this release of the operator would make them differently. Used by `tick`.

A new release may set another flag, or take another release of the engine by default. That is no reason to replace pods
which serve, least of all those of every object at once. So the Deployment bears what its pods were made of, as the user
and the tuner asked for it: while that is the same, pods that serve stay, with what they mount and what leads to them.
They are made anew with the next change that makes other pods anyway, or when the annotation `adopt` gets a new value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.actions import ApplyChild
from speculative_operator.domain.decision import Policy
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import (
    DEFAULT_VERSIONS,
    NOT_OF_PODS,
    DeploymentSpec,
    EngineSettings,
    Mode,
    OffPolicy,
)
from speculative_operator.domain.table import Actuator
from speculative_operator.engines.base import Notice
from speculative_operator.reconcile.children.plan import Plan, replaces
from speculative_operator.reconcile.observed.drift import first_difference, first_surplus
from speculative_operator.reconcile.pair.pinning import PairedSpec
from speculative_operator.reconcile.snapshot.take import Snapshot
from speculative_operator.reconcile.snapshot.workload import Rollout
from speculative_operator.reconcile.table.active_table import ActiveTable
from speculative_operator.render import resolved
from speculative_operator.render.metadata import digest, pair_hash
from speculative_operator.render.podspec import PAYLOAD_VOLUME

_COLLECT = "weights.cache.collect"
"""A Job collects in a claim; in a folder of the node the pod does."""
_CHANGING_K = (OffPolicy.NEVER, OffPolicy.REMOVE)
"""Policies that say whether 0 is one of the K. Of the others one has the pods skip the speculator (`Policy.skips`)."""


def made_of(choice: PairedSpec, policy: Policy, active: ActiveTable) -> str:
    """Sixteen hexadecimal digits that change with what is asked of pods, and not with how a release makes them.

    Values that nobody set count for nothing, so that another release's fields and defaults make no difference. The K
    that an engine can prepare are a release's, too: of them the hash has what a user says.
    """
    in_template = active.table is not None and not active.removed and policy.knobs.actuator is not Actuator.LIVE
    table = active.table.rows() if active.table is not None and in_template else None
    said = [*_said_of_k(choice.by_name), policy.skips, active.removed]
    return digest([_content_of(choice.by_name, ""), pair_hash(choice.pinned), said, table], 16)


def _said_of_k(spec: DeploymentSpec) -> list[Any]:
    """What the spec says of the K that pods prepare, beside the largest one."""
    speculation = spec.speculation
    if not spec.speculates:
        return []
    ks = sorted(speculation.schedule.ks) if speculation.schedule is not None else []
    off = speculation.off_policy if speculation.off_policy in _CHANGING_K else None
    return [speculation.mode is Mode.STATIC, speculation.num_speculative_tokens, ks, off]


def waits(world: Snapshot, planned: Plan, rollout: Rollout, asked: str) -> bool:
    """True where pods would be replaced, though they were made of what is asked for (`made_of`), and not to undo what
    somebody else did to their template. A template that is rendered as it was has only come back otherwise from the
    API server: to apply it again replaces nothing."""
    actions = [one for one in _applies(planned) if one.reason is not Reason.REPAIRED and _anew(world, one)]
    return not (asks_for_others(world, asked) or _hopeless(world, rollout)) and replaces(world, actions)


def asks_for_others(world: Snapshot, asked: str) -> bool:
    """True where pods were made of something else than what is asked for (`made_of`). Where nothing says what they were
    made of, true once the spec is edited."""
    borne = world.workload.made_of
    return borne != asked if borne else world.edited


def notice(world: Snapshot, planned: Plan) -> Notice:
    """The notice that running pods stay though this release would render them differently, and how to replace them."""
    found = world.workload
    wanted = next(one.manifest["spec"]["template"] for one in _applies(planned) if one.manifest["kind"] == "Deployment")
    where = first_difference(wanted, found.template) or first_surplus(wanted, found.template)
    message = (
        f"this release of the operator would render the pods differently (spec.template.{where}); running pods stay. "
        f"A new value of the annotation {names.ANNOTATION_ADOPT} replaces them, and so does the next edit that changes "
        "pods"
    )
    config = found.configs.get(PAYLOAD_VOLUME)
    if config is not None and config not in world.payloads:
        message += f". ConfigMap {config}, which they mount, no longer exists: a new one of these pods cannot start"
    return Notice(Reason.UPGRADE_WAITS, message)


def live_notice(spec: DeploymentSpec) -> Notice:
    """The notice that K could change without a rollout in pods that were made anew."""
    message = (
        f"new pods of {spec.engine.type} {spec.engine.version} would re-read their table, so K would change without a "
        "rollout; the running pods were created before that, and stay. A new value of the annotation "
        f"{names.ANNOTATION_ADOPT} replaces them, and so does the next edit that changes pods"
    )
    return Notice(Reason.UPGRADE_WAITS, message)


def _hopeless(world: Snapshot, rollout: Rollout) -> bool:
    """True where no pod is there, or none was ever ready and the rollout is past its deadline.

    Pods that are merely not ready may be loading, or come back when their node, their network or their probes do: an
    operator that starts during such an incident must not replace the pods of every object.
    """
    if rollout.replicas == 0:
        return True
    # A Deployment whose rollout was complete once never says again that it stalled, whatever becomes of its pods.
    served = {one.pod for one in world.status.starts}
    return bool(rollout.stalled) and rollout.ready == 0 and not any(pod.name in served for pod in world.pods)


def _anew(world: Snapshot, action: ApplyChild) -> bool:
    """True where the pod template is rendered otherwise than that of the Deployment was."""
    return resolved.template_of(action.manifest, world.spec.uid) != world.workload.made_as


def _applies(planned: Plan) -> list[ApplyChild]:
    return [one for one in (*planned.actions, *planned.held) if isinstance(one, ApplyChild)]


def _content_of(value: Any, path: str) -> Any:
    """`value` as JSON, without fields that have their default and fields marked `NOT_OF_PODS`."""
    if is_dataclass(value) and not isinstance(value, type):
        told = {}
        for one in fields(value):
            below = f"{path}.{one.name}" if path else one.name
            inner, default = getattr(value, one.name), _default(one, value)
            if is_not_of_pods(one) or inner == default or (below == _COLLECT and getattr(value, "claim", "")):
                continue
            said = _content_of(inner, below)
            # What is there with nothing but defaults in it was asked for, where otherwise it would not be there.
            if said or default is None or not is_dataclass(inner):
                told[one.name] = said
        return told
    if isinstance(value, Mapping):
        return {str(key): _content_of(inner, path) for key, inner in value.items()}
    if isinstance(value, Enum):
        return value.value
    return [_content_of(one, path) for one in value] if isinstance(value, list | tuple) else value


def is_not_of_pods(field: Field[Any]) -> bool:
    """True for a field that is marked `NOT_OF_PODS`."""
    return field.metadata == NOT_OF_PODS


def _default(field: Field[Any], owner: Any) -> Any:
    if isinstance(owner, EngineSettings) and field.name == "version":
        return None if owner.version_named else DEFAULT_VERSIONS[owner.type]
    return field.default_factory() if field.default_factory is not MISSING else field.default
