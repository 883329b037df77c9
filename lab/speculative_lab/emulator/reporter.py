"""The lines of statistics that vLLM logs every 10 s while it serves. Started by `server`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from speculative_lab.emulator.http.completions import Service
from speculative_lab.emulator.metrics import EngineMetrics

log = logging.getLogger(__name__)

_PROMPT, _GENERATED = "vllm:prompt_tokens_total", "vllm:generation_tokens_total"
_DRAFTS, _DRAFT_TOKENS = "vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_draft_tokens_total"
_ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"


async def report(service: Service, environment: Mapping[str, str]) -> None:
    """Log throughput, queue and speculation of each interval in which something happened; runs until cancelled."""
    metrics, interval = service.metrics, _interval(environment)
    if not service.server.log_stats or not isinstance(metrics, EngineMetrics):
        return
    names = [_PROMPT, _GENERATED]
    if service.engine.speculative is not None:
        names += [_DRAFTS, _DRAFT_TOKENS, _ACCEPTED]
    before = _values(metrics, names)
    lost = 0.0
    while True:
        await asyncio.sleep(interval)
        if service.driver.given_up_seconds > lost:
            log.warning(
                "This machine is overloaded: the engine clock gave up %.1f s; its speed as clients feel it is too low",
                service.driver.given_up_seconds - lost,
            )
            lost = service.driver.given_up_seconds
        after = _values(metrics, names)
        gained = {name: after[name] - before[name] for name in names}
        before = after
        if gained[_GENERATED] or service.driver.unfinished:
            _engine_line(metrics, gained, interval)
        if gained.get(_DRAFTS):
            _speculation_line(gained, interval)


def _interval(environment: Mapping[str, str]) -> float:
    """Seconds between log lines of statistics (VLLM_LOG_STATS_INTERVAL)."""
    try:
        return max(float(environment.get("VLLM_LOG_STATS_INTERVAL", "") or 10.0), 0.1)
    except ValueError:
        return 10.0


def _values(metrics: EngineMetrics, names: list[str]) -> dict[str, float]:
    return {name: metrics.value(name) for name in names}


def _engine_line(metrics: EngineMetrics, gained: dict[str, float], interval: float) -> None:
    log.info(
        "Engine 000: Avg prompt throughput: %.1f tokens/s, Avg generation throughput: %.1f tokens/s, Running: %d reqs,"
        " Waiting: %d reqs, GPU KV cache usage: %.1f%%, Prefix cache hit rate: 0.0%%",
        gained[_PROMPT] / interval,
        gained[_GENERATED] / interval,
        metrics.value("vllm:num_requests_running"),
        metrics.value("vllm:num_requests_waiting"),
        metrics.value("vllm:kv_cache_usage_perc") * 100,
    )


def _speculation_line(gained: dict[str, float], interval: float) -> None:
    accepted, drafted = gained[_ACCEPTED], gained[_DRAFT_TOKENS]
    log.info(
        "SpecDecoding metrics: Mean acceptance length: %.2f, Accepted throughput: %.2f tokens/s,"
        " Drafted throughput: %.2f tokens/s, Avg Draft acceptance rate: %.1f%%",
        1 + accepted / gained[_DRAFTS],
        accepted / interval,
        drafted / interval,
        100 * accepted / drafted if drafted else 0.0,
    )
