"""Why a child is not written as wanted. Used by `writes`; `reconciler` keeps the ledger of each object between ticks.

The ledger remembers what became of earlier writes. Repairs of a Deployment end where another writer keeps changing it
back, because each repair would replace pods. A dry run tells whether the API server keeps image volumes, in which
oci:// models come to pods.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.actions import ApplyChild, Condition, Truth
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.shell.bodies import Body, Slot
from speculative_operator.shell.errors import ApiError
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.resources import Resource

PATIENCE = 3
"""Equal applies in a row before they are spaced out, because somebody keeps changing the child back. Failures in a row
before they are shown as a condition."""
QUIET = 600.0
"""seconds without an apply after which a child counts as undisturbed again."""
MOST_REPAIRS = 5
"""Most equal applies of a Deployment in a row, the last one a repair: a writer who undid so many does not stop by
himself."""
NO_IMAGES = (
    "the API server drops image volumes, which oci:// models need (feature gate ImageVolume; off or missing before "
    "Kubernetes 1.35; or, for KServe, a definition of KServe that lacks volumes[].image): enable the feature gate, or "
    "upgrade Kubernetes or KServe, or name the models by hf://, s3:// or pvc://"
)


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a child could not be written as wanted."""

    condition: Condition
    digest: str
    generation: int
    retry_at: float


@dataclass(slots=True)
class Ledger:
    """What is remembered between ticks of one SpeculativeDeployment about writing its children."""

    problems: dict[Slot, Problem] = field(default_factory=dict)
    foreign: dict[Slot, tuple[Body, float]] = field(default_factory=dict)
    applied: dict[Slot, tuple[str, int, float]] = field(default_factory=dict)
    """Digest of the manifest last applied, how often in a row, and when."""
    failures: dict[Slot, int] = field(default_factory=dict)
    """Number of applies in a row that failed in a way that may pass by itself."""
    made: dict[Slot, Body] = field(default_factory=dict)
    """The children as the API server stored them: what it normalises is no drift."""

    def conditions(self) -> tuple[Condition, ...]:
        return tuple(problem.condition for _, problem in sorted(self.problems.items()))

    def strangers(self, now: float) -> dict[Slot, Body]:
        """Objects of others that bear the names of our children, as long as they are remembered."""
        self.foreign = {slot: held for slot, held in self.foreign.items() if held[1] > now}
        return {slot: body for slot, (body, _) in self.foreign.items()}

    def may_apply(self, slot: Slot, digest: str, generation: int, now: float) -> bool:
        """False while the same manifest was refused, or was applied again and again without lasting effect."""
        problem = self.problems.get(slot)
        if problem is not None and (problem.digest, problem.generation) == (digest, generation):
            return now >= problem.retry_at
        last, times, at = self.applied.get(slot, ("", 0, -inf))
        if last != digest or times < PATIENCE:
            return True
        return not 0 <= now - at < min(5.0 * 2.0 ** min(times - PATIENCE, 16), 300.0)

    def forget(self, wanted: Collection[Slot]) -> bool:
        """Drop the problems of children that are not in `wanted`; True where there were any: an edit was taken back, a
        child is as wanted by now, or a Deployment waits for its next pair."""
        past = self.problems.keys() - set(wanted)
        for slot in past:
            del self.problems[slot]
        return bool(past)

    def note_failed(self, slot: Slot) -> int:
        """Count an apply that brought no answer, or none of use; returns how many came in a row."""
        self.failures[slot] = self.failures.get(slot, 0) + 1
        return self.failures[slot]

    def is_repeated(self, slot: Slot, digest: str, now: float) -> bool:
        """True where the same manifest was lately applied MOST_REPAIRS times in a row."""
        last, times, at = self.applied.get(slot, ("", 0, -inf))
        return last == digest and times >= MOST_REPAIRS and now - at < QUIET

    def note_applied(self, slot: Slot, digest: str, now: float) -> int:
        """Count an apply; returns how many equal ones came in a row."""
        last, times, at = self.applied.get(slot, ("", 0, -inf))
        times = times + 1 if last == digest and now - at < QUIET else 1
        self.applied[slot] = (digest, times, now)
        self.problems.pop(slot, None)
        self.failures.pop(slot, None)
        return times


def changed_back_condition(action: ApplyChild, found: Mapping[str, Any]) -> Condition:
    """The condition that tells that the repairs have ended. `found`: the Deployment with its managed fields."""
    kind, name = action.manifest["kind"], action.manifest["metadata"]["name"]
    message = (
        f"{action.why}. The operator restored it {MOST_REPAIRS} times, and each time it was changed again, by "
        f"{_writers(found)}; each restore replaces pods, so the operator stops. Write the change into spec.template of "
        f"this object, or stop the other writer of {kind} {name} and set the annotation "
        f"{names.ANNOTATION_ADOPT} to a new value"
    )
    return Condition(ConditionType.READY, Truth.FALSE, Reason.CHANGED_BACK, message)


def _writers(found: Mapping[str, Any]) -> str:
    """Names of the last three other managers that wrote the Deployment, writes of its status aside, the latest
    first."""
    entries = [
        one
        for one in found["metadata"].get("managedFields") or ()
        if one.get("manager") != names.FIELD_MANAGER and not one.get("subresource")
    ]
    entries.sort(key=lambda one: str(one.get("time") or ""), reverse=True)
    told = [f"{one.get('manager')} (last at {one.get('time')})" for one in entries[:3]]
    return ", ".join(told) or "a webhook, or a writer that uses the operator's name"


async def keeps_images(kube: Kube, resource: Resource, manifest: Mapping[str, Any], uid: str | None) -> bool:
    """False where a dry run shows that the API server would silently drop image volumes of the manifest: pods would
    take an accelerator and not find their model. True where the dry run fails, because the apply then tells the
    error."""
    try:
        tried = await kube.apply(resource, manifest, uid=uid, dry=True)
    except ApiError:
        return True
    return image_volumes(manifest) <= image_volumes(tried)


def image_volumes(manifest: Mapping[str, Any]) -> set[str]:
    """Names of the image volumes of the pods of a Deployment or an object of KServe."""
    spec = manifest.get("spec") or {}
    template = spec.get("template") or {}
    pod = spec.get("predictor") or template.get("spec") or template
    return {volume["name"] for volume in pod.get("volumes") or () if volume.get("image")}
