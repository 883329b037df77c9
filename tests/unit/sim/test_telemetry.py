"""What a simulated payload exports: read by the adapter, and true against the step log."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.unit.sim.rigs import CODE, knobs, plant, steady
from tests.unit.sim.test_exposition import window

from speculative_lab.sim import session as session_module
from speculative_lab.sim.deployment import Deployment
from speculative_lab.sim.drafts import Drafts
from speculative_lab.sim.experiment import run
from speculative_lab.sim.policies.ours import Ours
from speculative_lab.sim.session import Session
from speculative_operator.domain.decision import Decision, Policy
from speculative_operator.domain.observation import Observation, PodWindow
from speculative_operator.domain.spec import Mode
from speculative_operator.domain.table import KTable
from speculative_operator.engines.vllm.adapter import ENGINE
from speculative_operator.tuner import Memory, decide
from speculative_operator.tuner.telemetry import behind, believable

TWO = KTable.from_rows([[1, 16, 5], [17, 64, 2]])


def seen(load: Any, table: KTable = TWO, **changes: Any) -> tuple[PodWindow, Any]:
    deployment = Deployment(plant(noise=0.05, **changes), load, table=table, log_steps=50_000, telemetry=True)
    deployment.advance(20.0)
    deployment.steps(0)
    found = window(deployment, [20.0, 30.0])
    return found, deployment.steps(0)


def test_cells_are_the_steps_by_k_and_bucket() -> None:
    found, steps = seen(steady([(0.0, 14), (24.0, 30)]))
    assert {cell.k for cell in found.cells} == {2, 5}
    verified = np.where(steps.batch > 0, steps.k, 0)
    for cell in found.cells:
        low = 2.0 ** (np.ceil(np.log2(cell.batch)) - 1)
        its = (verified == cell.k) & (steps.scheduled > low) & (steps.scheduled <= 2 * low) & (steps.emitted > 0)
        assert cell.steps == its.sum()
        assert cell.seconds == pytest.approx(steps.seconds[its].sum(), rel=1e-6)
        assert cell.batch == pytest.approx(steps.scheduled[its].mean())
        assert (cell.tokens, cell.prefill_tokens) == (steps.emitted[its].sum(), steps.prefill[its].sum())
    assert sum(cell.steps for cell in found.cells) == found.steps
    assert believable(found, knobs()) is found


def test_survival_by_position_is_that_of_the_drafts_that_had_it() -> None:
    found, steps = seen(steady([(0.0, 14), (24.0, 30)]))
    for position in range(5):
        had = steps.k > position
        assert found.drafted_per_position[position] == steps.drafted[had].sum()
        accepted = steps.by_accepted[had, position + 1 :].sum()
        assert found.accepted_per_position[position] == accepted


def test_looked_up_drafts_keep_the_k_that_was_asked_for() -> None:
    found, steps = seen(steady(20, drafts=Drafts(0.9, 0.9, 0.4, spread=0.0, draft_share=0.3)), KTable.constant(3, 64))
    (cell,) = [cell for cell in found.cells if cell.k]
    assert cell.k == 3
    assert found.drafted_per_position[0] == steps.drafted.sum()
    assert found.drafted_per_position[0] == pytest.approx(0.3 * found.decode_request_steps, rel=0.1)


def test_without_the_switch_nothing_is_told() -> None:
    deployment = Deployment(plant(), steady(8), table=TWO)
    deployment.advance(20.0)
    assert "speculative_payload" not in deployment.exposition()["sim-0-0"]


def test_a_restart_begins_the_payload_anew_with_the_table_in_force() -> None:
    deployment = Deployment(plant(restart_seconds=5.0), steady(8), table=TWO, telemetry=True)
    deployment.set_table(KTable.constant(1, 64), 0.0, version=7)
    deployment.advance(30.0)
    deployment.restart(0)
    deployment.advance(35.0)
    text = deployment.exposition()["sim-0-0"]
    assert "speculative_payload_table_version 7" in text
    assert "steps_total" not in text


def late_and_not(monkeypatch: pytest.MonkeyPatch, delivery: float) -> tuple[list[Observation], list[Decision]]:
    looks: list[Observation] = []
    answers: list[Decision] = []

    def spy(memory: Memory, observation: Observation, policy: Policy, now: float) -> tuple[Memory, Decision]:
        looks.append(observation)
        memory, decision = decide(memory, observation, policy, now)
        answers.append(decision)
        return memory, decision

    monkeypatch.setattr(session_module, "decide", spy)
    policy = Policy(mode=Mode.AUTO, knobs=knobs(), start_k=1)
    tuner = Ours(Session(ENGINE, policy, acknowledged=True), delivery=delivery)
    run(plant(noise=0.05), steady(12, drafts=CODE), tuner, 600.0, 1, telemetry=True)
    return looks, answers


def test_a_table_that_arrives_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, answers = late_and_not(monkeypatch, 42.0)
    late = [n for n, look in enumerate(looks) if any(behind(w, look.table_version) for w in look.windows.values())]
    assert len(late) >= 8
    assert not any(answers[n].valid or answers[n].changed for n in late)
    assert sum(answer.changed for answer in answers) >= 2


def test_a_table_that_arrives_at_once_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, answers = late_and_not(monkeypatch, 0.5)
    assert not any(behind(window, look.table_version) for look in looks for window in look.windows.values())
    assert sum(answer.changed for answer in answers) >= 2
