"""How each method drafts on each of vLLM's model runners: data, of which `capability` makes rows of the matrix.

The versions come from comparing the sources of releases 0.11 to 0.33.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from speculative_operator.domain.spec import Method
from speculative_operator.engines.matrix.cell import Variant, Version

OLDEST: Version = (0, 11, 0)
"""First release with `inter_token_latency_seconds` and `kv_cache_usage_perc`, which `reading` needs."""
PIPELINE_SINCE: Version = (0, 15, 0)
"""The documentation of 0.14.0 still says that speculation does not work with pipeline parallelism."""
SHUTDOWN_TIMEOUT_SINCE: Version = (0, 18, 0)
SCHEDULE_SINCE: Version = (0, 24, 0)
"""First release with `num_speculative_tokens_per_batch_size`."""
UNPROVEN: Version = (0, 34, 0)
"""First release on which the plug-in was not run. It checks itself at its start, and says there what it lacks."""
V2_SCHEDULE_SINCE: Version = (0, 32, 0)
"""First release that takes the V2 runner by itself, and whose V2 runner drafts what the schedule says."""
IN_FULL_ALONE = frozenset({Method.DRAFT_MODEL})
"""Methods whose speculator the V2 runner by itself runs in full at every K; with the plug-in's worker it follows K."""


class Runner(StrEnum):
    """vLLM's model runners; `VLLM_USE_V2_MODEL_RUNNER` chooses."""

    V1 = "V1"
    V2 = "V2"

    @property
    def schedule_since(self) -> Version:
        """First release in which the runner drafts what a schedule says."""
        return SCHEDULE_SINCE if self is Runner.V1 else V2_SCHEDULE_SINCE


@dataclass(frozen=True, slots=True)
class Form:
    """A method on one runner."""

    method: Method
    runner: Runner
    since: Version
    scheduled: bool = True
    """K may differ from step to step without harm."""
    follows: bool = True
    passes_at_zero: float = 1.0
    block: bool = False
    variant: Variant = Variant.PLAIN
    diluted: bool = False
    """True when vLLM counts drafts that the verifier cannot accept."""
    source: str = "vLLM 0.32.0 v1/spec_decode and v1/worker/gpu/spec_decode"
    note: str = ""

    @property
    def pipelined_since(self) -> Version | None:
        """First release that serves it under pipeline parallelism; None: none is known. Hidden states from inside the
        verifier come from every stage, and only the V2 runner brings them to the last one."""
        if self.method not in (Method.EAGLE3, Method.DFLASH, Method.DSPARK):
            return PIPELINE_SINCE
        return V2_SCHEDULE_SINCE if self.runner is Runner.V2 else None


_V1, _V2 = Runner.V1, Runner.V2
_FIRST = OLDEST
_ASSERTED = "vLLM 0.32.0: the proposer asserts that K is the largest"
_PARALLEL_V1 = "vLLM 0.32.0 v1/spec_decode/llm_base_proposer.py: inputs laid out for the largest K"
_MISPLACED = "With another K than the largest, drafts would land at other requests, so K is fixed at start."
_MODULES = "With several modules in the checkpoint the V2 runner drafts in full at every K."
_FILLER = "Requests without a match verify filler drafts, which dilutes the acceptance rate."
_NO_GRAPHS = "The speculator has no CUDA graphs of its own, so it pays at low load only."

FORMS: tuple[Form, ...] = (
    Form(Method.EAGLE, _V1, _FIRST),
    Form(Method.EAGLE, _V2, (0, 12, 0)),
    Form(Method.EAGLE3, _V1, _FIRST),
    Form(Method.EAGLE3, _V2, (0, 17, 0)),
    Form(
        Method.EAGLE, _V1, (0, 16, 0), False, block=True, variant=Variant.PARALLEL, source=_PARALLEL_V1,
        note=_MISPLACED,
    ),
    Form(
        Method.EAGLE3, _V1, (0, 16, 0), False, block=True, variant=Variant.PARALLEL, source=_PARALLEL_V1,
        note=_MISPLACED,
    ),
    Form(Method.MTP, _V1, _FIRST),
    Form(Method.MTP, _V2, (0, 12, 0), note=_MODULES),
    Form(Method.DRAFT_MODEL, _V1, (0, 15, 0)),
    Form(Method.DRAFT_MODEL, _V2, (0, 31, 0), note=_NO_GRAPHS),
    Form(
        Method.DRAFT_MODEL, _V1, (0, 16, 0), False, block=True, variant=Variant.PARALLEL, source=_PARALLEL_V1,
        note=_MISPLACED,
    ),
    Form(Method.DRAFT_MODEL, _V1, (0, 25, 1), variant=Variant.HETEROGENEOUS),
    Form(Method.DFLASH, _V1, (0, 23, 0), block=True),
    Form(Method.DFLASH, _V2, (0, 24, 0), follows=False, block=True),
    Form(Method.DSPARK, _V2, (0, 25, 1), follows=False, block=True),
    Form(Method.NGRAM, _V1, _FIRST, passes_at_zero=0.0),
    Form(Method.NGRAM, _V2, (0, 32, 0), passes_at_zero=0.0, diluted=True, note=_FILLER),
    Form(Method.NGRAM_GPU, _V1, (0, 18, 0), False, source=_ASSERTED),
    Form(Method.NGRAM_GPU, _V2, (0, 32, 0), False, diluted=True, note=_FILLER),
    Form(Method.SUFFIX, _V1, (0, 12, 0), False, source=_ASSERTED, note="The image must hold arctic-inference 0.1.1."),
    Form(Method.MEDUSA, _V1, _FIRST, False, source=_ASSERTED),
    Form(Method.MEDUSA, _V2, (0, 33, 0), False, source="vLLM 0.33.0 config/vllm.py"),
)  # fmt: skip
"""How each method drafts on each runner that has it (vLLM 0.32.0 config/vllm.py, `_get_v1_model_runner_unsupported_
features` and its twin of V2)."""
