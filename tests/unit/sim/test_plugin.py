"""The plug-in's blocks in the simulator: they are told the steps that ran, and what they say is what is drafted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.unit.sim.rigs import arriving, knobs, plant, steady

from speculative_lab.sim import layout as at
from speculative_lab.sim import plugin
from speculative_lab.sim.deployment import Deployment, StepLog
from speculative_lab.sim.workload import Lengths
from speculative_operator.domain.table import BLOCK_STEPS, Actuator, KTable, Trial
from speculative_operator.payload.speculative_blocks import Blocks

TWO = KTable.from_rows([[1, 16, 3], [17, 64, 1]])
TRIALS = (Trial(1, 16, (2, 5), 0.3), Trial(17, 64, (0, 2), 0.3))


class Recorder(Blocks):
    """Blocks that remember what they were asked and told, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        super().__init__()

    def put_in_force(self, *table: Any) -> None:
        super().put_in_force(*table)
        self.calls = [call for call in self.calls if call[0] != "idle"]  # it begins anew: no step ended

    def k_for(self, decoding: int) -> int:
        k = super().k_for(decoding)
        self.calls.append(("asked", decoding, k))
        return k

    def count(self, *step: Any) -> None:
        super().count(*step)
        self.calls.append(("told", *step))

    def idle(self) -> None:
        super().idle()
        self.calls.append(("idle",))


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "Blocks", Recorder)


def run_deployment(load: Any, seconds: float = 60.0, **changes: Any) -> Deployment:
    deployment = Deployment(plant(noise=0.05, **changes), load, table=TWO, log_steps=100_000, telemetry=True)
    deployment.set_table(TWO, 0.0, 2, TRIALS)
    deployment.advance(seconds)
    return deployment


def calls(deployment: Deployment, kind: str) -> list[tuple[Any, ...]]:
    blocks = deployment._plugins.blocks[0]
    assert isinstance(blocks, Recorder)
    return [call[1:] for call in blocks.calls if call[0] == kind]


def step_rows(steps: StepLog) -> list[tuple[float, ...]]:
    verified = np.where(steps.batch > 0, steps.k, 0)
    columns = (verified, steps.sampled, steps.scheduled, steps.seconds, steps.emitted, steps.prefill)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [row for row in rows if row[4] > 0]


@pytest.mark.usefixtures("recorded")
def test_blocks_are_told_every_step_that_emits_tokens() -> None:
    deployment = run_deployment(arriving([(0.0, 20.0), (20.0, 90.0)], 60.0))
    found, expected = calls(deployment, "told"), step_rows(deployment.steps(0))
    assert len(found) == len(expected) > 1000
    assert [row[3] for row in found] == pytest.approx([row[3] for row in expected], rel=1e-9)
    assert [(*row[:3], *row[4:]) for row in found] == [(*row[:3], *row[4:]) for row in expected]


@pytest.mark.usefixtures("recorded")
def test_k_is_what_blocks_say_for_the_requests_that_get_a_token() -> None:
    deployment = run_deployment(arriving([(0.0, 10.0), (20.0, 40.0)], 60.0), max_batched_tokens=512)
    asked, steps = calls(deployment, "asked"), deployment.steps(0)
    assert (steps.sampled < steps.scheduled).sum() > 100, "prompts in the middle of their chunks are no key"
    assert [decoding for decoding, _ in asked[: len(steps.end)]] == steps.sampled.tolist()
    assert [k for _, k in asked[: len(steps.end)]] == steps.next_k.tolist()
    assert steps.k[1:].tolist() == steps.next_k[:-1].tolist()
    assert {0, 1, 2, 3, 5} == set(steps.k.tolist())


@pytest.mark.usefixtures("recorded")
def test_blocks_hear_when_nothing_remains() -> None:
    deployment = run_deployment(arriving(0.5, 60.0, output=Lengths(40.0, 0.2)))
    assert 10 < len(calls(deployment, "idle")) < 60
    busy = run_deployment(steady(4))
    assert not calls(busy, "idle")


def test_without_the_plugin_the_key_is_all_that_is_scheduled() -> None:
    load = steady(24, prompt=Lengths(3000.0, 0.1), output=Lengths(800.0, 0.3))
    narrow = plant(max_batched_tokens=512)
    deployment = Deployment(narrow, load, table=TWO, log_steps=100_000)
    deployment.advance(60.0)
    steps = deployment.steps(0)
    assert steps.next_k.tolist() == np.where(steps.scheduled > 16, 1, 3).tolist()
    assert set(steps.next_k.tolist()) == {1, 3}


def test_who_gets_a_token_decodes_or_ends_its_prompt() -> None:
    """Prompts of 3000 tokens in chunks of 512: five steps in the middle, one that ends."""
    load = steady(12, prompt=Lengths(3000.0, 0.1), output=Lengths(100.0, 0.3))
    deployment = Deployment(plant(max_batched_tokens=512), load, table=TWO, log_steps=100_000)
    deployment.advance(60.0)
    steps, counted = deployment.steps(0), deployment.counters(0)
    assert (steps.batch <= steps.sampled).all()
    assert (steps.sampled <= steps.scheduled).all()
    assert (steps.sampled - steps.batch).sum() == counted[at.FIRST_TOKENS] > 100
    assert steps.sampled.sum() == counted[at.FIRST_TOKENS] + counted[at.REQUEST_STEPS]


def test_compared_blocks_are_those_of_the_plugin_fed_with_the_same_steps() -> None:
    deployment = run_deployment(steady([(0.0, 6), (40.0, 14), (80.0, 20), (120.0, 9)]), seconds=160.0)
    steps = deployment.steps(0)
    alone = Blocks()
    alone.put_in_force(plant().rows(TWO), None, BLOCK_STEPS)
    first = alone.k_for(int(steps.sampled[0]))  # the step that began before the table file came
    trials = [(one.first, one.last, list(one.ks), one.share) for one in TRIALS]
    alone.put_in_force(plant().rows(TWO), trials, BLOCK_STEPS)
    rows = step_rows(steps)
    for place, (sampled, next_k, emitted) in enumerate(zip(steps.sampled, steps.next_k, steps.emitted, strict=True)):
        assert next_k == (alone.k_for(int(sampled)) if place else first)
        if emitted > 0:
            k, decoding, requests, seconds, tokens, prefill = rows.pop(0)
            alone.count(int(k), int(decoding), int(requests), seconds, int(tokens), int(prefill))
    assert alone.comparisons
    assert alone.comparisons == deployment._plugins.blocks[0].comparisons


def test_a_restarted_pod_begins_its_comparisons_anew() -> None:
    deployment = run_deployment(steady(8), seconds=120.0)
    assert deployment._plugins.blocks[0].comparisons
    deployment.restart(0)
    deployment.advance(270.1)
    assert deployment.pods()
    assert not deployment._plugins.blocks[0].comparisons
    deployment.advance(300.0)
    assert deployment._plugins.blocks[0].comparisons, "what is tried outlives the pod"


def test_a_scrape_tells_what_was_compared() -> None:
    deployment = run_deployment(steady(8), seconds=120.0)
    text = deployment.exposition()["sim-0-0"]
    parsed = {name: float(value) for name, value in (line.rsplit(" ", 1) for line in text.splitlines())}
    (key, figures), *_ = deployment._plugins.blocks[0].comparisons.items()
    labels = f'k="{key[0]}",against="3",first="1",last="16"'
    assert parsed[f"speculative_payload_tried_blocks_total{{{labels}}}"] == figures[0] > 1
    assert parsed[f"speculative_payload_tried_seconds_square_total{{{labels}}}"] == figures[3]
    assert parsed[f"speculative_payload_tried_tokens_square_total{{{labels}}}"] == figures[4]
    names = ("steps", "step_seconds", "requests", "request_seconds", "tokens", "decode_steps", "decode_step_seconds")
    for side, totals in (("tried", figures[1]), ("beside", figures[2])):
        for name, total in zip(names, totals, strict=True):
            assert parsed[f'speculative_payload_tried_{name}_total{{{labels},side="{side}"}}'] == total


def test_nothing_is_tried_without_the_plugin_or_before_it_is_asked_for() -> None:
    for trials, telemetry in ((TRIALS, False), ((), True)):
        deployment = Deployment(plant(), steady(8), table=TWO, log_steps=100_000, telemetry=telemetry)
        deployment.set_table(TWO, 0.0, 2, trials)
        deployment.advance(60.0)
        assert set(deployment.steps(0).k.tolist()) <= {0, 3}


def test_where_tables_need_a_restart_nothing_is_tried() -> None:
    own = plant(knobs=knobs(actuator=Actuator.TABLE))
    deployment = Deployment(own, steady(8), table=TWO, log_steps=100_000, telemetry=True)
    deployment.set_table(TWO, 0.0, 2, TRIALS)
    deployment.advance(60.0)
    assert set(deployment.steps(0).k.tolist()) <= {0, 3}


def test_an_error_in_the_blocks_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Blocks):
        def count(self, *_: Any) -> None:
            raise ZeroDivisionError("a block of no steps")

    monkeypatch.setattr(plugin, "Blocks", Broken)
    with pytest.raises(ZeroDivisionError, match="a block of no steps"):
        run_deployment(steady(8))
