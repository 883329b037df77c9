"""Was the head made for this verifier: can it read its hidden states, and do the names say so?

vLLM 0.32.0 builds a head from its own config.json and feeds it what the verifier yields; where these differ, the first
forward pass fails, after both models were loaded (model_executor/models/llama_eagle3.py, qwen3_dflash.py, medusa.py).
A head trained for another checkpoint of the same shape loads and serves, and drafts almost in vain; the engine does
not say so (vllm#41789, vllm#55605). Quantized derivatives mostly keep acceptance, tuned ones may lose it.
"""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain.models import ModelFacts
from speculative_operator.domain.spec import Method, Scheme
from speculative_operator.pairing import reading, speculator_files
from speculative_operator.pairing.catalogue import stem, tail
from speculative_operator.pairing.findings import Code, Finding, error, info, warning
from speculative_operator.pairing.pair import BLOCKS, HEADS, INNER, Pair

_REMEDY = "use a speculator that was trained for this verifier"
_MEASURE = f"{_REMEDY}, or measure acceptance before you rely on this one"
_STREAMS = ("hc_mult", "hc_count")
"""Keys of verifiers that keep several streams of hidden states: what a head reads of them is not `hidden_size`."""
_EAGLE3_LAYERS = 3
"""Layers that an EAGLE-3 head reads when it does not tell (arXiv 2503.01840; vLLM 0.32.0 llama_eagle3.py)."""


def by_states(pair: Pair) -> Iterator[Finding]:
    if not pair.separate_head:
        return
    wrong_width = list(_width(pair))
    yield from wrong_width
    if not wrong_width:
        yield from _projection(pair)
    if pair.method in INNER and speculator_files.uses_auxiliary(pair.speculator):
        yield from _layers(pair)


def _width(pair: Pair) -> Iterator[Finding]:
    ours = _plain_width(pair)
    target = _by_tensor(pair) or speculator_files.target_hidden_size(pair.speculator)
    if ours is None or target is None or target[1] == ours:
        return
    field = target[0] if target[0].startswith("tensor") else f"config.json {target[0]}"
    message = (
        f"the head reads hidden states of width {target[1]}, but the verifier's width is {ours}: the engine would fail"
    )
    yield error(Code.HIDDEN_SIZE_DIFFERS, f"speculator {field}", (ours, target[1]), message, _REMEDY)


def _by_tensor(pair: Pair) -> tuple[str, int] | None:
    """(tensor, width) by a Medusa head's first matrix, for old checkpoints without `hidden_size`; else None."""
    if pair.method is not Method.MEDUSA:
        return None
    for name, shape in sorted(pair.speculator.weights.shapes.items()):
        if "medusa_head" in name and len(shape) == 2 and shape[0] == shape[1]:
            return f"tensor {name}", shape[0]
    return None


def _projection(pair: Pair) -> Iterator[Finding]:
    ours, found = _plain_width(pair), reading.shape(pair.speculator, "fc.weight")
    if ours is None or found is None or len(found[1]) != 2 or reading.quantization(pair.speculator):
        return
    inputs = _inputs(pair)
    if inputs is None or found[1][1] == inputs * ours:
        return
    field = f"speculator tensor {found[0]}"
    message = (
        f"its first projection takes {found[1][1]} values, but {inputs} hidden states of {ours} are {inputs * ours}"
    )
    yield error(Code.AUXILIARY_INPUT_DIFFERS, field, (inputs * ours, found[1][1]), message, _REMEDY)


def _inputs(pair: Pair) -> int | None:
    """Hidden states that the first projection takes at once; None where that is unknown."""
    if pair.method is Method.EAGLE:
        return 2
    if pair.method not in INNER or not speculator_files.uses_auxiliary(pair.speculator):
        return None
    layers = speculator_files.auxiliary_layers(pair.speculator)[1]
    if layers:
        return len(layers)
    count = reading.whole(pair.speculator.config, "num_aux_hidden_states")
    return count or (_EAGLE3_LAYERS if pair.method is Method.EAGLE3 else None)


def _layers(pair: Pair) -> Iterator[Finding]:
    count = reading.layers(pair.verifier)
    if count is None:
        return
    key, expected = speculator_files.auxiliary_layers(pair.speculator)
    beyond = [one for one in expected if one > count]
    if beyond:
        shift = 1 if key.endswith("target_layer_ids") else 0
        named = ", ".join(str(one - shift) for one in beyond)
        message = f"the verifier has {count} layers: it has no layer {named}, which the head reads"
        field = f"speculator config.json {key}"
        yield error(Code.AUXILIARY_LAYERS_BEYOND, field, (f"{count} layers", named), message, _REMEDY)
    made_for = reading.whole(pair.speculator.config, "num_target_layers")
    if pair.method in BLOCKS and made_for is not None and made_for != count and not beyond:
        message = f"the speculator was made for a verifier of {made_for} layers, but this one has {count}"
        yield warning(
            Code.LAYERS_DIFFER, "speculator config.json num_target_layers", (count, made_for), message, _REMEDY
        )


def _plain_width(pair: Pair) -> int | None:
    """The verifier's width; None where it keeps several streams."""
    streams = reading.first_whole(reading.decoder(pair.verifier.config), _STREAMS)
    return None if streams not in (None, 1) else reading.hidden_size(pair.verifier)


def by_name(pair: Pair) -> Iterator[Finding]:
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
        yield warning(code, field, values, message, _MEASURE)
    elif pair.verifier.pin.scheme is not Scheme.HF and not pair.verifier.base_models:
        message = f"the speculator was trained for {shown}; this verifier's address does not show whether it is that"
        yield info(Code.VERIFIER_UNNAMED, field, values, message, "make sure that it is that model")
    else:
        message = (
            f"the speculator was trained for {shown}, not for {ours}: it loads if the shapes agree, and acceptance may "
            "be near zero"
        )
        yield warning(Code.VERIFIER_DIFFERS, field, values, message, _MEASURE)


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
