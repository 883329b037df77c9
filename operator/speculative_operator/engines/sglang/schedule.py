"""Our table as SGLang's adaptive configuration: one candidate per slot, so that the engine never adapts by itself.

SGLang 0.5.23 speculative/adaptive_spec_params.py: a step's batch is padded to the next CUDA-graph size, and the slot
with the largest key not above that decides. A slot moves only between its own candidates, so with a single one its
number of steps never changes, whatever is accepted. Called by `adapter`.
"""

from __future__ import annotations

import json

from speculative_operator.domain.table import KTable

FILE = "adaptive.json"
UNREACHED = 1_000_000
"""Slot that no batch gets to: a table of zeros alone needs one with a K, for the engine to build its drafter."""


def adaptive(table: KTable) -> str:
    """Text of the file for `table`: its bands' first batch sizes are the keys."""
    slots = {str(band.first): {"candidate_steps": [band.k]} for band in table}
    if table.max_k == 0:
        slots[str(UNREACHED)] = {"candidate_steps": [1]}
    return json.dumps(slots, separators=(",", ":"))


def first_steps(table: KTable) -> int:
    """Value of --speculative-num-steps: it must be among the candidates, and buffers are sized by it."""
    return max(1, table.max_k)
