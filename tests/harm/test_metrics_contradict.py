"""Whoever got series with a pod's labels into Prometheus steered that pod: the target with more series won."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.engines.exposition import scrapes
from tests.unit.engines.test_reading import BUSY, NOW, T0, T1, T2, ZERO

from speculative_operator.domain.observation import Gap, PodWindow, Series
from speculative_operator.domain.reasons import Reason
from speculative_operator.engines.vllm import pieces, telemetry
from speculative_operator.engines.vllm.reading import read


def of_job(job: str, series: list[Series]) -> list[Series]:
    return [replace(one, labels={**one.labels, "job": job, "instance": "10.0.0.1:8000"}) for one in series]


def scaled(by: float) -> dict[str, float]:
    return {name: value * by for name, value in BUSY.items()}


REAL = scrapes([(T0, ZERO), (T1, scaled(1)), (T2, scaled(2))])
FALSE = scrapes([(T0, ZERO), (T1, scaled(40)), (T2, scaled(80))])


def seen(*series: list[Series]) -> PodWindow | Gap:
    return read([track for each in series for track in each], ["qwen-0"], {}, NOW, 60.0)["qwen-0"]


@pytest.mark.parametrize("job", ["a-false-one", "zzz"])
def test_a_target_that_contradicts_the_pod_never_steers(job: str) -> None:
    more = [
        Series("vllm:num_preemptions_total", {"pod": "qwen-0", "finished_reason": f"r{n}"}, ((T2, 1.0),))
        for n in range(9)
    ]
    found = seen(of_job("pods", REAL), of_job(job, [*FALSE, *more]))
    assert isinstance(found, Gap)
    assert found.reason is Reason.METRICS_ABSURD
    assert job in found.message
    assert "pods" in found.message


def test_a_second_target_with_more_series_never_takes_the_place_of_the_first() -> None:
    """Both agree, as two jobs for one pod do: the same one is listened to, whatever else the other has."""
    first = seen(of_job("pods", REAL))
    assert isinstance(first, PodWindow)
    few = [one for one in REAL if "spec_decode" not in one.name]
    alone = seen(of_job("pods", few))
    assert isinstance(alone, PodWindow)
    assert alone.drafts is None
    assert seen(of_job("pods", few), of_job("zzz", REAL)) == alone


def test_a_job_that_drops_most_series_is_not_listened_to() -> None:
    few = [one for one in of_job("a", REAL) if "requests" in one.name]
    assert seen(of_job("pods", REAL), few) == seen(of_job("pods", REAL))


def test_two_honest_jobs_at_other_instants_agree() -> None:
    later = scrapes([(T0 + 7, scaled(0.4)), (T1 + 7, scaled(1.4)), (T2 + 4, scaled(2.3))])
    assert isinstance(seen(of_job("pods", REAL), of_job("zzz", later)), PodWindow)


def test_a_second_target_that_falls_now_and_then_is_a_gap_too() -> None:
    falling = scrapes([(T0, scaled(50)), (T1, scaled(1)), (T2, scaled(2))])
    found = seen(of_job("pods", REAL), of_job("zzz", falling))
    assert isinstance(found, Gap)
    assert found.reason is Reason.COUNTER_RESET


def test_a_second_target_never_says_that_a_pod_does_not_read_its_table() -> None:
    """Such a series made pods of another namespace roll."""

    def info(job: str, live: str, version: str) -> list[Series]:
        one = Series(pieces.INFO, {"pod": "qwen-0", "live": live, "engine_version": version}, ((T1, 1.0), (T2, 1.0)))
        return of_job(job, [one])

    steps = [
        Series(telemetry.STEPS, {"pod": "qwen-0", "k": "0", "batch": str(2**n)}, ((T1, 1.0), (T2, 2.0)))
        for n in range(6)
    ]
    found = seen(
        REAL, info("pods", "true", "0.32.0"), info("a-false-one", "false", "0.24.0"), of_job("a-false-one", steps)
    )
    assert isinstance(found, PodWindow)
    assert (found.live, found.engine_version) == (None, "")
    alone = seen(REAL, info("pods", "true", "0.32.0"), info("zzz", "true", "0.32.0"))
    assert isinstance(alone, PodWindow)
    assert (alone.live, alone.engine_version) == (True, "0.32.0")
