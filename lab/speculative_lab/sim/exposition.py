"""Counters of a simulated replica as the text that vLLM 0.32 exposes. Called by `deployment` at every scrape.

Names, labels and semantics are vLLM's; left out are families that no reader here asks for, comments, and the buckets of
histograms of which only sums and counts are read (inter-token latency, step tokens): the text is parsed thousands of
times in a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speculative_lab.sim import layout as at

Floats = NDArray[np.float64]

MODEL = "sim"
_LABELS = f'engine="0",model_name="{MODEL}"'
_COUNTERS = (
    ("prompt_tokens", "", at.PROMPTS),
    ("prompt_tokens_by_source", 'source="local_compute"', at.PROMPTS),
    ("generation_tokens", "", at.GENERATION),
    ("num_preemptions", "", at.PREEMPTIONS),
    ("request_success", 'finished_reason="length"', at.FINISHED),
)
_HISTOGRAMS = (
    ("iteration_tokens_total", at.STEPS, at.STEP_TOKENS),
    ("inter_token_latency_seconds", at.REQUEST_STEPS, at.STEP_SECONDS),
)
_LATENCIES = (
    ("time_to_first_token_seconds", at.TTFT, at.TTFT_BOUNDS.tolist()),
    ("request_time_per_output_token_seconds", at.TPOT, at.TPOT_BOUNDS.tolist()),
)
_SPECULATION = (
    ("spec_decode_num_drafts", at.DRAFTED),
    ("spec_decode_num_draft_tokens", at.DRAFT_TOKENS),
    ("spec_decode_num_accepted_tokens", at.ACCEPTED),
)


def exposition(replica: Any, counters: Floats, latencies: Floats, block_size: int, created: float | None = None) -> str:
    """The text of one replica, a record of `layout`; `created`: its start, to add every counter's `_created` twin."""
    own = dict(zip(at.REPLICA.names or (), replica.tolist(), strict=True))
    positions = 0 if own["off"] else len(counters) - at.BY_ACCEPTED - 1
    accepted = counters[: at.BY_ACCEPTED : -1].cumsum()[::-1].tolist()[:positions]
    pool = own["pool"]
    gauges = (float(own["active"]), float(own["waiting"]), own["used"] / pool, pool, pool // block_size)
    text = _template(block_size, positions, created is not None)
    observed = [figure for _, place, bounds in _LATENCIES for figure in _observed(latencies[place], len(bounds))]
    return text.format(*counters.tolist()[: at.BY_ACCEPTED], *gauges, *observed, *accepted, created=created)


def _observed(latencies: Floats, bounds: int) -> list[float]:
    """Observations up to each bound, all, and their sum in seconds."""
    found: list[float] = [*latencies[: bounds + 1].cumsum().tolist(), float(latencies[at.LATENCY_SUM])]
    return found


@lru_cache(maxsize=64)
def _template(block_size: int, positions: int, created: bool) -> str:
    """The text with numbered places: counters of `layout`, five gauges, latencies, accepted drafts by position."""
    return "\n".join(_lines(block_size, positions, created)) + "\n"


def _lines(block_size: int, positions: int, created: bool) -> Iterator[str]:
    gauge = at.BY_ACCEPTED
    yield _line("num_requests_running", gauge)
    yield _line("num_requests_waiting", gauge + 1)
    yield _line("kv_cache_usage_perc", gauge + 2)
    info = f'block_size="{block_size}",kv_cache_size_tokens="{{{gauge + 3}}}",num_gpu_blocks="{{{gauge + 4}}}"'
    yield f"vllm:cache_config_info{{{{{_LABELS},{info}}}}} 1.0"
    for name, labels, place in _COUNTERS:
        yield from _counter(name, labels, place, created)
    for name, count, total in _HISTOGRAMS:
        yield _line(f"{name}_bucket", count, 'le="+Inf"')
        yield _line(f"{name}_count", count)
        yield _line(f"{name}_sum", total)
        if created:
            yield _line(f"{name}_created", "created")
    place = gauge + 5
    for name, _, bounds in _LATENCIES:
        yield from _latency(name, bounds, place, created)
        place += len(bounds) + 2
    if not positions:
        return
    for name, counter in _SPECULATION:
        yield from _counter(name, "", counter, created)
    for position in range(positions):
        name, labels = "spec_decode_num_accepted_tokens_per_pos", f'position="{position}"'
        yield from _counter(name, labels, place + position, created)


def _latency(name: str, bounds: Sequence[float], place: int, created: bool) -> Iterator[str]:
    for bound in bounds:
        yield _line(f"{name}_bucket", place, f'le="{bound}"')
        place += 1
    yield _line(f"{name}_bucket", place, 'le="+Inf"')
    yield _line(f"{name}_count", place)
    yield _line(f"{name}_sum", place + 1)
    if created:
        yield _line(f"{name}_created", "created")


def _counter(name: str, labels: str, place: int, created: bool) -> Iterator[str]:
    yield _line(f"{name}_total", place, labels)
    if created:
        yield _line(f"{name}_created", "created", labels)


def _line(name: str, place: int | str, labels: str = "") -> str:
    return f"vllm:{name}{{{{{_LABELS}{',' if labels else ''}{labels}}}}} {{{place}!r}}"
