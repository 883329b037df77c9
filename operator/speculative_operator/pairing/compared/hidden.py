"""Can the head read this verifier's hidden states? Their width, and the layers that they are taken from.

vLLM 0.32.0 builds a head from its own config.json and feeds it what the verifier yields; where these differ, the first
forward pass fails, after both models were loaded (model_executor/models/llama_eagle3.py, qwen3_dflash.py, medusa.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain.spec import Method
from speculative_operator.pairing import reading, speculator_files
from speculative_operator.pairing.findings import Code, Finding, error, warning
from speculative_operator.pairing.pair import BLOCKS, INNER, Pair

_REMEDY = "use a speculator that was trained for this verifier"
_STREAMS = ("hc_mult", "hc_count")
"""Keys of verifiers that keep several streams of hidden states: what a head reads of them is not `hidden_size`."""
_EAGLE3_LAYERS = 3
"""Layers that an EAGLE-3 head reads when it does not tell (arXiv 2503.01840; vLLM 0.32.0 llama_eagle3.py)."""


def findings(pair: Pair) -> Iterator[Finding]:
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
