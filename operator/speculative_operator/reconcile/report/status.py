"""The whole `.status`, made of what one reconcile has found. Called by `tick`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.actions import Condition
from speculative_operator.domain.formats import LONGEST_MESSAGE
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.engines.base import Notice
from speculative_operator.reconcile.pair.picking import Picking
from speculative_operator.reconcile.report.conditions import outputs_conditions, serving_conditions, stamp
from speculative_operator.reconcile.report.engine_report import engine_notices, engine_report
from speculative_operator.reconcile.report.figures import decisions, speculation_status
from speculative_operator.reconcile.report.tuning import tuning_conditions
from speculative_operator.reconcile.report.view import View
from speculative_operator.reconcile.snapshot.picked import to_status
from speculative_operator.reconcile.snapshot.records import blank, wanted_of
from speculative_operator.reconcile.snapshot.status import Status
from speculative_operator.render.metadata import pair_hash
from speculative_operator.render.targets import target_of

WARNINGS_KEPT = 16
PAUSED = "Paused"
"""Stands in place of the mode while the object is paused."""
_OF_PODS = (
    "pair", "leaving", "nextPair", "weights", "startup", "engine", "warnings", "speculation", "rollout", "decisions",
    "canary", "measured",
)  # fmt: skip
"""Parts of the status that stay as they were while pods run on as an earlier spec had them."""
_UNLOOKED = (
    (ConditionType.PAIR_COMPATIBLE, (Reason.NOT_CHECKED, Reason.NO_SPECULATOR)),
    (ConditionType.MEMORY_FITS, (Reason.NOT_CHECKED,)),
    (ConditionType.WEIGHTS_READY, (Reason.ENGINE_LOADS,)),
)
"""Conditions of the pair, with the reasons that say that nothing was checked."""


def make_status(view: View, old: Status, now: float) -> dict[str, Any]:
    """The complete status after this reconcile. `old` is the one before."""
    spec, rollout = view.spec, view.rollout
    conditions = [
        *_standing(serving_conditions(view), view, old),
        *tuning_conditions(view, old, now),
        *outputs_conditions(view),
    ]
    blocks = old.parts_named(_OF_PODS) if view.kept else _blocks(view, old, now)
    found: dict[str, Any] = {**view.pairing.blocks} if view.pairing is not None else {}
    found |= _pick_blocks(view.picking, blocks) if view.picking is not None else {}
    return {
        "conditions": stamp((_of_pick(one, view) for one in conditions), old, spec.generation, now),
        "observedGeneration": spec.generation,
        "mode": PAUSED if spec.paused else spec.speculation.mode.value,
        "ready": f"{rollout.ready}/{rollout.wanted}",
        "replicas": rollout.replicas,
        "readyReplicas": rollout.ready,
        "updatedReplicas": rollout.updated,
        "selector": ",".join(f"{key}={value}" for key, value in names.selector(spec.name, spec.candidate_of).items()),
        "url": rollout.url or target_of(spec).url(spec),
        **{name: block for name, block in blocks.items() if name not in found},
        **{name: block for name, block in found.items() if block},
    }


def _blocks(view: View, old: Status, now: float) -> dict[str, Any]:
    """The parts of the status that speak of pods made of the spec."""
    engine = engine_report(view, old, now)
    warnings = _warnings(dict.fromkeys((*view.notices, *engine_notices(view.spec, engine))))
    if_any = {
        "startup": dict(view.startup),
        "engine": engine.to_status(),
        "warnings": warnings[:WARNINGS_KEPT],
        "rollout": dict(view.own_rollouts),
        "canary": view.canary.to_status() if view.canary is not None else {},
        "measured": view.measured.to_status() if view.measured is not None else {},
        "leaving": [one.to_status() for one in view.leaving],
    }
    return {
        "pair": _pair_block(view.spec),
        "speculation": speculation_status(view, old, now),
        "decisions": decisions(view, old, now),
        **{name: block for name, block in if_any.items() if block},
    }


def _pick_blocks(picking: Picking, blocks: Mapping[str, Any]) -> dict[str, Any]:
    """The parts `picked` and `warnings` of the status, with the pick as it is now."""
    others = [one for one in blocks.get("warnings", ()) if one["reason"] != Reason.BETTER_KNOWN.value]
    picked = to_status(picking.pick) if picking.pick is not None else {}
    return {"picked": picked, "warnings": [*others, *_warnings(picking.notices)][:WARNINGS_KEPT]}


def _of_pick(condition: Condition, view: View) -> Condition:
    """The condition; where the verifier is served alone in spite of `auto: true`, it tells what became of the pick."""
    if condition.reason is not Reason.NO_SPECULATOR or view.picking is None or view.picking.alone is None:
        return condition
    reason, message = view.picking.alone
    return replace(condition, reason=reason, message=message)


def _warnings(notices: Iterable[Notice]) -> list[dict[str, str]]:
    return [{"reason": one.reason.value, "message": one.message[:LONGEST_MESSAGE]} for one in notices]


def _standing(conditions: Sequence[Condition], view: View, old: Status) -> Iterator[Condition]:
    """The conditions; while the pair is not checked, those that an earlier check of the pair found stay."""
    kinds = dict(_UNLOOKED) if view.kept and view.pairing is None else {}
    for condition in conditions:
        known = old.condition(condition.type).as_condition(condition.type)
        stays = condition.type in kinds and known is not None and known.reason not in kinds[condition.type]
        yield known if stays and known is not None else condition


def _pair_block(spec: DeploymentSpec) -> dict[str, Any]:
    pair = blank(wanted_of(spec), spec)
    block = {"verifier": pair.verifier, "hash": pair_hash(spec), "speculator": pair.speculator}
    return {name: value for name, value in block.items() if value}
