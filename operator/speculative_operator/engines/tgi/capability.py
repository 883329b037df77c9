"""What TGI can turn: one constant K, for n-gram lookup and for Medusa heads. Read by `plan`, `checks` and the matrix.

Read in huggingface/text-generation-inference 3.3.7 (launcher/src/main.rs, server/text_generation_server/models/
__init__.py): `--speculate N`, Medusa heads if the checkpoint has them, else n-gram.
"""

from __future__ import annotations

from speculative_operator.domain.knobs import Actuator
from speculative_operator.domain.spec import EngineType, Method
from speculative_operator.engines.matrix.cell import Cell, Variant
from speculative_operator.engines.matrix.version import Version
from speculative_operator.engines.shared.plan import Offer

OLDEST: Version = (3, 0, 0)
DEFAULT_MAX_BATCH = 128
"""TGI's own limit of concurrent requests; more are answered 429."""

NOTHING_TUNED = (
    "With TGI nothing is tuned: K stays what it is when a pod starts, for no metric tells how many tokens were drafted"
)
_SOURCE = "text-generation-inference 3.3.7 launcher/src/main.rs"
_REMEDY = "TGI has ngram and medusa only; use one of them or engine.type: vLLM"


def _row(method: Method) -> Cell:
    return Cell(
        EngineType.TGI, method, OLDEST, Actuator.RESTART, _SOURCE, passes_at_zero=0.0,
        drafts_blocks=method is Method.MEDUSA,
        note=f"{NOTHING_TUNED}. TGI is in maintenance mode.",
    )  # fmt: skip


def _refusal_row(method: Method, variant: Variant = Variant.PLAIN) -> Cell:
    return Cell(EngineType.TGI, method, OLDEST, Actuator.NONE, _SOURCE, variant=variant, refused=_REMEDY)


_SERVED = (Method.NGRAM, Method.MEDUSA)
CELLS: tuple[Cell, ...] = (
    *(_row(method) for method in _SERVED),
    *(_refusal_row(method) for method in Method if method not in _SERVED),
    _refusal_row(Method.EAGLE, Variant.PARALLEL),
    _refusal_row(Method.EAGLE3, Variant.PARALLEL),
    _refusal_row(Method.DRAFT_MODEL, Variant.PARALLEL),
    _refusal_row(Method.DRAFT_MODEL, Variant.HETEROGENEOUS),
)

OFFER = Offer(
    engine=EngineType.TGI,
    cells=CELLS,
    oldest=OLDEST,
    why_oldest="was not read for this adapter",
    default_batch=DEFAULT_MAX_BATCH,
    needs_source=frozenset(),
)
