"""Takes the snapshot of one object: everything that others may have written is read here, once. Called by `tick`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from speculative_operator.domain import names
from speculative_operator.domain.reading import mapping, seconds_of
from speculative_operator.domain.spec import DeploymentSpec, Target
from speculative_operator.outputs import record as outputs
from speculative_operator.reconcile.snapshot.by_target import find_elsewhere, with_workload
from speculative_operator.reconcile.snapshot.candidates import Candidate, read_candidate
from speculative_operator.reconcile.snapshot.children import Child, read_child
from speculative_operator.reconcile.snapshot.notes import read as read_notes
from speculative_operator.reconcile.snapshot.pods import Pod, read_pods
from speculative_operator.reconcile.snapshot.results import Result, read_result
from speculative_operator.reconcile.snapshot.status import Status, read_status
from speculative_operator.reconcile.snapshot.workload import Rollout, Workload, read_rollout, read_workload
from speculative_operator.reconcile.world import Key, Surroundings, World
from speculative_operator.render.llm_inference_service import OF_PODS
from speculative_operator.render.targets import target_of


@dataclass(frozen=True, slots=True)
class Snapshot(Surroundings):
    """One object and all that is known of it at one moment, read. Whatever is missing or garbled is empty here."""

    spec: DeploymentSpec
    status: Status
    """The status as it was before."""
    children: Mapping[Key, Child]
    pods: tuple[Pod, ...]
    """Serving pods, those of old templates included, sorted by name."""
    workload: Workload
    """What makes the pods."""
    rollout: Rollout
    results: Mapping[str, Result] = field(default_factory=dict)
    """Name of a Job -> its result."""
    suspended_until: float | None = None
    """Unix time until which the object asks for K = 0; None where it says no time."""
    verified: outputs.Record | None = None
    """What `speculative verify` found; None where nothing readable says so."""
    candidate: Candidate | None = None
    """The object by the name of this one's candidate; None where there is none."""
    elsewhere: str = ""
    """Kind of the object's workload by another target than its own; empty where there is none."""

    @property
    def edited(self) -> bool:
        """True where the status was not written for the spec as it is now."""
        return self.status.generation != self.spec.generation


def take(world: World, now: float) -> Snapshot:
    """The snapshot of `world`; `now` in unix seconds."""
    spec, key = world.spec, ("Deployment", names.child(world.spec.name))
    beside = {one.name: getattr(world, one.name) for one in fields(Surroundings)}
    slot = ("ConfigMap", names.notes(spec.name))
    notes = world.notes if world.notes is not None else read_notes(world.children.get(slot), spec.uid)
    bodies = with_workload(spec, {one: body for one, body in world.children.items() if one != slot}, now)
    noted = OF_PODS if spec.target is Target.LLM_INFERENCE_SERVICE else ()
    workload, target = bodies.get(key), target_of(spec)
    pods = (one for one in world.pods if target.has_pod(spec, mapping(one, "metadata", "labels")))
    return Snapshot(
        **{**beside, "applied": with_workload(spec, world.applied, now)},
        spec=spec,
        status=read_status(world.status, notes),
        children={one: read_child(one, body, spec.uid) for one, body in bodies.items()},
        pods=read_pods(pods, target.container, noted),
        workload=read_workload(workload, spec.uid) if workload is not None else Workload(),
        rollout=read_rollout(workload, spec.replicas),
        results={one.name: read_result(one.result) for one in world.jobs},
        suspended_until=seconds_of(spec.suspend),
        verified=outputs.read(spec.verified),
        candidate=read_candidate(world.candidate_body, world.candidate_pods, spec.uid),
        elsewhere=find_elsewhere(spec, world.children),
    )
