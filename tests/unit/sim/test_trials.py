"""What the tuner wants tried reaches the pods, is counted as a write, and its cost is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.sim.rigs import knobs, plant, steady
from tests.unit.sim.test_bench_judge import case, row
from tests.unit.sim.test_exposition import window

from bench.tuner import judge
from speculative_lab.sim import session as session_module
from speculative_lab.sim.deployment import Deployment
from speculative_lab.sim.experiment import run
from speculative_lab.sim.policies.ours import Ours, Untried
from speculative_lab.sim.session import Session
from speculative_operator.domain.decision import Decision, Policy, State
from speculative_operator.domain.observation import Observation
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import Mode
from speculative_operator.domain.table import BLOCK_STEPS, KTable, Trial
from speculative_operator.engines.vllm.adapter import ENGINE
from speculative_operator.tuner import Memory

THREE, ONE = KTable.constant(3, 64), KTable.constant(1, 64)
TRIALS = (Trial(1, 64, (2, 5), 0.3),)
POLICY = Policy(mode=Mode.AUTO, knobs=knobs(), start_k=3)

Answers = Callable[[float], Decision]


def answer(
    table: KTable = THREE, trials: tuple[Trial, ...] = (), *, valid: bool = True, changed: bool = False
) -> Decision:
    return Decision(State.ON, table, Reason.TUNED, "", valid=valid, changed=changed, trials=trials)


def tuned(monkeypatch: pytest.MonkeyPatch, answers: Answers, policy: Policy = POLICY) -> tuple[Session, Ours]:
    """A session whose tuner answers as it is told; times in simulated seconds."""

    def decide(memory: Memory, _: Observation, __: Policy, now: float) -> tuple[Memory, Decision]:
        return memory, answers(now - 1_800_000_000.0)

    monkeypatch.setattr(session_module, "decide", decide)
    session = Session(ENGINE, policy, acknowledged=True)
    return session, Ours(session)


def served(tuner: Ours | Untried, seconds: float = 120.0) -> Deployment:
    deployment = Deployment(plant(noise=0.05), steady(8), table=THREE, log_steps=100_000, telemetry=True)
    for look in range(round(seconds / 5.0)):
        deployment.advance(5.0 * look)
        tuner.act(deployment)
    deployment.advance(seconds)
    return deployment


def test_what_is_tried_reaches_the_pods_and_comes_back_as_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    session, tuner = tuned(monkeypatch, lambda now: answer(trials=TRIALS if now >= 30.0 else ()))
    deployment = served(tuner)
    assert (session.trials, session.version, tuner.journal.writes) == (TRIALS, 2, [30.0])
    found = window(deployment, [120.0, 150.0])
    assert {(one.k, one.against, one.first, one.last) for one in found.comparisons} == {(2, 3, 1, 64), (5, 3, 1, 64)}
    for one in found.comparisons:
        assert one.trial.steps == BLOCK_STEPS * one.blocks
        assert one.beside.steps == 2 * BLOCK_STEPS * one.blocks
        assert one.trial.tokens / one.trial.requests == pytest.approx(2.4 if one.k == 2 else 3.4, rel=0.25)
    assert found.table_version == 2


def test_nothing_is_tried_once_the_tuner_wants_nothing_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    session, tuner = tuned(monkeypatch, lambda now: answer(trials=TRIALS if 30.0 <= now < 60.0 else ()))
    deployment = served(tuner)
    assert (session.trials, session.version, tuner.journal.writes) == ((), 3, [30.0, 60.0])
    assert window(deployment, [120.0, 150.0]).comparisons == ()


def test_an_answer_that_is_not_valid_leaves_tries_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    session, tuner = tuned(monkeypatch, lambda now: answer(trials=TRIALS) if now < 60.0 else answer(valid=False))
    served(tuner)
    assert (session.trials, session.version) == (TRIALS, 2)


def test_tries_of_a_table_that_is_not_taken_are_not_taken_either(monkeypatch: pytest.MonkeyPatch) -> None:
    beyond = KTable.constant(7, 64)
    session, tuner = tuned(monkeypatch, lambda _: answer(beyond, TRIALS, changed=True))
    served(tuner)
    assert (session.table, session.trials, session.version) == (THREE, (), 1)


def test_the_tuner_remembers_what_is_truly_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """K 7 was not prepared, and 0.34 of all blocks is written as 0.3: neither may look like a wish still to be met."""
    wanted = (Trial(1, 64, (2, 7), 0.34),)
    session, tuner = tuned(monkeypatch, lambda _: answer(trials=wanted))
    served(tuner)
    assert session.trials == (Trial(1, 64, (2,), 0.3),)
    assert session.memory is not None
    assert session.memory.trials == session.trials
    assert tuner.journal.writes == [0.0]


def test_a_table_and_its_tries_are_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(now: float) -> Decision:
        return answer(ONE, TRIALS, changed=35.0 > now >= 30.0) if now >= 30.0 else answer()

    session, tuner = tuned(monkeypatch, answers)
    served(tuner)
    assert (session.table, session.trials, tuner.journal.writes) == (ONE, TRIALS, [30.0])


def test_a_tuner_that_only_recommends_has_nothing_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    session, tuner = tuned(monkeypatch, lambda _: answer(trials=TRIALS), replace(POLICY, mode=Mode.RECOMMEND))
    served(tuner)
    assert (session.trials, tuner.tried, tuner.journal.writes) == ((), False, [])


def test_the_run_without_tries_has_the_same_tables_at_the_same_times(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(now: float) -> Decision:
        return answer(ONE, TRIALS, changed=65.0 > now >= 60.0) if now >= 60.0 else answer(trials=TRIALS)

    _, tuner = tuned(monkeypatch, answers)
    served(tuner)
    untried = served(Untried(tuner.acts)).steps(0)
    in_force = [(float(end), int(k)) for end, k in zip(untried.end, untried.next_k, strict=True)]
    assert {k for end, k in in_force if end <= 60.4} == {3}
    assert {k for end, k in in_force if end >= 60.6} == {1}


def test_what_exploring_costs_is_the_speed_of_the_same_tables_without_it() -> None:
    def judged(scenario: str, untried: float | None) -> judge.Row:
        outcomes = case(96.0, scenario)
        if untried is not None:
            marked = next(one for one in case(untried, scenario) if one.task.policy == "ours")
            outcomes[0] = replace(outcomes[0], untried=marked.run)
        return row(outcomes)

    assert judged("diurnal", 100.0).exploring_cost == pytest.approx(4.0)
    assert judged("diurnal", 100.0).exploring_cost_at_rest is None
    assert judged("stationary", 100.0).exploring_cost_at_rest == pytest.approx(4.0)
    assert judged("stationary", None).exploring_cost_at_rest == 0.0


def test_tries_cost_what_their_k_is_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three blocks in ten at K = 0 on top of K = 3, whose steps are little shorter: a part of the speed is gone."""
    _, tuner = tuned(monkeypatch, lambda _: answer(trials=(Trial(1, 64, (0,), 0.3),)))
    own = plant(noise=0.05, zero_factor=1.0)
    tried = run(own, steady(8), tuner, 120.0, 1, telemetry=True)
    untried = run(own, steady(8), Untried(tuner.acts), 120.0, 1, telemetry=True)
    assert tuner.tried
    assert tried.tokens[12:].sum() < untried.tokens[12:].sum()
