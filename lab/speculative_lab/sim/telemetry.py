"""What a payload in the engine would export beside the engine's own counters. Called by `deployment` at every scrape.

Names, labels and meanings are those of docs/metrics.md ("Step telemetry of the payload", "Tried blocks"): by K and
bucket of scheduled requests, by K and position of the draft, and by what was compared with what. Only what has occurred
is told, as there. It stands in one text with the engine's own series; in a cluster it is another port of the pod.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from speculative_lab.sim import layout as at
from speculative_operator.payload.speculative_blocks import Blocks, Figures, Key

Array = NDArray[np.float64]

_FIGURES = ("steps", "step_seconds", "requests", "tokens", "prefill_tokens")
_KEY = ("k", "against", "first", "last")
_TOTALS = ("steps", "step_seconds", "requests", "request_seconds", "tokens", "decode_steps", "decode_step_seconds")
_BATCHES = (*(str(1 << bucket) for bucket in range(at.BUCKETS - 1)), "+Inf")
_INFO = 'speculative_payload_info{engine_version="simulated",live="true",reason="",scheduler="sync"} 1'


def telemetry(cells: Array, drafts: Array, version: int, blocks: Blocks) -> str:
    """The text of one replica: `cells` [K, bucket, figure], `drafts` [K, position, drafted or accepted]."""
    lines = [_INFO, f"speculative_payload_table_version {version}"]
    for k, bucket in np.argwhere(cells[:, :, at.CELL_STEPS] > 0).tolist():
        labels = f'k="{k}",batch="{_BATCHES[bucket]}"'
        lines += [
            f"speculative_payload_{name}_total{{{labels}}} {value!r}"
            for name, value in zip(_FIGURES, cells[k, bucket].tolist(), strict=True)
        ]
    for k, position in np.argwhere(drafts[:, :, 0] > 0).tolist():
        drafted, accepted = drafts[k, position].tolist()
        labels = f'k="{k}",position="{position}"'
        lines.append(f"speculative_payload_drafted_tokens_total{{{labels}}} {drafted!r}")
        lines.append(f"speculative_payload_accepted_tokens_total{{{labels}}} {accepted!r}")
    for key, figures in blocks.comparisons.items():
        lines += _comparison(key, figures)
    return "\n".join(lines) + "\n"


def _comparison(key: Key, figures: Figures) -> Iterator[str]:
    labels = ",".join(f'{name}="{value}"' for name, value in zip(_KEY, key, strict=True))
    blocks, tried, beside, seconds_square, tokens_square = figures
    for name, value in (
        ("blocks", blocks),
        ("seconds_square", seconds_square),
        ("tokens_square", tokens_square),
    ):
        yield f"speculative_payload_tried_{name}_total{{{labels}}} {value!r}"
    for side, totals in (("tried", tried), ("beside", beside)):
        for name, total in zip(_TOTALS, totals, strict=True):
            yield f'speculative_payload_tried_{name}_total{{{labels},side="{side}"}} {total!r}'
