"""What others have changed of a LeaderWorkerSet where the workload does not show it, as in its workers. Used by `tick`.

The workload is made of the leader's template alone; all else of the set follows from it and is compared here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.actions import Action, ApplyChild
from speculative_operator.domain.reading import text
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import Target
from speculative_operator.reconcile.drift import first_difference
from speculative_operator.reconcile.world import World
from speculative_operator.render.targets import target_of


def repairs(world: World, manifests: Sequence[Mapping[str, Any]], actions: Sequence[Action]) -> Iterator[Action]:
    """What puts it right, while the workload itself is as it should be."""
    workload = next((one for one in manifests if one["kind"] == "Deployment"), None)
    written = any(isinstance(one, ApplyChild) and one.manifest["kind"] == "Deployment" for one in actions)
    if world.spec.target is not Target.LEADER_WORKER_SET or workload is None or written:
        return
    for manifest in target_of(world.spec).write(world.spec, dict(workload)):
        key = manifest["kind"], manifest["metadata"]["name"]
        found = world.children.get(key, {})
        applied = text(found, "metadata", "annotations", names.ANNOTATION_HASH)
        if applied != manifest["metadata"]["annotations"][names.ANNOTATION_HASH]:
            continue
        difference = first_difference(manifest, found, world.applied.get(key))
        if difference:
            why = f"{key[0]} {key[1]}: {difference} was changed by somebody else"
            yield ApplyChild(manifest, Reason.REPAIRED, why)
