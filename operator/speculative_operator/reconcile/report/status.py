"""The whole `.status`, and when it is worth writing. Called by `tick`; `should_write` by the shell."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.actions import Condition, Truth
from speculative_operator.domain.formats import LONGEST_MESSAGE
from speculative_operator.domain.reading import at, conditions_of, items, mapping, text
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.engines.base import Notice
from speculative_operator.reconcile.pair.picked import PickView
from speculative_operator.reconcile.pair.records import source_text
from speculative_operator.reconcile.report.conditions import serving_conditions, stamp
from speculative_operator.reconcile.report.engine_report import engine_notices, engine_status
from speculative_operator.reconcile.report.figures import FIGURES, decisions, speculation_status
from speculative_operator.reconcile.report.tuning import tuning_conditions
from speculative_operator.reconcile.report.view import View
from speculative_operator.render.metadata import pair_hash
from speculative_operator.render.targets import target_of
from speculative_operator.tuner import Memory
from speculative_operator.tuner.persistence import to_status

FIGURES_SECONDS = 30.0
"""Least seconds between two writes of figures; more in a large fleet (`shell.report`)."""
FIGURES_SHARE = 0.05
"""Figures are written only when one of them moved by more than this share."""
WARNINGS_KEPT = 16
PAUSED = "Paused"
"""Stands in place of the mode while the object is paused."""
_OF_PODS = (
    "pair", "leaving", "nextPair", "weights", "startup", "engine", "warnings", "speculation", "rollout", "decisions",
    "memory",
)  # fmt: skip
"""Parts of the status that stay as they were while pods run on as an earlier spec had them."""
_APART = frozenset({"memory", "speculation", "conditions", "engine", "weights"})
_UNLOOKED = (
    (ConditionType.PAIR_COMPATIBLE, (Reason.NOT_CHECKED, Reason.NO_SPECULATOR)),
    (ConditionType.MEMORY_FITS, (Reason.NOT_CHECKED,)),
    (ConditionType.WEIGHTS_READY, (Reason.ENGINE_LOADS,)),
)
"""Conditions of the pair, with the reasons that say that nothing was checked."""
_DOWNLOADS = frozenset({Reason.DOWNLOADING.value, Reason.DOWNLOAD_STALLED.value})
_ACKNOWLEDGED = "tableVersionInPods"
"""Field of `status.engine` that follows each change of the table by seconds: it goes along, or waits like a figure."""
_VERDICT = ConditionType.TUNING_CONVERGED.value
_SILENT = frozenset({"message", "observedAt"})
"""Figures that never cause a write: they go along with the next one."""


def make_status(view: View, old: Mapping[str, Any], memory: Memory | None, now: float) -> dict[str, Any]:
    """The complete status after this reconcile. `old` is the one before."""
    spec, rollout = view.spec, view.rollout
    conditions = [*_standing(serving_conditions(view), view, old), *tuning_conditions(view, old, now)]
    blocks = {key: old[key] for key in _OF_PODS if key in old} if view.kept else _blocks(view, old, memory, now)
    found = {name: dict(block) for name, block in view.pairing.blocks.items()} if view.pairing is not None else {}
    found |= _pick_blocks(view.pick, blocks) if view.pick is not None else {}
    return {
        "conditions": stamp((_of_pick(one, view) for one in conditions), old, spec.generation, now),
        "observedGeneration": spec.generation,
        "mode": PAUSED if spec.paused else spec.speculation.mode.value,
        "ready": f"{rollout.ready}/{rollout.wanted}",
        "replicas": rollout.replicas,
        "readyReplicas": rollout.ready,
        "updatedReplicas": rollout.updated,
        "selector": ",".join(f"{key}={value}" for key, value in names.selector(spec.name).items()),
        "url": rollout.url or target_of(spec).url(spec),
        **{name: block for name, block in blocks.items() if name not in found},
        **{name: block for name, block in found.items() if block},
    }


def _blocks(view: View, old: Mapping[str, Any], memory: Memory | None, now: float) -> dict[str, Any]:
    """The parts of the status that speak of pods made of the spec."""
    engine = engine_status(view, old, now)
    warnings = _warnings(dict.fromkeys((*view.notices, *engine_notices(view.spec, engine))))
    if_any = {
        "startup": dict(view.startup),
        "engine": engine,
        "warnings": warnings[:WARNINGS_KEPT],
        "rollout": dict(view.own_rollouts),
        "leaving": [one.to_status() for one in view.leaving],
    }
    return {
        "pair": _pair_block(view.spec),
        "speculation": speculation_status(view, old, now),
        "decisions": decisions(view, old, now),
        **{name: block for name, block in if_any.items() if block},
        **({"memory": to_status(memory)} if memory is not None else {}),
    }


def _pick_blocks(pick: PickView, blocks: Mapping[str, Any]) -> dict[str, Any]:
    """The parts `picked` and `warnings` of the status, with the pick as it is now."""
    others = [one for one in items(blocks, "warnings") if text(one, "reason") != Reason.BETTER_KNOWN.value]
    return {"picked": dict(pick.block), "warnings": [*others, *_warnings(pick.notices)][:WARNINGS_KEPT]}


def _of_pick(condition: Condition, view: View) -> Condition:
    """The condition; where the verifier is served alone in spite of `auto: true`, it tells what became of the pick."""
    if condition.reason is not Reason.NO_SPECULATOR or view.pick is None or view.pick.alone is None:
        return condition
    reason, message = view.pick.alone
    return replace(condition, reason=reason, message=message)


def _warnings(notices: Iterable[Notice]) -> list[dict[str, str]]:
    return [{"reason": one.reason.value, "message": one.message[:LONGEST_MESSAGE]} for one in notices]


def _standing(conditions: Sequence[Condition], view: View, old: Mapping[str, Any]) -> Iterator[Condition]:
    """The conditions; while the pair is not checked, those that an earlier check of the pair found stay."""
    kinds = dict(_UNLOOKED) if view.kept and view.pairing is None else {}
    before = conditions_of(old)
    for condition in conditions:
        found = before.get(condition.type, {})
        truth, reason = text(found, "status"), text(found, "reason")
        known = truth in set(Truth) and reason in set(Reason)
        if condition.type in kinds and known and reason not in kinds[condition.type]:
            yield Condition(condition.type, Truth(truth), Reason(reason), text(found, "message"))
        else:
            yield condition


def should_write(
    old: Mapping[str, Any], new: Mapping[str, Any], last_write: float, now: float, interval: float = FIGURES_SECONDS
) -> bool:
    """True when the new status says something that cannot wait, or figures moved and the last write is `interval` ago.

    `last_write` and `now` in unix seconds. The tuner's memory never causes a write: what it has learned since is
    learned again within minutes.
    """
    if cannot_wait(old, new):
        return True
    if 0 <= now - last_write < interval:
        return False
    if at(old, "engine", _ACKNOWLEDGED) != at(new, "engine", _ACKNOWLEDGED):
        return True
    if _downloads(old) != _downloads(new):
        return True
    return _verdict(old) != _verdict(new) or _figures_moved(mapping(old, "speculation"), mapping(new, "speculation"))


def cannot_wait(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """True when the new status says something that is written at once."""
    return _steady(old) != _steady(new)


def _steady(status: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a status that is written at once when it changes."""
    steady = {key: value for key, value in status.items() if key not in _APART}
    block = mapping(status, "speculation")
    return steady | {
        "engine": {key: value for key, value in mapping(status, "engine").items() if key != _ACKNOWLEDGED},
        "speculation": {key: value for key, value in block.items() if key not in FIGURES},
        "conditions": [_still(one) for one in items(status, "conditions") if text(one, "type") != _VERDICT],
    }


def _still(condition: Any) -> Any:
    """The condition, without a message that moves all the time: figures of a download, pods that are left out of the
    metrics."""
    downloads = text(condition, "type") == ConditionType.WEIGHTS_READY.value
    if not _names_pods(condition) and not (downloads and text(condition, "reason") in _DOWNLOADS):
        return condition
    return {name: value for name, value in condition.items() if name != "message"}


def _names_pods(condition: Any) -> bool:
    kind, truth = text(condition, "type"), text(condition, "status")
    return (kind, truth) == (ConditionType.METRICS_AVAILABLE.value, Truth.TRUE.value)


def _downloads(status: Mapping[str, Any]) -> Any:
    """The figures of a download."""
    weights = [one for one in items(status, "conditions") if text(one, "type") == ConditionType.WEIGHTS_READY.value]
    return mapping(status, "weights"), weights


def _verdict(status: Mapping[str, Any]) -> list[Any]:
    """The conditions that may change from window to window: the tuner's verdict on the table at the edge of a margin,
    and the one that names the pods it rests on."""
    return [one for one in items(status, "conditions") if text(one, "type") == _VERDICT or _names_pods(one)]


def _figures_moved(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return any(_differs(old.get(key), new.get(key)) for key in FIGURES if key not in _SILENT)


def _differs(old: Any, new: Any) -> bool:
    if old == new:
        return False
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        # Percent of gain: points are what matters, their share of a small gain is noise.
        return any(abs(_number(old.get(key)) - _number(new.get(key))) > 100 * FIGURES_SHARE for key in {*old, *new})
    if isinstance(old, str) and isinstance(new, str):
        before, after = _leading(old), _leading(new)
        if before is None or after is None:
            return True
        if old[:1] in "+-" and new[:1] in "+-":
            return abs(before - after) > 100 * FIGURES_SHARE
        return abs(before - after) > FIGURES_SHARE * max(abs(before), abs(after))
    return True


def _leading(figure: str) -> float | None:
    found = re.match(r"[+-]?[0-9]+(?:\.[0-9]+)?", figure)
    return float(found.group()) if found else None


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _pair_block(spec: DeploymentSpec) -> dict[str, Any]:
    pair = {"verifier": source_text(spec.verifier.source), "hash": pair_hash(spec)}
    if spec.speculator is not None and spec.speculates:
        source = spec.speculator.source
        pair["speculator"] = source_text(source) if source is not None else spec.speculator.method.value
    return pair
