"""Objects whose pods can skip the speculator begin at K = 0 and try drafts: when K rises, and when it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.tuner.plant import CHAT, KNOBS, USELESS, Plant, Run, policy
from tests.unit.tuner.test_properties import policies

from speculative_operator.domain.decision import Policy
from speculative_operator.domain.observation import PodWindow
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import Mode, OffPolicy
from speculative_operator.domain.table import Actuator, KTable
from speculative_operator.tuner import Memory, first_trials, initial_table, initial_trials
from speculative_operator.tuner.allowed import candidates, fit_trials
from speculative_operator.tuner.decide import MIN_EFFECTIVE_DRAFTS, PATIENCE
from speculative_operator.tuner.judge import table_by_prior

SKIPPING = policy(knobs=replace(KNOBS, can_skip=True), off_policy=OffPolicy.SKIP)
OFF = KTable.constant(0, KNOBS.max_batch)


class Trying(Run):
    """A closed loop whose windows also hold the drafts that pods try while the table is K = 0."""

    share: float | None = None
    """Share of the steps that try drafts; None for what is asked."""

    def window(self, batch: float) -> PodWindow:
        found = super().window(batch)
        row = next((row for row in self.memory.trials if row.first <= batch <= row.last), None)
        if row is None or found.drafts or not self.plant.telemetry:
            return found
        k, drafts = row.ks[0], found.decode_request_steps * (row.share if self.share is None else self.share)
        accepted = drafts * np.cumprod(self.plant.conditional)[:k]
        return replace(
            found, drafts=drafts, draft_tokens=drafts * k, accepted_tokens=float(accepted.sum()),
            accepted_per_position=tuple(accepted.tolist()), drafted_per_position=(drafts,) * k,
            generated_tokens=found.generated_tokens + float(accepted.sum()),
        )  # fmt: skip


def beginning(conditional: tuple[float, ...] = CHAT, share: float | None = None, telemetry: bool = True) -> Trying:
    memory = Memory(table=initial_table(SKIPPING), since=1_700_000_000.0, trials=initial_trials(SKIPPING))
    loop = Trying(Plant(telemetry=telemetry, conditional=conditional), SKIPPING, memory)
    loop.share = share
    return loop


# -- the first table


@settings(max_examples=60, deadline=None)
@given(policies())
def test_the_first_table_is_k_0_and_what_is_tried_lies_within_it_and_the_allowed_k(asked: Policy) -> None:
    live = replace(asked.knobs, actuator=Actuator.LIVE, can_skip=True, ks=tuple(sorted({0, *asked.knobs.ks})))
    asked = replace(asked, mode=Mode.AUTO, schedule=None, off_policy=OffPolicy.SKIP, knobs=live)
    table, trials = initial_table(asked), initial_trials(asked)
    assert table == KTable.constant(0, live.max_batch)
    assert fit_trials(trials, table, asked) == trials, "pods can run each of them"
    tried = {batch: row.ks for row in trials for batch in range(row.first, row.last + 1)}
    for batch, k in enumerate(table_by_prior(asked).dense(), start=1):
        assert tried.get(batch, (0,)) == (k,), "what the prior proposes"
    assert {k for ks in tried.values() for k in ks} <= set(candidates(asked)) - {0}


@pytest.mark.parametrize(
    "change",
    [
        {"knobs": KNOBS},
        {"off_policy": OffPolicy.KEEP_RUNNING},
        {"off_policy": OffPolicy.REMOVE},
        {"off_policy": OffPolicy.NEVER},
        {"mode": Mode.STATIC},
        {"mode": Mode.RECOMMEND},
        {"trials": False},
        {"schedule": KTable.from_rows([[1, 20, 4], [21, 256, 2]])},
        {"knobs": replace(KNOBS, can_skip=True, actuator=Actuator.RESTART)},
        {"knobs": replace(KNOBS, can_skip=True, ks=(1, 2, 3))},
    ],
)
def test_elsewhere_the_first_table_drafts_and_nothing_is_tried(change: dict[str, Any]) -> None:
    asked = replace(SKIPPING, **change)
    assert initial_trials(asked) == ()
    assert initial_table(asked) == initial_table(replace(asked, knobs=replace(asked.knobs, can_skip=False)))
    assert initial_table(asked).max_k > 0


# -- the first K above 0


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([0.0, 1e-4, 1e-3, 0.01, 0.3]), st.floats(1.0, 128.0), st.sampled_from([CHAT, USELESS]))
def test_k_rises_only_on_enough_tried_drafts(share: float, batch: float, conditional: tuple[float, ...]) -> None:
    loop = beginning(conditional, share)
    for _ in range(PATIENCE + 6):
        decision = loop.play(batch)
        if loop.memory.table != OFF:
            assert loop.memory.acceptance.reached[0] >= MIN_EFFECTIVE_DRAFTS
            return
        assert decision.table == OFF
    assert share < 0.3 or conditional is USELESS or table_by_prior(SKIPPING).k_at(batch) <= 1


def test_where_no_draft_is_tried_yet_k_stays_at_0_for_as_long_as_that_lasts() -> None:
    loop = beginning(share=0.0)
    decision = loop.play(*[4.0] * 3 * PATIENCE)
    assert (decision.table, decision.reason, decision.trials) == (OFF, Reason.COLLECTING, initial_trials(SKIPPING))


@pytest.mark.parametrize("batch", [1.0, 4.0, 16.0])
def test_drafts_that_are_accepted_raise_k_within_a_few_windows(batch: float) -> None:
    loop = beginning()
    loop.play(*[batch] * 4)
    assert loop.memory.table.k_at(batch) > 0
    assert first_trials(loop.memory, SKIPPING) == (), "the beginning is over"


@pytest.mark.parametrize("batch", [1.0, 4.0, 16.0, 100.0])
def test_drafts_that_are_never_accepted_leave_k_at_0(batch: float) -> None:
    loop = beginning(USELESS)
    for _ in range(60):
        assert loop.play(batch).table.k_at(batch) == 0


@pytest.mark.parametrize("batch", [1.0, 4.0])
def test_where_no_trial_covers_the_batch_size_it_does_not_wait(batch: float) -> None:
    loop = beginning()
    loop.memory = replace(loop.memory, trials=tuple(replace(row, first=200) for row in initial_trials(SKIPPING)[-1:]))
    loop.play(*[batch] * 3)
    assert loop.decisions[-1].reason is not Reason.COLLECTING


def test_pods_that_tell_nothing_of_their_trials_are_waited_for_but_not_for_ever() -> None:
    loop = beginning(telemetry=False)
    for _ in range(PATIENCE - 1):
        loop.play(4.0)
        assert (loop.memory.table, loop.memory.trials) == (OFF, initial_trials(SKIPPING))
    loop.play(4.0, 4.0)
    assert loop.memory.table.k_at(4) > 0, "the prior decides, as in pods that cannot try"


def test_one_window_without_figures_of_trials_changes_nothing() -> None:
    loop = beginning(share=1e-4)
    loop.play(4.0, 4.0)
    loop.plant.telemetry = False
    loop.play(4.0)
    assert (loop.memory.table, loop.memory.trials) == (OFF, initial_trials(SKIPPING))
