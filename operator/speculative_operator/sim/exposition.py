"""Counters of a simulated replica as the text that vLLM 0.32 exposes. Called by `deployment` at every scrape.

Names, labels and semantics are vLLM's; left out are families that no reader here asks for, comments, and histogram
buckets other than +Inf (of TTFT, inter-token latency and step tokens only sums and counts are read): the text is parsed
thousands of times in a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speculative_operator.sim import layout as at

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
    ("time_to_first_token_seconds", at.FIRST_TOKENS, at.FIRST_SECONDS),
)
_SPECULATION = (
    ("spec_decode_num_drafts", at.DRAFTED),
    ("spec_decode_num_draft_tokens", at.DRAFT_TOKENS),
    ("spec_decode_num_accepted_tokens", at.ACCEPTED),
)


def exposition(replica: Any, counters: Floats, block_size: int, created: float | None = None) -> str:
    """The text of one replica, a record of `layout`; `created`: its start, to add every counter's `_created` twin."""
    own = dict(zip(at.REPLICA.names or (), replica.tolist(), strict=True))
    positions = 0 if own["off"] else len(counters) - at.BY_ACCEPTED - 1
    accepted = counters[: at.BY_ACCEPTED : -1].cumsum()[::-1].tolist()[:positions]
    pool = own["pool"]
    gauges = (float(own["active"]), float(own["waiting"]), own["used"] / pool, pool, pool // block_size)
    text = _template(block_size, positions, created is not None)
    return text.format(*counters.tolist()[: at.BY_ACCEPTED], *gauges, *accepted, created=created)


@lru_cache(maxsize=64)
def _template(block_size: int, positions: int, created: bool) -> str:
    """The text with numbered places: counters of `layout`, five gauges, accepted drafts by position."""
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
    if not positions:
        return
    for name, place in _SPECULATION:
        yield from _counter(name, "", place, created)
    for position in range(positions):
        name, labels = "spec_decode_num_accepted_tokens_per_pos", f'position="{position}"'
        yield from _counter(name, labels, gauge + 5 + position, created)


def _counter(name: str, labels: str, place: int, created: bool) -> Iterator[str]:
    yield _line(f"{name}_total", place, labels)
    if created:
        yield _line(f"{name}_created", "created", labels)


def _line(name: str, place: int | str, labels: str = "") -> str:
    return f"vllm:{name}{{{{{_LABELS}{',' if labels else ''}{labels}}}}} {{{place}!r}}"
