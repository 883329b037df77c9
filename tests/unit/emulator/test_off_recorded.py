"""K = 0 in the emulator beside what was recorded in the real vLLM 0.32.0: what it costs, and what a gap costs later.

Recorded on two cores of a CPU, eager, on the V1 runner: a random verifier of 16 layers with a draft model of 4, and
with an EAGLE-3 head of 1. The emulator prices another pair on another machine, so costs are held to some points.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.emulator.building import V1, Run, configured, quiet, speculation

from speculative_lab.emulator.acceptance import with_gaps
from speculative_lab.emulator.assembly import constant
from speculative_lab.emulator.config import EngineConfig
from speculative_lab.emulator.core import EngineCore
from speculative_lab.emulator.settings import Settings
from speculative_lab.emulator.timing import step_timer
from speculative_operator.physics.step_time import pays_graph_tax

WORKER = ("--worker-extension-cls", "speculative_worker.Extension")
BOOT = [[1, 254, 3], [255, 255, 1], [256, 256, 0]]
HEAD = {"method": "eagle3", "model": "RedHatAI/Qwen3-8B-speculator.eagle3"}
A100 = Settings(accelerator="A100-SXM")

RUNS = {
    "draft_model": {4: 20.8 - 1.4, 16: 18.8 - 1.2, 48: 17.4 - 0.8},
    "eagle3": {4: 14.3 - 0.7, 16: 14.6 - 0.7, 48: 10.8 - 0.6},
}
"""By method and requests: per cent of a step without drafter that K = 0 takes longer in vLLM than where it is off."""
REJECTION = 2.4
"""Of them, vLLM's rejection sampler."""
AFTER = {60: 0.3388 / 0.3513, 180: 0.2019 / 0.2517}
"""Tokens that an EAGLE-3 head missed -> its acceptance afterwards over that of one that missed nothing."""


def engine(method: str, *flags: str, runner: str = "1") -> EngineConfig:
    more = HEAD if method == "eagle3" else {"method": method}
    environment = {**V1, "VLLM_USE_V2_MODEL_RUNNER": runner}
    return configured(*flags, *speculation(3, BOOT, **more), environment=environment, settings=A100)


def percent(config: EngineConfig, requests: int, drafter: bool = True) -> float:
    """Of a step at K = 0, beyond one of an engine without a drafter; without what piecewise graphs cost on V1, for a
    CPU has none."""
    plain = step_timer(configured(settings=A100), 0.0).seconds(requests, 0, 0, 500.0, 0)
    timer = step_timer(config, 0.0)
    tax = timer.costs.graph_tax + timer.costs.request_tax * requests if pays_graph_tax(timer.knobs) else 0.0
    return 100.0 * ((timer.seconds(requests, 0, 0, 500.0, 0, drafter=drafter) - tax) / plain - 1.0)


@pytest.mark.parametrize("requests", [4, 16, 48])
@pytest.mark.parametrize("method", list(RUNS))
def test_what_k_0_costs(method: str, requests: int) -> None:
    runs, off = percent(engine(method, runner="0"), requests), percent(engine(method, *WORKER), requests, drafter=False)
    assert runs - off == pytest.approx(RUNS[method][requests], abs=7.5)


@pytest.mark.parametrize("method", list(RUNS))
def test_the_rejection_sampler_is_part_of_it_on_v1(method: str) -> None:
    on_v1, on_v2 = percent(engine(method, runner="0"), 16), percent(engine(method, *WORKER), 16)
    assert on_v1 - on_v2 == pytest.approx(REJECTION, abs=0.2)
    assert percent(engine("ngram", runner="0"), 16) == pytest.approx(REJECTION, abs=0.2)
    assert percent(engine("ngram"), 16) == pytest.approx(0.0, abs=0.2)


def acceptance(method: str, missed: int) -> tuple[float, float]:
    """Of requests whose drafter was left out for so many tokens, and of new ones afterwards."""
    run = Run(engine(method, *WORKER), quiet())
    core: EngineCore = run.core
    for _ in range(100):
        run.add(prompt=150, output=50 + missed + 100)
    core.lengths = constant(0)
    for _ in range(51):
        run.step()
    core.off = True
    for _ in range(missed):
        run.step()
    core.off, core.lengths = False, constant(3)
    before = len(run.results)
    run.until_idle()
    running = share(run, before)
    for _ in range(100):
        run.add(prompt=150, output=100)
    before = len(run.results)
    run.until_idle()
    return running, share(run, before)


def share(run: Run, first: int) -> float:
    results = run.results[first:]
    return float(sum(one.accepted.sum() for one in results) / sum(one.draft_tokens for one in results))


@pytest.mark.parametrize("missed", list(AFTER))
def test_a_head_accepts_less_of_what_it_has_missed_and_all_of_what_is_new(missed: int) -> None:
    never, fresh = acceptance("eagle3", 0)[0], acceptance("eagle3", missed)
    assert fresh[0] / never == pytest.approx(AFTER[missed], abs=0.08)
    assert fresh[1] == pytest.approx(never, rel=0.05)


def test_a_draft_model_that_has_caught_up_accepts_as_before() -> None:
    never, after = acceptance("draft_model", 0)[0], acceptance("draft_model", 180)[0]
    assert after == pytest.approx(never, rel=0.05)


def test_gaps_lower_each_position_and_spare_who_has_none() -> None:
    survival = np.array([[0.7, 0.5, 0.0], [0.7, 0.5, 0.0], [1.0, 0.5, 0.25]])
    found = with_gaps(survival, np.array([0.0, 1.0, 0.5]))
    assert found[0] == pytest.approx(survival[0])
    assert (found[1, :2] < survival[1, :2]).all()
    assert found[1, 2] == 0.0
    assert found[2, 0] == pytest.approx(1.0)
