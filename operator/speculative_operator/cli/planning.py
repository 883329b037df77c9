"""Tells what to expect of a deployment before it runs, by the models with which the operator starts. Pure. Used by
`plan`.

Every figure comes from `tuner.outlook` on priors alone; `guidance` adds the advice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from speculative_operator.cli import guidance
from speculative_operator.cli.beliefs import Belief
from speculative_operator.cli.guidance import CLEAR_PERCENT
from speculative_operator.cli.subject import Subject
from speculative_operator.domain.shares import share_of
from speculative_operator.domain.spec import DeploymentSpec, Mode, Workload
from speculative_operator.domain.table import Actuator
from speculative_operator.engines.pairs import capacity
from speculative_operator.pairing.catalogue import Catalogue
from speculative_operator.tuner.judge import initial_table, table_by_prior, tries_first
from speculative_operator.tuner.outlook import Outlook, outlook
from speculative_operator.tuner.traffic import Traffic

LEAST_PERCENT = 5.0
"""Gain in percent below which speculation is not worth its memory and its risk."""
_SHAPE_REMEDY = "give --read, which reads the model's config.json and the sizes of its files"
_BYTES_REMEDY = "set spec.verifier.quantization or tensorParallelSize, or count the real bytes: --read"
_DEVICE_REMEDY = "names are those of node labels or data sheets; for a slice (MIG) that of the whole one"


@dataclass(frozen=True, slots=True)
class Row:
    """The expectation at one load: requests in one step of a pod."""

    load: int
    start_k: int
    best: Belief
    off_ms: float
    cost: float | None
    """Cost of a thousand output tokens with the best K; None where no price is known."""
    off_cost: float | None

    def cells(self, *, priced: bool) -> tuple[str, ...]:
        """The cells of the row for a table."""
        gain = self.best.gain
        cells = (
            str(self.load), str(self.start_k), str(self.best.k), f"{gain.mid:+.0f} %",
            f"{gain.low:+.0f} to {gain.high:+.0f} %", f"{self.best.tpot_ms:.1f}", f"{self.off_ms:.1f}",
        )  # fmt: skip
        return (*cells, _price(self.cost), _price(self.off_cost)) if priced else cells

    def to_json(self) -> dict[str, Any]:
        """All figures of the row by name."""
        gain = self.best.gain
        return {
            "requests": self.load, "startK": self.start_k, "bestK": self.best.k,
            "gainPercent": [round(value, 1) for value in (gain.low, gain.mid, gain.high)],
            "tpotMs": round(self.best.tpot_ms, 3), "tpotOffMs": round(self.off_ms, 3),
            "costPerThousandTokens": self.cost, "costPerThousandTokensOff": self.off_cost,
        }  # fmt: skip


@dataclass
class Plan:
    """Everything that `plan` prints."""

    title: str
    memory: str
    table: str
    basis: str
    workload: Workload
    rows: list[Row] = field(default_factory=list)
    end: str = ""
    """Why the rows end below the most requests that the engine schedules; empty where they do not."""
    verdict: str = ""
    advice: list[str] = field(default_factory=list)
    pays: bool = False
    pair: str = ""

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield label and text of the facts that hold at every load."""
        yield "pair", self.pair or "not read; --read compares the models' files and counts their bytes"
        yield "memory", self.memory
        yield "basis", self.basis
        yield "text", f"{self.workload}, with the published acceptance for it; --workload takes another kind"
        if self.table:
            yield "start table", self.table

    def to_json(self) -> dict[str, Any]:
        """All facts and rows of the plan by name."""
        return {
            "title": self.title, "pair": self.pair or None, "memory": self.memory, "basis": self.basis,
            "workload": self.workload.value, "startTable": self.table, "rows": [one.to_json() for one in self.rows],
            "tableEnd": self.end, "verdict": self.verdict, "advice": self.advice, "pays": self.pays,
        }  # fmt: skip


def plan_of(
    found: Subject, rows: Catalogue, context: float, prompt_ratio: float, load: float | None, misfit: str = ""
) -> Plan:
    """The plan for a deployment. `load`: the load of the verdict; None: the load with the largest gain. `misfit`: why
    the pair cannot be served, where that is known."""
    spec, policy, unknown = found.spec, found.policy, _unknown(found)
    traffic = Traffic(context=context, prompt_ratio=prompt_ratio)
    room = _room(found, context)
    basis = "published figures of models and accelerator; nothing is measured yet"
    if unknown:
        basis = "none: the shape of the verifier or the accelerator is not known, and no other stands in for it"
    plan = Plan(_title(spec), _memory(room), "", basis, policy.workload)
    if policy.knobs.actuator is Actuator.NONE or policy.mode is Mode.DISABLED or misfit:
        plan.verdict = f"no candidate: {misfit or 'the spec has no speculator, or mode Disabled'}"
        return plan
    if unknown:
        plan.verdict = f"not known: {unknown[0]}"
        plan.advice += unknown[1:]
        return plan
    most = policy.knobs.max_batch
    if room.requests is not None and room.requests < most:
        most, plan.end = room.requests, _end(room, most)
    if not most:
        plan.verdict, plan.end = f"{'no candidate' if room.tokens else 'not known'}: {plan.end}", ""
        plan.advice += [] if room.tokens else [_BYTES_REMEDY]
        return plan
    table = table_by_prior(policy) if tries_first(policy) else initial_table(policy)
    plan.table = ", ".join(f"{first}-{last} requests: K {k}" for first, last, k in table.rows())
    view = outlook(policy, traffic=traffic)
    loads = [*(2**power for power in range(20) if 2**power < most), most]
    plan.rows = [_row(view, table.k_at(one), one, found.spec.accelerator.replica_cost) for one in loads]
    _judge(plan, found, view, rows, traffic, load)
    return plan


def _judge(plan: Plan, found: Subject, view: Outlook, rows: Catalogue, traffic: Traffic, load: float | None) -> None:
    """Add verdict and advice to the plan."""
    at = min(load, plan.rows[-1].load) if load else max(plan.rows, key=lambda one: one.best.gain.mid).load
    best = guidance.best_of(view, at)
    gain = best.gain
    plan.pays = gain.mid >= LEAST_PERCENT
    words = "candidate" if gain.mid >= CLEAR_PERCENT else "some gain, below 1.5x" if plan.pays else "no candidate"
    interval = f"{gain.mid:+.0f} % ({gain.low:+.0f} to {gain.high:+.0f}) with K {best.k}"
    plan.verdict = f"{words}: {interval} expected at {at:g} request{'s' * (at != 1)} in one step of a pod"
    plan.advice += _range(plan.rows)
    if plan.pays and gain.low < 0.0:
        plan.advice.append("the interval reaches below 0: compare with a copy in mode Disabled before you rely on it")
    lines = list(guidance.rules(view, best, at))
    if (price := found.spec.accelerator.replica_cost) is not None:
        lines += guidance.cost(1000.0 * at / best.tpot_ms, price, gain.mid)
    if gain.mid < CLEAR_PERCENT:
        lines += [*guidance.why(view, best, at), *guidance.helps(found, rows, traffic, at)]
    plan.advice += [f"{label}: {text}" for label, text in lines]


def _range(rows: list[Row]) -> Iterator[str]:
    """Yield sentences on the loads at which speculation pays clearly, and from which on it does not."""
    clear = [one.load for one in rows if one.best.gain.mid >= CLEAR_PERCENT]
    lost = [one.load for one in rows if one.best.gain.mid < LEAST_PERCENT]
    if clear:
        yield f"1.5x or more at {clear[0]} to {clear[-1]} requests of the loads above"
    if lost:
        below = "more replicas keep the load of a pod below that"
        yield f"less than {LEAST_PERCENT:g} % from {lost[0]} requests on: {below}"


def _row(view: Outlook, start_k: int, load: int, price: float | None) -> Row:
    best = guidance.best_of(view, load)
    off_ms = best.tpot_ms * (1.0 + best.gain.mid / 100.0)
    cost, off_cost = (None if price is None else price * ms / (3600.0 * load) for ms in (best.tpot_ms, off_ms))
    return Row(load, start_k, best, off_ms, cost, off_cost)


def _price(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _title(spec: DeploymentSpec) -> str:
    speculator = spec.speculator
    drafts = speculator.method.value if speculator else "no speculator"
    if speculator is not None and speculator.source is not None:
        drafts = f"{speculator.source.location} ({drafts})"
    share = share_of(spec)
    product = share.product if share else spec.accelerator.product
    machine = f"{spec.accelerator.per_replica} x {product or 'an unnamed accelerator'}"
    machine += f" ({share.name})" if share is not None else ""
    return f"{spec.verifier.source.location} with {drafts}, {spec.engine.type} {spec.engine.version}, {machine}"


@dataclass(frozen=True, slots=True)
class _Room:
    """The KV cache of one pod, in tokens, and in requests of `each` tokens; None where it is not known."""

    tokens: int | None
    without_speculator: int | None
    each: int

    @property
    def requests(self) -> int | None:
        return None if self.tokens is None else self.tokens // self.each


def _room(found: Subject, context: float) -> _Room:
    """The room for requests of `context` tokens, or of `maxModelLen`, the longest that the engine takes."""
    facts, longest = found.policy.facts, found.spec.verifier.max_model_len
    held, whole = (capacity(found.spec, facts, with_speculator=one) for one in (True, False))
    return _Room(held, whole, max(min(int(context), longest or int(context)), 1))


def _memory(room: _Room) -> str:
    held, whole = room.tokens, room.without_speculator
    if held is None:
        return "not known: models or accelerator are not in the catalogue; --read or accelerator.product help"
    without = f", {whole:,} without the speculator" if whole and whole > held else ""
    return f"{held:,} tokens of KV cache{without}: {held // room.each:,} requests of {room.each:,} tokens"


def _end(room: _Room, scheduled: int) -> str:
    """Why there is no row for as many requests as the engine schedules."""
    if not room.tokens:
        return "by the bytes that names and shapes tell, the weights leave no memory for a KV cache"
    fit, whole = room.requests or 0, (room.without_speculator or 0) // room.each
    without = f" ({whole:,} without the speculator)" if whole > fit else ""
    if not fit:
        return f"the KV cache holds {room.tokens:,} tokens, less than one request of {room.each:,}{without}"
    return (
        f"The table ends at {fit:,}: no more requests of {room.each:,} tokens fit the KV cache{without}; "
        f"the engine schedules up to {scheduled:,}."
    )


def _unknown(found: Subject) -> list[str]:
    """What is missing to price a step, and below it a line of remedy for each; empty where nothing is missing."""
    spec, facts = found.spec, found.policy.facts
    missing, remedies = [], []
    if facts.verifier is None:
        missing.append(f"the shape of {spec.verifier.source.location}")
        remedies.append(_SHAPE_REMEDY)
    if facts.accelerator is None:
        product = spec.accelerator.product
        missing.append(f"the accelerator {product}" if product else "the accelerator")
        if (share := share_of(spec)) is not None:
            missing[-1] += f" (pods get {share.name})"
        remedies.append(f"set spec.accelerator.product, such as H100-SXM: {_DEVICE_REMEDY}")
    if not missing:
        return []
    return [f"without {' and '.join(missing)} no gain can be told", *remedies]
