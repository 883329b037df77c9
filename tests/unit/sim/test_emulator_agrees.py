"""Simulator and emulator are two programs for one scheduler: without chance they take the same steps.

One difference is meant, and taken out here: what a pod without full graphs loses, the simulator charges in every step,
the emulator only in steps without prompts, as vLLM does. The simulator's oracle knows mean steps alone.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.sim.rigs import knobs, plant

from speculative_lab.emulator.acceptance import AcceptanceTable
from speculative_lab.emulator.core import CoreLimits, EngineCore, StepResult
from speculative_lab.emulator.kv import KvPool
from speculative_lab.emulator.lengths import Constant
from speculative_lab.emulator.requests import FinishReason, Request
from speculative_lab.emulator.timing import StepTimer
from speculative_lab.sim.deployment import Deployment
from speculative_lab.sim.drafts import dead
from speculative_lab.sim.plant import Plant
from speculative_lab.sim.workload import Workload
from speculative_operator.domain.table import KnobSpace, KTable


def emulated(own: Plant, load: Workload, k: int) -> list[StepResult]:
    """Steps of the emulator's core with drafts that are never accepted."""
    limits = CoreLimits(own.knobs.max_batch, own.max_batched_tokens, max_k=own.max_k)
    pool = KvPool(own.kv_tokens // own.block_size, own.block_size, 0.0)
    refused = AcceptanceTable(own.max_k, lambda _: np.zeros(own.max_k), 0.0, False)
    lengths = Constant(min(k, own.max_k))
    timer = StepTimer(own.costs, own.knobs, True, 0.0)
    core = EngineCore(limits, pool, timer, refused, lengths, np.random.default_rng(0))
    assert load.arrival is not None
    coming = [
        Request(str(i), int(p), int(o), FinishReason.LENGTH, int(o), float(a), 0, 0)
        for i, (p, o, a) in enumerate(zip(load.prompt, load.output, load.arrival, strict=True))
    ]
    now, results = 0.0, []
    while coming or core.busy:
        if not core.busy:
            now = max(now, coming[0].arrival)
        while coming and coming[0].arrival <= now:
            core.add(coming.pop(0))
        results.append(core.step(now))
        now = results[-1].end
    return results


@pytest.mark.parametrize("space", [knobs(), knobs(drafts_blocks=True), knobs(draft_passes_follow_k=False)])
@pytest.mark.parametrize("k", [0, 3])
@pytest.mark.parametrize("kv_tokens", [100_000, 9_000])
def test_step_by_step_they_do_the_same(space: KnobSpace, k: int, kv_tokens: int) -> None:
    rng = np.random.default_rng(k)
    count = 150
    load = Workload(
        rng.integers(1, 900, count),
        rng.integers(1, 120, count),
        np.zeros(count, dtype=np.int64),
        (dead(),),
        np.sort(rng.uniform(0.0, 3.0, count)),
    )
    own = plant(knobs=space, kv_tokens=kv_tokens, max_batched_tokens=1024)
    own = replace(own, costs=replace(own.costs, graph_tax=0.0))
    run = Deployment(own, load, table=KTable.constant(k, 64), log_steps=50_000)
    run.advance(100.0)
    steps, expected = run.steps(0), emulated(own, load, k)
    assert steps.scheduled.tolist() == [result.scheduled for result in expected]
    assert steps.prefill.tolist() == [result.prefill_tokens for result in expected]
    assert steps.draft_tokens.tolist() == [result.draft_tokens for result in expected]
    assert steps.context.tolist() == [result.context_tokens for result in expected]
    assert steps.emitted.tolist() == [result.generated_tokens for result in expected]
    assert steps.end == pytest.approx([result.end for result in expected], rel=1e-9)
    preempted = sum(result.preempted for result in expected)
    assert run.counters(0)[8] == preempted
    assert (preempted > 0) == (kv_tokens < 10_000)
    assert steps.batch.max() > 20
