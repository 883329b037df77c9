"""What vLLM's releases have, and which rows of the matrix speak of them. Asked by every module of the adapter.

The versions come from comparing the sources of releases 0.11 to 0.33.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from functools import lru_cache

from speculative_operator.domain.spec import EngineType, Method
from speculative_operator.engines.matrix.cell import CELLS, Cell, Question, Variant, Version, find
from speculative_operator.engines.matrix.proofs import RUNS
from speculative_operator.engines.matrix.vendors import GENTLEST, platform_of

OLDEST: Version = (0, 11, 0)
"""First release with `inter_token_latency_seconds` and `kv_cache_usage_perc`, which `reading` needs."""
SHUTDOWN_TIMEOUT_SINCE: Version = (0, 18, 0)
SCHEDULE_SINCE: Version = (0, 24, 0)
"""First release with `num_speculative_tokens_per_batch_size`."""
V2_SCHEDULE_SINCE: Version = (0, 32, 0)
"""First release that takes the V2 runner by itself, and whose V2 runner drafts what the schedule says."""
IN_FULL_ALONE = frozenset({Method.DRAFT_MODEL})
"""Methods whose speculator the V2 runner by itself runs in full at every K; with the plug-in's worker it follows K."""


class Runner(StrEnum):
    """vLLM's model runners; `VLLM_USE_V2_MODEL_RUNNER` chooses."""

    V1 = "V1"
    V2 = "V2"


LIVE_PROVEN = tuple((0, minor) for minor in range(RUNS[0].first[1], max(run.last for run in RUNS)[1] + 1))
"""Release lines on which the plug-in was run. The payload holds the same list, for its label `proven`."""
UNPROVEN: Version = (0, LIVE_PROVEN[-1][1] + 1, 0)
"""First release on which the plug-in was not run. It checks itself at its start, and says there what it lacks."""
ROWS = CELLS[EngineType.VLLM]
SKIPPED = frozenset(cell.method for cell in ROWS if cell.skips)
"""Methods whose speculator the plug-in's worker on the V2 runner can skip, and makes follow K where vLLM does not. The
payload holds the same list."""
BLOCK_METHODS = frozenset(cell.method for cell in ROWS if cell.drafts_blocks and cell.variant is Variant.PLAIN)
"""Methods whose plain form drafts all K tokens in one pass."""


@lru_cache(1024)
def row_of(asked: Question) -> Cell | None:
    """The row of vLLM that answers the question, kept: each reconcile asks a dozen times for the same ones."""
    return find(ROWS, asked)


def runner_under_schedule(asked: Question) -> Runner:
    """The runner that serves the method best when K may change, whatever runner and parallelism are asked for.

    The gentlest actuator counts first, then that a smaller K drafts less (a block is one pass at every K), then what
    the release takes by itself: V2 from 0.32 on, V1 before.
    """
    platform = platform_of(asked.engine, asked.vendor, asked.version)
    order = (Runner.V2, Runner.V1) if asked.version >= V2_SCHEDULE_SINCE else (Runner.V1, Runner.V2)
    served: list[tuple[int, bool, Runner]] = []
    for runner in order:
        cell = row_of(replace(asked, runner=runner, data_parallel_size=1))
        if cell is not None and (platform is None or platform.runner in ("", runner)):
            served.append((GENTLEST.index(cell.actuator), not (cell.follows_k or cell.drafts_blocks), runner))
    return min(served, key=lambda one: one[:2])[2] if served else Runner.V1
