"""What makes two models a pair, as docs/pairs.md explains. Called by `judge`."""

from __future__ import annotations

from speculative_operator.domain.spec import Method
from speculative_operator.pairing import reading
from speculative_operator.pairing.compared import named, vocabulary
from speculative_operator.pairing.findings import Kind
from speculative_operator.pairing.pair import HEADS, Pair


def kind_of(pair: Pair) -> Kind:
    """The kind, by what the files say; where they do not tell, by the method asked for."""
    method = pair.method if pair.inside else pair.nature.method or pair.method
    if pair.inside or method is Method.MEDUSA:
        return Kind.IN_VERIFIER
    if method in HEADS or method is Method.MTP or pair.requested.parallel_drafting:
        return Kind.PURPOSE_TRAINED
    return _of_models(pair)


def _of_models(pair: Pair) -> Kind:
    if _twins(pair):
        return Kind.QUANTIZED_TWIN
    families = reading.model_type(pair.verifier), reading.model_type(pair.speculator)
    different = vocabulary.differ(pair)
    if different or (all(families) and families[0] != families[1] and different is None):
        return Kind.CROSS_FAMILY
    if different is False:
        return Kind.SAME_FAMILY
    sizes = reading.vocabulary_size(pair.verifier), reading.vocabulary_size(pair.speculator)
    if all(families) and sizes[0] and sizes[1]:
        return Kind.SAME_FAMILY if vocabulary.differ_by_padding(sizes[0], sizes[1]) else Kind.CROSS_FAMILY
    return Kind.UNKNOWN


def _twins(pair: Pair) -> bool:
    """True for one model in two number formats, or twice in one."""
    shapes = [(reading.hidden_size(one), reading.layers(one)) for one in (pair.verifier, pair.speculator)]
    if shapes[0] != shapes[1]:
        return False
    ours, theirs = pair.verifier.pin, pair.speculator.pin
    if ours.location == theirs.location or named.stem(ours.location) == named.stem(theirs.location) != "":
        return True
    bases = ((pair.verifier.base_models, theirs.location), (pair.speculator.base_models, ours.location))
    quantized = reading.quantization(pair.verifier) != reading.quantization(pair.speculator)
    return quantized and any(named.same(base, name) for names, name in bases for base in names)
