"""The candidate of `measuring`: its manifest, when it is created and deleted, and why there may be none now. Called by
`measuring` and by `tick`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.actions import Action, ApplyChild, DeleteChild, Truth
from speculative_operator.domain.platform import Measuring
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.domain.spec import Mode, Scheme
from speculative_operator.reconcile.pair.picking import Picking
from speculative_operator.reconcile.snapshot.candidates import Measured, Phase, Running
from speculative_operator.reconcile.snapshot.picked import Row
from speculative_operator.reconcile.snapshot.take import Snapshot
from speculative_operator.render.metadata import digest, owner

CREATE_SECONDS = 120.0
"""Seconds within which the candidate must exist once it is asked for."""
START_SECONDS = 3600.0
"""Seconds for a candidate to get its weights and to answer."""
WARM_SECONDS = 120.0
"""Seconds from the first answer on that are not compared: engines warm up, and K finds its level."""
_NAMED = (Scheme.HF, Scheme.OCI, Scheme.PVC)
"""Schemes of which a spec can name the version of the verifier that serves, or that have one alone."""


def actions(world: Snapshot, after: Measured | None = None) -> tuple[Action, ...]:
    """The creation or the end of the candidate, by the stored status. It is created only where it is wanted `after`
    this reconcile, too. One that is not wanted any more stays while no pod of the object itself could take its
    requests."""
    known, seen = world.status.measured, world.candidate
    running = known.running if known is not None and known.of == subject_of(world) else None
    if running is not None and world.spec.measure is not None:
        stays = seen is None and after is not None and after.running == running and running.phase is Phase.STARTING
        found = ApplyChild(manifest(world, running.row), Reason.CANDIDATE_MEASURED, running.row.title)
        return (found,) if stays else ()
    if seen is None or not seen.owned or seen.deleting:
        return ()
    alone = seen.answers and world.rollout.ready == 0 and world.rollout.wanted > 0
    gone = DeleteChild(names.KIND, names.candidate(world.spec.name), seen.uid, "the candidate")
    return () if alone else (gone,)


def manifest(world: Snapshot, row: Row) -> dict[str, Any]:
    """The candidate with the speculator of `row`: the spec as its user wrote it, with one replica, no route and the
    version of the verifier that serves."""
    spec, given = world.spec, world.asked
    start = row.fill(spec).speculation.num_speculative_tokens
    one = {"method": row.method.value, "model": row.uri, "parallelDrafting": row.one_pass}
    wanted = {
        **{key: value for key, value in given.items() if key not in ("route", "rollout")},
        "verifier": {**(given.get("verifier") or {}), "servedName": spec.verifier.served_name, **_version(world)},
        "speculator": {key: value for key, value in one.items() if value},
        "speculation": (given.get("speculation") or {}) | ({"numSpeculativeTokens": start} if start else {}),
        "replicas": 1,
    }
    if spec.measure is not None and spec.measure.priority_class_name:
        template = given.get("template") or {}
        pod = {**(template.get("spec") or {}), "priorityClassName": spec.measure.priority_class_name}
        wanted["template"] = {**template, "spec": pod}
    name = names.candidate(spec.name)
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {
            "name": name,
            "namespace": spec.namespace,
            "labels": {names.LABEL_MANAGED_BY: names.OPERATOR, names.LABEL_CANDIDATE: name},
            "annotations": {names.ANNOTATION_WANTED: digest(wanted, 16)},
            "ownerReferences": [owner(spec)],
        },
        "spec": wanted,
    }


def _version(world: Snapshot) -> dict[str, str]:
    """Fields of `verifier` that name the version which serves; empty where none is pinned."""
    known, source = world.status.pair.known, world.spec.verifier.source
    if known is None or source.scheme not in (Scheme.HF, Scheme.OCI):
        return {}
    pin = known.verifier.pin
    return {"revision": pin.resolved} if pin.scheme is Scheme.HF else {"model": f"oci://{pin.location}@{pin.resolved}"}


def subject_of(world: Snapshot) -> str:
    """Hash of verifier, engine and accelerator, for which verdicts hold; and of `repin`, which asks for new ones."""
    spec = world.spec
    engine, device = spec.engine, spec.accelerator
    parts = [spec.verifier.source.uri, spec.verifier.source.revision, *_version(world).values(), spec.weights.repin]
    return digest([*parts, engine.type.value, engine.version, engine.image, device.product, device.per_replica], 16)


def hindrances(world: Snapshot, picking: Picking, asked: Measuring, suspended: bool) -> Iterator[str]:
    """Why no candidate may be there now."""
    rollout, pick = world.rollout, picking.pick
    outputs = world.status.condition(ConditionType.OUTPUTS_VERIFIED).status
    if world.spec.speculation.mode is Mode.DISABLED or pick is None or pick.row is None:
        yield "no speculator is picked that a candidate could be compared with"
    elif world.spec.verifier.source.scheme not in _NAMED:
        yield "a candidate cannot be told the version of a verifier from s3://: use hf://, oci:// or pvc://"
    elif rollout.wanted == 0 or not rollout.exists:
        yield "no pod is asked for"
    elif pick.generation != world.spec.generation or world.status.speculation.removed or world.status.leaving:
        yield "the pods do not run the pick yet, or run without a speculator"
    elif not rollout.complete or rollout.ready < rollout.wanted or world.problems:
        yield "the object is not Ready, or its pods are being replaced"
    elif suspended:
        yield "drafts are suspended"
    elif outputs == Truth.FALSE:
        yield "OutputsVerified is False"
    elif any(pod.displaces for pod in world.pods) and not asked.priority_class_name:
        yield "by their priority, pods of it may displace pods of others: set speculator.measure.priorityClassName"


def is_settling(world: Snapshot) -> bool:
    """True where pods of the object are missing or too many, none is of another template and none lacks a node: a pod
    crashed, or another number is asked for. A candidate that is there helps then, and stays."""
    rollout = world.rollout
    needs_room = any(pod.unschedulable for pod in world.pods) and rollout.ready > 0
    return rollout.wanted > 0 and not rollout.complete and rollout.updated == rollout.replicas and not needs_room


def reason_to_end(world: Snapshot, running: Running, asked: Measuring, now: float) -> str:
    """Why the candidate that runs cannot be measured; empty where it can."""
    seen, age = world.candidate, now - running.since
    if age < 0 or now - running.began > START_SECONDS + WARM_SECONDS + 2.0 * asked.deadline_seconds:
        return "it took too long, or the clock was set back"
    if seen is None:
        comes = running.phase is Phase.STARTING and age < CREATE_SECONDS
        return "" if comes else "it was not created, or somebody deleted it"
    if not seen.owned:
        return name_conflict(world)
    if seen.deleting or seen.wanted != manifest(world, running.row)["metadata"]["annotations"][names.ANNOTATION_WANTED]:
        return "the spec has changed, or somebody deletes it"
    if any(pod.displaces for pod in seen.pods):
        return "by its priority, its pod may displace pods of others: set another speculator.measure.priorityClassName"
    return ""


def name_conflict(world: Snapshot) -> str:
    """What is said where somebody else's object has the candidate's name."""
    name = names.candidate(world.spec.name)
    return f"an object {name} exists that this one does not own: delete or rename it, or remove speculator.measure"
