"""Number formats, quantization, and whether the speculator is small enough to be one."""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain.artifact import ModelFacts
from speculative_operator.domain.spec import Method
from speculative_operator.pairing import reading
from speculative_operator.pairing.codes import Code
from speculative_operator.pairing.findings import Finding
from speculative_operator.pairing.pair import Pair, error, info, warning

LARGE = 0.5
"""Share of the verifier's bytes from which a draft model is called large. Drafting K tokens reads it K times:
from one half on, two drafts cost as much as the verification that they may save."""
_FAMILIES = (
    ("gptq", "auto_gptq"),
    ("awq", "auto_awq"),
    ("modelopt", "nvfp4"),
    ("compressed-tensors", "compressed_tensors"),
    ("bitsandbytes",),
    ("mxfp4", "gpt_oss_mxfp4"),
    ("fp8", "fbgemm_fp8", "deepseek_v4_fp8"),
)
"""Beginnings of names of one quantization; kernels of it have names such as awq_marlin."""
_CONVERTING = ("humming", "inc", "moe_wna16", "auto-round", "torchao")
"""Methods that vLLM 0.32.0 (config/model.py, _verify_quantization) puts in place of others."""


def findings(pair: Pair) -> Iterator[Finding]:
    ours = pair.spec.verifier.dtype or reading.dtype(pair.verifier)
    theirs = reading.dtype(pair.speculator)
    if not pair.inside and ours and theirs and ours not in (theirs, "auto"):
        message = f"its weights are {theirs}, which the engine converts to {ours}, the verifier's format"
        yield info(Code.DTYPE_DIFFERS, "speculator config.json dtype", (ours, theirs), message)
    if pair.rules.checks_quantization:
        yield from _quantization_findings("verifier", pair.spec.verifier.quantization, pair.verifier)
        if not pair.inside:
            yield from _quantization_findings("speculator", pair.requested.quantization, pair.speculator)
    yield from _large(pair)


def _quantization_findings(side: str, asked: str, facts: ModelFacts) -> Iterator[Finding]:
    own = reading.quantization(facts)
    one, other = _family(asked), _family(own)
    if not one or not other or one == other:
        return
    values = (own, asked) if side == "speculator" else (asked, None)
    message = f"the spec asks for {asked}, and the {side}'s checkpoint is {own}: the engine refuses to start"
    field = f"spec.{side}.quantization"
    yield error(Code.QUANTIZATION_DIFFERS, field, values, message, f"remove it: the engine takes {own} by itself")


def _family(name: str) -> str:
    """The quantization that a name stands for; empty for one that is not known well enough to contradict."""
    plain = name.strip().lower()
    if not plain or plain in _CONVERTING:
        return ""
    return next((names[0] for names in _FAMILIES if any(plain.startswith(one) for one in names)), "")


def _large(pair: Pair) -> Iterator[Finding]:
    ours, theirs = pair.verifier.weights.bytes, pair.speculator.weights.bytes
    if pair.inside or pair.method is not Method.DRAFT_MODEL or not _above_zero(ours) or not _above_zero(theirs):
        return
    if theirs >= LARGE * ours:
        message = (
            f"the speculator's weights are {theirs / ours:.0%} of the verifier's: drafting costs about what it saves"
        )
        values = (f"{ours} bytes", f"{theirs} bytes")
        yield warning(Code.SPECULATOR_LARGE, "speculator weights", values, message, "use a smaller model of the family")


def _above_zero(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
