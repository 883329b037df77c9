"""Counters of a simulated replica as the text that vLLM 0.32 exposes. Called by `deployment` at every scrape.

Names, labels and semantics are vLLM's; left out are families that no reader here asks for, comments, and histogram
buckets other than +Inf (of TTFT, inter-token latency and step tokens only sums and counts are read): the text is parsed
thousands of times in a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speculative_operator.sim import layout as at

Floats = NDArray[np.float64]

MODEL = "sim"
_COUNTERS = (
    ("prompt_tokens_total", at.PROMPTS),
    ("prompt_tokens_by_source_total", at.PROMPTS),
    ("generation_tokens_total", at.GENERATION),
    ("num_preemptions_total", at.PREEMPTIONS),
    ("request_success_total", at.FINISHED),
)
_HISTOGRAMS = (
    ("iteration_tokens_total", at.STEPS, at.STEP_TOKENS),
    ("inter_token_latency_seconds", at.REQUEST_STEPS, at.STEP_SECONDS),
    ("time_to_first_token_seconds", at.FIRST_TOKENS, at.FIRST_SECONDS),
)
_SPECULATION = (
    ("spec_decode_num_drafts_total", at.DRAFTED),
    ("spec_decode_num_draft_tokens_total", at.DRAFT_TOKENS),
    ("spec_decode_num_accepted_tokens_total", at.ACCEPTED),
)
_EXTRA_LABELS = {
    "prompt_tokens_by_source_total": 'source="local_compute"',
    "request_success_total": 'finished_reason="length"',
}


def exposition(replica: Any, counters: Floats, block_size: int, created: float | None = None) -> str:
    """The text of one replica, a record of `layout`; `created`: its start, to add every counter's `_created` twin."""
    return "\n".join(_lines(replica, counters, block_size, created)) + "\n"


def _lines(replica: Any, counters: Floats, block_size: int, created: float | None) -> Iterator[str]:
    used, pool = int(replica.used), int(replica.pool)
    yield _line("num_requests_running", replica.size)
    yield _line("num_requests_waiting", replica.waiting)
    yield _line("kv_cache_usage_perc", used / pool)
    info = f'block_size="{block_size}",kv_cache_size_tokens="{pool}",num_gpu_blocks="{pool // block_size}"'
    yield _line("cache_config_info", 1, info)
    for name, place in _COUNTERS:
        yield from _counter(name, counters[place], _EXTRA_LABELS.get(name, ""), created)
    for name, count, total in _HISTOGRAMS:
        yield _line(f"{name}_bucket", counters[count], 'le="+Inf"')
        yield _line(f"{name}_count", counters[count])
        yield _line(f"{name}_sum", counters[total])
        if created is not None:
            yield _line(f"{name}_created", created)
    if replica.off or len(counters) <= at.BY_ACCEPTED + 1:
        return
    for name, place in _SPECULATION:
        yield from _counter(name, counters[place], "", created)
    deeper = counters[: at.BY_ACCEPTED : -1].cumsum()[::-1]
    for position, accepted in enumerate(deeper):
        yield from _counter(
            "spec_decode_num_accepted_tokens_per_pos_total", accepted, f'position="{position}"', created
        )


def _counter(name: str, value: float, labels: str, created: float | None) -> Iterator[str]:
    yield _line(name, value, labels)
    if created is not None:
        yield _line(f"{name.removesuffix('_total')}_created", created, labels)


def _line(name: str, value: float, labels: str = "") -> str:
    comma = "," if labels else ""
    return f'vllm:{name}{{engine="0",model_name="{MODEL}"{comma}{labels}}} {float(value)!r}'
