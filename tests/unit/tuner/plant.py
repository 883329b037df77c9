"""A toy deployment for closed-loop tests: physics with its own coefficients, seen only through counters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace

import numpy as np

from speculative_operator.domain.decision import Decision, Policy
from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.observation import BlockTotals, Comparison, Observation, PodWindow, StepCell
from speculative_operator.domain.spec import Mode, Workload
from speculative_operator.domain.table import Actuator, KnobSpace, KTable, Trial
from speculative_operator.physics.catalog import find_accelerator, find_model
from speculative_operator.physics.step_costs import StepCosts, calibrated_costs
from speculative_operator.physics.step_time import plain_seconds, step_seconds
from speculative_operator.tuner import Memory, decide

KNOBS = KnobSpace(actuator=Actuator.LIVE, ks=(0, 1, 2, 3, 4, 5), max_batch=256, full_graphs=True)
FACTS = PairFacts(find_model("Qwen/Qwen3-8B"), find_model("Qwen/Qwen3-0.6B"), find_accelerator("H100-SXM"))
TICK = 10.0
CHAT = (0.67, 0.67, 0.66, 0.65, 0.64)
USELESS = (0.0,) * 5
BLOCK = 16
"""Steps of a block."""


def policy(**changes: object) -> Policy:
    plain = Policy(mode=Mode.AUTO, knobs=KNOBS, start_k=4, workload=Workload.CHAT, facts=FACTS)
    return replace(plain, **changes)  # type: ignore[arg-type]  # a test names real fields


def true_costs() -> StepCosts:
    found = calibrated_costs("Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B", "H100-SXM")
    assert found is not None
    return found


@dataclass
class Plant:
    """One replica at a given concurrency. `slow` multiplies the step time of single K."""

    costs: StepCosts = field(default_factory=true_costs)
    knobs: KnobSpace = KNOBS
    conditional: tuple[float, ...] = CHAT
    context: float = 1260.0
    prompt_ratio: float = 5.5
    output: float = 211.0
    slow: Mapping[int, float] = field(default_factory=dict)
    noise: float = 0.02
    seed: int = 7
    telemetry: bool = False
    """Whether windows hold what a payload tells: steps by K and batch, drafts by position."""

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.active: tuple[KTable, tuple[Trial, ...]] | None = None
        self.compared: dict[tuple[int, int], float] = {}

    def length(self, k: int) -> float:
        return 1.0 + float(np.sum(np.cumprod(self.conditional)[:k]))

    def seconds(self, batch: float, k: int, prompts: bool = True) -> float:
        """Of a step with its share of the prompts, or without any, which `slow` leaves as they are."""
        prefill = batch * self.length(k) * self.prompt_ratio
        alone = float(step_seconds(self.costs, self.knobs, batch, k, self.context, 0.0))
        whole = float(step_seconds(self.costs, self.knobs, batch, k, self.context, prefill)) if prompts else alone
        return whole + alone * (self.slow.get(k, 1.0) - 1.0)

    def speed(self, batch: float, k: int) -> float:
        """Tokens per second and request."""
        return self.length(k) / self.seconds(batch, k)

    def off_speed(self, batch: float) -> float:
        return 1.0 / float(plain_seconds(self.costs, batch, self.context, batch * self.prompt_ratio))

    def best_speed(self, batch: float) -> float:
        return max(self.speed(batch, k) for k in self.knobs.ks)

    def bare(self, batch: float, end: float, seconds: float = TICK) -> PodWindow:
        """What counters show of a pod without speculator."""
        period = float(plain_seconds(self.costs, batch, self.context, batch * self.prompt_ratio))
        steps = seconds / period
        requests = steps * batch
        first = requests / (self.output - 1)
        return replace(
            self.window(KTable.constant(0, self.knobs.max_batch), batch, end, seconds),
            steps=steps,
            decode_request_steps=requests,
            step_seconds=requests * period,
            first_tokens=first,
            generated_tokens=requests + first,
            prompt_tokens=(requests + first) * self.prompt_ratio,
            drafts=None,
            draft_tokens=None,
            accepted_tokens=None,
            accepted_per_position=(),
        )

    def comparisons(
        self, table: KTable, trials: Sequence[Trial], batch: float, seconds: float
    ) -> tuple[Comparison, ...]:
        """What blocks of steps show that are tried beside those of `table`."""
        if (table, trials) != self.active:
            self.active, self.compared = (table, tuple(trials)), {}
        here = next((row for row in trials if row.first <= round(batch) <= row.last), None)
        if here is None:
            return ()
        found = (self._compared(here, k, table.k_at(round(batch)), batch, seconds) for k in here.ks)
        return tuple(one for one in found if one.blocks > 0)

    def _compared(self, row: Trial, k: int, against: int, batch: float, seconds: float) -> Comparison:
        """`k` beside `against`, with the noise of each block."""
        before = self.compared.get((row.first, k), 0.0)
        whole = seconds / self.seconds(batch, against) / BLOCK
        blocks = max(round(whole * row.share / len(row.ks) / (1.0 + before / 64.0) + self.random.random() - 0.5), 0)
        self.compared[row.first, k] = before + blocks
        tried = np.zeros(2)
        squares = np.zeros(2)
        periods = self.seconds(batch, k, prompts=False), self.seconds(batch, against, prompts=False)
        true = np.log([periods[0] / periods[1], self.length(k) / self.length(against)])
        for _ in range(blocks):
            noise = np.array([self.noise / 2, math.sqrt(0.5 / (BLOCK * batch))]) * self.random.standard_normal(2)
            tried += np.exp(true + noise)
            squares += (true + noise) ** 2
        steps, period, length = BLOCK * float(blocks), periods[1], self.length(against)
        per = tried / max(blocks, 1)
        return Comparison(
            k, against, row.first, row.last, float(blocks),
            self._totals(steps, batch, float(per[0]) * period, float(per[1]) * length),
            self._totals(2.0 * steps, batch, period, length),
            float(squares[0]), float(squares[1]),
        )  # fmt: skip

    def _totals(self, steps: float, batch: float, period: float, length: float) -> BlockTotals:
        requests = steps * batch
        return BlockTotals(steps, steps * period, requests, requests * period, requests * length, steps, steps * period)

    def window(
        self, table: KTable, batch: float, end: float, seconds: float = TICK, trials: Sequence[Trial] = ()
    ) -> PodWindow:
        """What counters show of `seconds` at about `batch` requests."""
        parts = 8
        sums = np.zeros(8)
        positions, tried = np.zeros(len(self.conditional)), np.zeros(len(self.conditional))
        cells = []
        for _ in range(parts):
            b = float(np.clip(batch * (1 + 0.1 * self.random.standard_normal()), 1, self.knobs.max_batch))
            k = table.k_at(round(b))
            period = self.seconds(b, k) * float(np.exp(self.noise * self.random.standard_normal()))
            steps = seconds / parts / period
            requests = steps * b
            tokens = requests * self.length(k)
            drafts = requests if k else 0.0
            there = np.arange(1, len(self.conditional) + 1) <= k
            tried += drafts * there
            positions += drafts * np.cumprod(self.conditional) * there
            prompts = (b * self.length(k) * self.prompt_ratio) * steps
            cells.append(StepCell(k, b, steps, steps * period, tokens, prompts))
            first = tokens / (self.output - 1)
            sums += (
                *(steps, requests, requests * period, first, tokens + first),
                *((tokens + first) * self.prompt_ratio, drafts, drafts * k),
            )
        steps, requests, periods, first, generated, prompt, drafts, drafted = (float(value) for value in sums)
        capacity = 1e6
        return PodWindow(
            start=end - seconds,
            end=end,
            steps=steps,
            decode_request_steps=requests,
            step_seconds=periods,
            first_tokens=first,
            generated_tokens=generated,
            prompt_tokens=prompt,
            running=max(batch, 1.0),
            waiting=0.0,
            kv_usage=min(self.context * max(batch, 1.0) / capacity, 1.0),
            kv_capacity_tokens=capacity,
            drafts=drafts,
            draft_tokens=drafted,
            accepted_tokens=float(positions.sum()),
            accepted_per_position=tuple(positions.tolist()),
            cells=tuple(cells) if self.telemetry else (),
            drafted_per_position=tuple(tried.tolist()) if self.telemetry else (),
            comparisons=self.comparisons(table, trials, batch, seconds) if self.telemetry else (),
        )


@dataclass
class Run:
    """A closed loop: the table decided for is in force from the next tick on, and so is a speculator's removal."""

    plant: Plant
    policy: Policy
    memory: Memory
    now: float = 1_700_000_000.0
    decisions: list[Decision] = field(default_factory=list)
    regret: list[float] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)

    def play(self, *batches: float) -> Decision:
        """One tick per batch size; the last decision."""
        for batch in batches:
            self.now += TICK
            table = self.memory.table
            speed = self.plant.speed(batch, table.k_at(batch))
            self.regret.append(1 - speed / self.plant.best_speed(batch))
            self.loss.append(1 - speed / self.plant.speed(batch, 0))
            self.see(Observation(self.now, {"pod": self.window(batch)}))
        return self.decisions[-1]

    def window(self, batch: float) -> PodWindow:
        """What the tick that ends now shows."""
        if self.memory.removed:
            return self.plant.bare(batch, self.now)
        return self.plant.window(self.memory.table, batch, self.now, trials=self.memory.trials)

    def see(self, observation: Observation) -> Decision:
        """Decides on `observation`."""
        self.memory, decision = decide(self.memory, observation, self.policy, self.now)
        self.decisions.append(decision)
        return decision

    @property
    def writes(self) -> int:
        return sum(decision.changed for decision in self.decisions)


def run(plant: Plant, asked: Policy | None = None, table: KTable | None = None) -> Run:
    from speculative_operator.tuner import initial_table

    wanted = asked or policy()
    return Run(plant, wanted, Memory.fresh(table or initial_table(wanted), 1_700_000_000.0))


def same(one: object, other: object) -> bool:
    """Equality of memories and what they hold: dataclasses with arrays in them do not compare by `==`."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return bool(np.array_equal(np.asarray(one), np.asarray(other)))
    if is_dataclass(one) and not isinstance(one, type) and type(one) is type(other):
        return all(same(getattr(one, part.name), getattr(other, part.name)) for part in fields(one))
    return one == other
