"""Was the speculator made for the verifier of the spec? By the names in its files and in both model cards.

A head trained for another checkpoint of the same shape loads and serves, and drafts almost in vain; the engine does
not say so (vllm#41789, vllm#55605). Quantized derivatives mostly keep acceptance, tuned ones may lose it.
"""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain.models import ModelFacts
from speculative_operator.domain.spec import Scheme
from speculative_operator.pairing import reading
from speculative_operator.pairing.catalogue import stem, tail
from speculative_operator.pairing.findings import Code, Finding, info, warning
from speculative_operator.pairing.pair import HEADS, Pair

_REMEDY = "use a speculator that was trained for this verifier, or measure acceptance before you rely on this one"


def findings(pair: Pair) -> Iterator[Finding]:
    if pair.inside or pair.method not in HEADS:
        return
    field, named = verifier_names(pair.speculator)
    if not named:
        return
    ours = pair.verifier.pin.location
    if any(same(one, ours) for one in named):
        return
    values, shown = (ours, named[0]), named[0]
    if derived := _derivation(pair.verifier, named):
        code, how = derived
        if code is Code.VERIFIER_QUANTIZED:
            message = f"{ours} is {how} {shown}, for which the speculator was trained: acceptance may be a little lower"
            yield warning(code, field, values, message, "compare acceptance with that of the model that it names")
            return
        message = (
            f"{ours} is {how} {shown}, for which the speculator was trained: its text now differs, and "
            "acceptance may be near zero where tuning changed most"
        )
        yield warning(code, field, values, message, _REMEDY)
    elif pair.verifier.pin.scheme is not Scheme.HF and not pair.verifier.base_models:
        message = f"the speculator was trained for {shown}; this verifier's address does not show whether it is that"
        yield info(Code.VERIFIER_UNNAMED, field, values, message, "make sure that it is that model")
    else:
        message = (
            f"the speculator was trained for {shown}, not for {ours}: it loads if the shapes agree, and acceptance may "
            "be near zero"
        )
        yield warning(Code.VERIFIER_DIFFERS, field, values, message, _REMEDY)


def verifier_names(facts: ModelFacts) -> tuple[str, tuple[str, ...]]:
    """(field, names) of the verifier that a speculator says it was made for; no names where it does not tell."""
    for path in (("speculators_config", "verifier", "name_or_path"), ("base_model_name_or_path",)):
        if name := reading.text(facts.config, *path):
            return f"speculator config.json {'.'.join(path)}", (name,)
    return "speculator README.md base_model", tuple(one for one in facts.base_models if one)


def same(one: str, other: str) -> bool:
    """True when two names are of one model: the same repository, or a mirror or folder of the same last part."""
    return tail(one) == tail(other) != ""


def _derivation(verifier: ModelFacts, named: tuple[str, ...]) -> tuple[Code, str] | None:
    """(code, how) where `verifier` derives from one of `named`, or both from one model; None where it does not."""
    from_named = any(same(one, base) for one in named for base in verifier.base_models)
    same_weights = any(stem(one) == stem(verifier.pin.location) != "" for one in named)
    if same_weights or (from_named and _is_quantized(verifier)):
        return Code.VERIFIER_QUANTIZED, "another number format of"
    if from_named or any(stem(one) == stem(base) for one in named for base in verifier.base_models):
        return Code.VERIFIER_FINE_TUNED, _HOW.get(verifier.relation, "derived from")
    return None


_HOW = {"finetune": "a fine-tune of", "merge": "a merge with", "adapter": "an adapter of"}


def _is_quantized(facts: ModelFacts) -> bool:
    return facts.relation == "quantized" or (not facts.relation and reading.quantization(facts) != "")
