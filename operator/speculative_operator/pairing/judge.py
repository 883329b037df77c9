"""Is this speculator one for this verifier? Facts of both in, findings and what to expect out; pure.

Called by the operator with what a Job has read, and by `speculative check` on a user's machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from speculative_operator.domain.models import ModelFacts
from speculative_operator.domain.spec import DeploymentSpec, Method, Speculator
from speculative_operator.pairing import reading
from speculative_operator.pairing.catalogue import stem
from speculative_operator.pairing.compared import heads, method, serving, vocabulary
from speculative_operator.pairing.expected import expect
from speculative_operator.pairing.findings import Code, Finding, error, info, sort_findings
from speculative_operator.pairing.pair import HEADS, EngineRules, Pair, largest_k
from speculative_operator.pairing.speculator_files import nature
from speculative_operator.pairing.verdict import Kind, Verdict

_TOPICS: tuple[Callable[[Pair], Iterator[Finding]], ...] = (
    method.findings,
    vocabulary.findings,
    heads.by_states,
    heads.by_name,
    method.of_k,
    serving.findings,
    vocabulary.turns,
)


def judge(
    verifier: ModelFacts, speculator: ModelFacts | None, spec: DeploymentSpec, rules: EngineRules | None = None
) -> Verdict:
    """The verdict on `spec` by the facts of its models; `speculator` is None where the spec names no model for it.

    What the facts do not tell is no finding against the pair. Never raises, whatever the models' files hold.
    """
    rules = rules or EngineRules(spec.engine.type, spec.engine.version)
    requested = spec.speculator
    findings = [*_engine(rules), *serving.of_verifier(verifier, spec, rules), *serving.reported(verifier, spec, rules)]
    if requested is None:
        return Verdict(Kind.UNKNOWN, sort_findings(findings))
    if requested.method.draft_free:
        k = largest_k(spec, rules)
        return Verdict(Kind.DRAFT_FREE, sort_findings(findings), expect(requested, spec.speculation.workload, k))
    pair = _pair(verifier, speculator, spec, requested, rules)
    if pair is None:
        return Verdict(Kind.UNKNOWN, sort_findings([*findings, *_unread(verifier, None)]))
    findings += [*_unread(verifier, None if pair.inside else pair.speculator)]
    findings += [one for topic in _TOPICS for one in topic(pair)]
    kind = _kind_of(pair)
    outlook = None if kind is Kind.CROSS_FAMILY else expect(requested, spec.speculation.workload, pair.k)
    return Verdict(kind, sort_findings(findings), outlook)


def _pair(
    verifier: ModelFacts, speculator: ModelFacts | None, spec: DeploymentSpec, requested: Speculator, rules: EngineRules
) -> Pair | None:
    """The pair to compare; None where it needs a speculator of its own and the facts of that one are missing."""
    if speculator is None and not (requested.source is None and requested.method.may_sit_in_verifier):
        return None
    read = verifier if speculator is None or _one_checkpoint(verifier, speculator, requested) else speculator
    return Pair(verifier, read, spec, requested, rules, nature(read), largest_k(spec, rules))


def _one_checkpoint(verifier: ModelFacts, speculator: ModelFacts, requested: Speculator) -> bool:
    """True for modules of the verifier's own, and for a speculators-format checkpoint that is served by its own name
    and brings the verifier it names: there is no second model to compare with."""
    if speculator.pin.key != verifier.pin.key:
        return False
    return requested.method.may_sit_in_verifier or bool(reading.text(speculator.config, "speculators_model_type"))


def _engine(rules: EngineRules) -> Iterator[Finding]:
    for field, message in rules.refusals:
        cause, _, remedy = message.rpartition("; ")
        yield error(Code.ENGINE_REFUSES, field, (None, None), cause or message, remedy or "see docs/engines.md")


def _unread(verifier: ModelFacts, speculator: ModelFacts | None) -> Iterator[Finding]:
    for side, facts in (("verifier", verifier), ("speculator", speculator)):
        if facts is not None and not facts.config:
            message = f"the {side}'s configuration could not be read, so little was compared"
            yield info(Code.FACTS_MISSING, f"{side} config.json", (None, None), message)


def _kind_of(pair: Pair) -> Kind:
    """How speculator and verifier are related, by their files; where they do not tell, by the spec's method."""
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
    """True where verifier and speculator are one model, in the same or in another number format."""
    shapes = [(reading.hidden_size(one), reading.layers(one)) for one in (pair.verifier, pair.speculator)]
    if shapes[0] != shapes[1]:
        return False
    ours, theirs = pair.verifier.pin, pair.speculator.pin
    if ours.location == theirs.location or stem(ours.location) == stem(theirs.location) != "":
        return True
    bases = ((pair.verifier.base_models, theirs.location), (pair.speculator.base_models, ours.location))
    quantized = reading.quantization(pair.verifier) != reading.quantization(pair.speculator)
    return quantized and any(heads.same(base, name) for names, name in bases for base in names)
