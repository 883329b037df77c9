"""Series as Prometheus returns them, made from totals: for the tests of the metric reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from speculative_operator.domain.observation import Series

GAUGES = frozenset({"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"})
INFO = "vllm:cache_config_info"
PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"

IDLE: dict[str, float] = {
    "vllm:iteration_tokens_total_count": 0,
    "vllm:inter_token_latency_seconds_count": 0,
    "vllm:inter_token_latency_seconds_sum": 0,
    "vllm:time_to_first_token_seconds_count": 0,
    "vllm:time_to_first_token_seconds_sum": 0,
    "vllm:generation_tokens_total": 0,
    "vllm:prompt_tokens_total": 0,
    "vllm:num_requests_running": 0,
    "vllm:num_requests_waiting": 0,
    "vllm:num_preemptions_total": 0,
    "vllm:kv_cache_usage_perc": 0,
}


def speculating(drafts: float, tokens: float, accepted: Sequence[float]) -> dict[str, float]:
    """Totals of the speculation counters; positions are written `PER_POSITION/0`, ..."""
    return {
        "vllm:spec_decode_num_drafts_total": drafts,
        "vllm:spec_decode_num_draft_tokens_total": tokens,
        "vllm:spec_decode_num_accepted_tokens_total": sum(accepted),
        **{f"{PER_POSITION}/{place}": count for place, count in enumerate(accepted)},
    }


def scrapes(points: Sequence[tuple[float, Mapping[str, float]]], pod: str = "qwen-0", **labels: str) -> list[Series]:
    """One series per name of the points; a name missing at a point has no sample there."""
    found: dict[str, list[tuple[float, float]]] = {}
    for time, totals in points:
        for name, value in totals.items():
            found.setdefault(name, []).append((time, float(value)))
    return [
        Series(name.partition("/")[0], _labels(name, pod, labels), tuple(samples)) for name, samples in found.items()
    ]


def _labels(name: str, pod: str, labels: Mapping[str, str]) -> dict[str, str]:
    position = {"position": name.partition("/")[2]} if "/" in name else {}
    return {"pod": pod, "namespace": "models", "engine": "0", "model_name": "qwen", **labels, **position}


def info(time: float, pod: str = "qwen-0", **labels: str) -> Series:
    """vLLM's cache_config_info."""
    return Series(INFO, {"pod": pod, "engine": "0", **labels}, ((time, 1.0),))
