"""What a payload in the engine would export beside the engine's own counters. Called by `deployment` at every scrape.

Names, labels and meanings are those of docs/metrics.md ("Step telemetry of the payload"): by K and bucket of scheduled
requests, and by K and position of the draft. Only what has occurred is told, as there. It stands in one text with the
engine's own series; in a cluster it is another port of the pod.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from speculative_operator.sim import layout as at

Array = NDArray[np.float64]

_FIGURES = ("steps", "step_seconds", "requests", "tokens", "prefill_tokens")
_BATCHES = (*(str(1 << bucket) for bucket in range(at.BUCKETS - 1)), "+Inf")
_INFO = 'speculative_payload_info{engine_version="simulated",live="true",reason="",scheduler="sync"} 1'


def telemetry(cells: Array, drafts: Array, version: int) -> str:
    """The text of one replica: `cells` [K, bucket, figure], `drafts` [K, position, tried or accepted]."""
    lines = [_INFO, f"speculative_payload_table_version {version}"]
    for k, bucket in np.argwhere(cells[:, :, at.CELL_STEPS] > 0).tolist():
        labels = f'k="{k}",batch="{_BATCHES[bucket]}"'
        lines += [
            f"speculative_payload_{name}_total{{{labels}}} {value!r}"
            for name, value in zip(_FIGURES, cells[k, bucket].tolist(), strict=True)
        ]
    for k, position in np.argwhere(drafts[:, :, 0] > 0).tolist():
        tried, accepted = drafts[k, position].tolist()
        labels = f'k="{k}",position="{position}"'
        lines.append(f"speculative_payload_drafted_tokens_total{{{labels}}} {tried!r}")
        lines.append(f"speculative_payload_accepted_tokens_total{{{labels}}} {accepted!r}")
    return "\n".join(lines) + "\n"
