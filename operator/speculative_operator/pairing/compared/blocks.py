"""Does K go with what the speculator was trained to draft: blocks of DFlash and DSpark, heads of Medusa?"""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain.spec import Method
from speculative_operator.pairing import reading, speculator_files
from speculative_operator.pairing.codes import Code
from speculative_operator.pairing.findings import Finding
from speculative_operator.pairing.pair import BLOCKS, Pair, error, warning

_FIELD = "spec.speculation.maxSpeculativeTokens"
_OMNI = "qwen3_omni_moe"


def findings(pair: Pair) -> Iterator[Finding]:
    if pair.method in BLOCKS:
        yield from _block(pair)
    elif pair.method is Method.MEDUSA:
        yield from _heads(pair)


def _block(pair: Pair) -> Iterator[Finding]:
    trained = speculator_files.block(pair.speculator)
    if trained is None or trained < 1:
        return
    omni = reading.text(pair.verifier.config, "model_type") == _OMNI and pair.method is Method.DSPARK
    if omni and not pair.inside and pair.rules.divisible_modules and pair.k != trained:
        message = (
            f"{pair.rules.engine} accepts this speculator only with K {trained}, its block size; K reaches {pair.k}"
        )
        remedy = f"set spec.speculation.mode: Static and numSpeculativeTokens: {trained}"
        yield error(Code.BLOCK_EXCEEDED, _FIELD, (pair.k, trained), message, remedy)
    elif pair.k > trained:
        message = (
            f"K reaches {pair.k}, but the speculator was trained for blocks of {trained} drafts: later drafts fail"
        )
        remedy = f"set it to {trained} or less"
        yield warning(Code.BLOCK_EXCEEDED, _FIELD, (pair.k, trained), message, remedy)


def _heads(pair: Pair) -> Iterator[Finding]:
    count = reading.first_whole(pair.speculator.config, ("medusa_num_heads", "num_heads", "n_predict"))
    if count is not None and pair.k > count:
        message = f"K reaches {pair.k}, but config.json has {count} heads, each of which drafts one token"
        yield warning(Code.HEADS_EXCEEDED, _FIELD, (pair.k, count), message, f"set it to {count} or less")
