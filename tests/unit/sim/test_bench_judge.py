"""The bench's arithmetic over runs whose figures are plain: medians over seeds, means over scenarios, worst cases."""

from __future__ import annotations

import numpy as np
import pytest

from bench.tuner import judge, show
from bench.tuner.work import Outcome, Task
from speculative_lab.sim.score import Run


def outcome(policy: str, speed: float, scenario: str = "diurnal", seed: int = 1, **more: object) -> Outcome:
    """40 minutes at a constant speed with 10 requests in flight."""
    ends = 5.0 * np.arange(1, 481)
    held = np.full(480, 50.0)
    run = Run(policy, ends, speed * held, held, **more)  # type: ignore[arg-type]
    return Outcome(Task(scenario, seed, False, policy), run, 2400.0, 1.0, [1.0] * 99 + [3.0] * 2)


def case(ours: float, scenario: str = "diurnal", seed: int = 1, never: float = 40.0, **more: object) -> list[Outcome]:
    speeds = {"oracle": 100.0, "off": 50.0, "static_1": 90.0, "static_3": 80.0, "never": never}
    marks = [outcome(name, speed, scenario, seed) for name, speed in speeds.items()]
    return [outcome("ours", ours, scenario, seed, **more), *marks]


def row(outcomes: list[Outcome]) -> judge.Row:
    (group,) = judge.runs_of(outcomes).values()
    return judge.row_of(group)


def test_a_row_compares_with_oracle_best_constant_and_off() -> None:
    found = row(case(95.0, writes=(100.0, 200.0)))
    assert found.regret == pytest.approx(5.0)
    assert found.over_best_static == pytest.approx(100 * (1 - 95 / 90))
    assert (found.best_static, found.unsafe, found.writes_per_hour) == ("static_1", 0, 3.0)
    assert found.worst_window == pytest.approx(90.0)
    assert (found.removal_right, found.dead_minutes, found.wrong_removal) == (False, None, False)
    assert found.decide_ms_p99 == 3.0


def test_a_removal_is_wrong_unless_the_drafter_is_dead_weight() -> None:
    assert row(case(95.0, removals=(900.0,))).wrong_removal
    right = row(case(95.0, "dead_drafter", never=120.0, removals=(900.0,)))
    assert not right.wrong_removal
    assert right.dead_minutes == pytest.approx((900.0 - 0.2 * 2400.0) / 60.0)


def test_windows_in_the_restart_of_a_right_removal_are_counted_apart() -> None:
    slow = row(case(40.0, "dead_drafter", never=120.0, removals=(900.0,)))
    assert slow.unsafe == slow.windows
    assert slow.unsafe_in_restarts > 0
    wrong = row(case(40.0, removals=(900.0,)))
    assert wrong.unsafe_in_restarts == 0


def test_the_summary_takes_medians_of_seeds_then_means_and_the_worst() -> None:
    outcomes = [
        *case(99.0, seed=1), *case(98.0, seed=2), *case(90.0, seed=3),
        *case(96.0, "moe", seed=1), *case(104.0, "stationary", seed=1, writes=(60.0, 70.0, 80.0)),
    ]  # fmt: skip
    rows = [judge.row_of(group) for group in judge.runs_of(outcomes).values()]
    found = judge.summary(rows, outcomes)
    assert found["regret_percent"] == {"mean": 2.0, "max": 4.0, "perturbed_mean": None, "perturbed_max": None}
    assert found["writes_per_hour"] == 0.0
    assert found["writes_per_hour_stationary"] == 4.5
    assert found["policies"]["ours"] == 2.0
    assert found["policies"]["best_static"] == 10.0
    assert found["policies"]["off"] == 50.0
    assert "oracle" not in found["policies"]
    assert found["wrong_removals"] == 0


def test_a_policy_that_some_scenario_lacks_has_no_mean() -> None:
    outcomes = [*case(99.0), *case(99.0, "moe"), outcome("static_5", 95.0)]
    assert "static_5" not in judge.policy_means(outcomes)
    assert "static_3" in judge.policy_means(outcomes)


def test_lines_name_scenario_and_figures() -> None:
    text = show.line(row(case(95.0)))
    assert text.startswith("diurnal ")
    assert " 5.00 " in text
    assert len(show.HEAD) <= len(text) + 20
