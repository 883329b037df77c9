"""What the operator's metrics tell of one object: known figures, and nothing in place of unknown or old ones."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest
from tests.unit.reconcile.worlds import SPEC, observed, settled

from speculative_operator.api.convert import to_domain
from speculative_operator.domain.decision import Basis, Estimate, Interval
from speculative_operator.domain.observation import Gap, Histogram, Observation, PodWindow
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.reconcile.observed.series import FAMILIES, MOST_LOADS, Recent, measured, steady
from speculative_operator.reconcile.snapshot.status import read_status

NOW = 1000.0
LIMIT = 60.0
TPOT: Histogram = ((0.01, 900.0), (0.025, 100.0), (inf, 0.0))
ESTIMATE = Estimate(
    gain_percent=Interval(10.0, 30.0, 45.0),
    gain_basis=Basis.MEASURED,
    acceptance_length=2.5,
    concurrency=12.0,
    tpot_seconds=0.008,
    cost_per_thousand_tokens=0.002,
    load_within_target=20.0,
)
STATUS: dict[str, Any] = {
    "conditions": [
        {"type": "Ready", "status": "True", "reason": "AllReady"},
        {"type": "TuningConverged", "status": "Unknown", "reason": "Starting"},
        {"type": "MetricsAvailable", "status": "False", "reason": "MetricsMissing"},
    ],
    "replicas": 3,
    "readyReplicas": 2,
    "speculation": {"state": "On", "method": "draft_model", "table": [[1, 10, 4], [11, 40, 1]]},
}


def spec(**more: Any) -> DeploymentSpec:
    body = {
        "metadata": {"name": "demo", "namespace": "models", "generation": 1, "uid": "u"},
        "spec": {
            "verifier": {"model": "hf://Qwen/Qwen3-8B"},
            "speculator": {"method": "draft_model", "model": "hf://Qwen/Qwen3-0.6B"},
            "replicas": 4,
            **more,
        },
    }
    return to_domain(body)


def window(end: float = NOW, **more: Any) -> PodWindow:
    base = PodWindow(end - 10.0, end, 100.0, 400.0, 8.0, 4.0, 800.0, 0.0, running=5.0, waiting=2.0)
    return replace(base, **{"kv_usage": 0.4, "ttft_seconds": 1.2, "tpot_histogram": TPOT, **more})


def look(pods: dict[str, PodWindow | Gap], time: float = NOW, **more: Any) -> Observation:
    return Observation(time, pods, **more)


def told(samples: Any) -> dict[str, float]:
    """`name{labels}` -> value; each once."""
    found = {f"{name}{''.join(f' {value}' for _, value in labels)}": value for name, labels, value in samples}
    assert {key.split()[0] for key in found} <= set(FAMILIES)
    return found


def seen(observation: Observation, estimate: Estimate | None = ESTIMATE, *, now: float = NOW) -> dict[str, float]:
    return told(measured(read_status(STATUS), Recent().after(observation, estimate), now, LIMIT))


BOTH = look({"a": window(), "b": window(running=1.0, kv_usage=0.9)})


def test_what_holds_between_looks() -> None:
    found = told(steady(spec(speculation={"objective": {"tpotP99": "25ms"}}), read_status(STATUS)))
    assert found == {
        "object_condition Ready AllReady": 1.0,
        "object_condition MetricsAvailable MetricsMissing": 0.0,
        "object_info Auto vLLM draft_model": 1.0,
        "object_state On": 1.0,
        "object_replicas wanted": 4.0,
        "object_replicas existing": 3.0,
        "object_replicas ready": 2.0,
        "object_accelerators": 2.0,
        "object_k 1": 4.0,
        "object_k 2": 4.0,
        "object_k 4": 4.0,
        "object_k 8": 4.0,
        "object_k 16": 1.0,
        "object_k 32": 1.0,
        "object_target_seconds tpot": 0.025,
    }


def test_an_object_that_cannot_be_read_has_its_conditions_only() -> None:
    assert {key.split()[0] for key in told(steady(None, read_status(STATUS)))} == {"object_condition"}


def test_pods_without_a_speculator_have_k_0_and_a_garbled_table_has_none() -> None:
    block = STATUS["speculation"]
    off = {**STATUS, "speculation": {**block, "speculatorRemoved": True}}
    ks = {key: value for key, value in told(steady(spec(), read_status(off))).items() if key.startswith("object_k ")}
    assert set(ks.values()) == {0.0}
    assert len(ks) == 6
    for table in ([[1, 10]], [["1", 10, 4]], "x", None):
        status = {**STATUS, "speculation": {**block, "table": table}}
        assert not [key for key in told(steady(spec(), read_status(status))) if key.startswith("object_k ")]


def test_a_table_of_any_size_has_a_bounded_number_of_series() -> None:
    table = [[load, load, load % 8] for load in range(1, 20_000)]
    status = {**STATUS, "speculation": {**STATUS["speculation"], "table": table}}
    found = told(steady(spec(), read_status(status)))
    assert len([key for key in found if key.startswith("object_k ")]) == MOST_LOADS


def test_what_pods_did() -> None:
    assert seen(BOTH) == pytest.approx(
        {
            "object_requests_per_second": 0.8,
            "object_running_requests": 6.0,
            "object_waiting_requests": 4.0,
            "object_tokens_per_second": 160.0,
            "object_kv_cache_usage_ratio": 0.9,
            "object_ttft_seconds": 0.3,
            "object_p99_seconds tpot low": 0.01,
            "object_p99_seconds tpot high": 0.025,
            "object_load_k": 1.0,
            "object_load_requests": 12.0,
            "object_load_within_target_requests": 20.0,
            "object_acceptance_length": 2.5,
            "object_tpot_seconds": 0.008,
            "object_cost_per_thousand_tokens": 0.002,
            "object_gain_ratio low measured": 0.1,
            "object_gain_ratio mid measured": 0.3,
            "object_gain_ratio high measured": 0.45,
        }
    )


def test_a_pod_without_figures_takes_the_sums_with_it() -> None:
    """A sum without it would have an autoscaler remove pods that are busy."""
    gap = Gap(Reason.METRICS_MISSING, "no series")
    found = seen(look({"a": window(), "b": gap}))
    sums = {"object_running_requests", "object_waiting_requests", "object_tokens_per_second"}
    assert not sums & found.keys()
    assert "object_tpot_seconds" in found
    assert sums <= seen(look({"a": window(), "b": gap}, newcomers=frozenset({"b"}))).keys(), "it has just begun"


def test_a_pod_between_two_scrapes_keeps_its_figures_until_they_are_old() -> None:
    gap = Gap(Reason.COLLECTING, "no newer scrape")
    later = Recent().after(BOTH, ESTIMATE).after(look({"a": gap, "b": gap}, NOW + 10.0), Estimate())
    assert told(measured(read_status(STATUS), later, NOW + 10.0, LIMIT)) == seen(BOTH)
    assert told(measured(read_status(STATUS), later, NOW + LIMIT + 1.0, LIMIT)) == {}


def test_a_look_that_failed_leaves_figures_until_they_are_old() -> None:
    outage = look({}, NOW + 10.0, gap=Gap(Reason.PROMETHEUS_TIMEOUT, "no answer"))
    later = Recent().after(BOTH, ESTIMATE).after(outage, Estimate())
    assert told(measured(read_status(STATUS), later, NOW + 50.0, LIMIT)) == seen(BOTH)
    assert told(measured(read_status(STATUS), later, NOW + 61.0, LIMIT)) == {}


def test_a_pod_that_is_gone_no_longer_counts() -> None:
    later = Recent().after(BOTH, ESTIMATE).after(look({"a": window(NOW + 10.0)}, NOW + 10.0), ESTIMATE)
    assert told(measured(read_status(STATUS), later, NOW + 10.0, LIMIT))["object_running_requests"] == 5.0


def test_idle_pods_say_0_so_that_an_autoscaler_may_remove_them() -> None:
    idle = window(
        steps=0.0, decode_request_steps=0.0, first_tokens=0.0, generated_tokens=0.0, running=0.0, waiting=0.0,
        tpot_histogram=(), kv_usage=None,
    )  # fmt: skip
    assert seen(look({"a": idle}), Estimate()) == {
        "object_requests_per_second": 0.0,
        "object_running_requests": 0.0,
        "object_waiting_requests": 0.0,
        "object_tokens_per_second": 0.0,
    }


def test_without_a_ready_pod_nothing_is_told_of_pods() -> None:
    recent = Recent().after(BOTH, ESTIMATE)
    assert told(measured(read_status({**STATUS, "readyReplicas": 0}), recent, NOW, LIMIT)) == {}


def test_figures_that_are_none_are_no_samples() -> None:
    odd = replace(ESTIMATE, tpot_seconds=float("nan"), gain_percent=Interval(-inf, 1.0, inf), concurrency=inf)
    found = seen(BOTH, odd)
    assert "object_tpot_seconds" not in found
    assert "object_load_k" not in found
    assert [key for key in found if "gain" in key] == ["object_gain_ratio mid measured"]


@pytest.mark.parametrize("price", [5.0, None])
def test_a_tick_hands_on_its_figures_and_without_a_price_there_is_no_cost(price: float | None) -> None:
    cluster = settled(spec=replace(SPEC, accelerator=replace(SPEC.accelerator, hourly_cost=price)))
    assert cluster.tick().estimate is None, "nothing was observed"
    for _ in range(3):
        observation = observed(cluster)
        outcome = cluster.tick(observation)
    found = told(
        measured(read_status(outcome.status), Recent().after(observation, outcome.estimate), observation.time, LIMIT)
    )
    assert found["object_load_requests"] == pytest.approx(8.0, rel=0.01)
    assert {"object_gain_ratio low measured", "object_tpot_seconds", "object_load_k"} <= found.keys()
    assert ("object_cost_per_thousand_tokens" in found) is (price is not None)
