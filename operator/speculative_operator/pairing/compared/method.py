"""Is the checkpoint of the method that the spec asks for, and can the engine read it and its verifier?"""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain.spec import Method
from speculative_operator.pairing import reading, speculator_files
from speculative_operator.pairing.compared.drafts import modules
from speculative_operator.pairing.findings import Code, Finding, error, warning
from speculative_operator.pairing.pair import BLOCKS, INNER, Fact, Pair

_FIELD = "spec.speculator.method"
_PARALLEL = "spec.speculator.parallelDrafting"
_NAMED = (("eagle-", Method.EAGLE), ("eagle3", Method.EAGLE3), ("dflash", Method.DFLASH), ("dspark", Method.DSPARK))
"""Part of a name -> what vLLM takes a draft_model of it for (config/speculative.py, __post_init__), in the order in
which it looks; a release may know fewer."""


def findings(pair: Pair) -> Iterator[Finding]:
    yield from _stages(pair)
    if pair.inside:
        return
    yield from _format(pair)
    yield from _method(pair)
    yield from _one_pass(pair)
    yield from _inner_states(pair)


def _method(pair: Pair) -> Iterator[Finding]:
    if named := speculator_files.mlp_heads(pair.speculator):
        message = f"the speculator has MLP heads, by its type {named}: no engine drafts with them"
        values = (f"asked: {pair.method}", f"MLP heads ({named})")
        yield error(Code.METHOD_DIFFERS, _FIELD, values, message, "use a speculator of another method")
    found = pair.nature.method
    if found is None or found is pair.method or _either_block(pair, found) or _holds_modules(pair):
        return
    values = (f"asked: {pair.method}", f"{found} ({pair.nature.basis})")
    renamed = _method_by_name(pair)
    if renamed is not None:
        message = f"{pair.rules.engine} treats it as {renamed} because of its name, whatever the spec says"
        yield warning(Code.METHOD_DIFFERS, _FIELD, values, message, f"set spec.speculator.method: {renamed}")
        return
    message = f"the speculator is of method {found}, by its {pair.nature.basis}: {pair.method} cannot load it"
    yield error(Code.METHOD_DIFFERS, _FIELD, values, message, f"set spec.speculator.method: {found}")


def _either_block(pair: Pair, found: Method) -> bool:
    """True for block speculators told by a key that both kinds have."""
    return {found, pair.method} <= BLOCKS and pair.nature.basis == "dflash_config"


def _holds_modules(pair: Pair) -> bool:
    """True for a whole model that is named for the modules in it."""
    return pair.method is Method.MTP and modules(pair.speculator) is not None


def _method_by_name(pair: Pair) -> Method | None:
    name = pair.speculator.pin.location.lower()
    if pair.method is not Method.DRAFT_MODEL:
        return None
    known = pair.rules.names(Fact.RENAMED)
    return next((method for part, method in _NAMED if part in known and part in name), None)


def _format(pair: Pair) -> Iterator[Finding]:
    named, known = reading.text(pair.speculator.config, "speculators_model_type"), pair.rules.names(Fact.FORMAT)
    if not named or not known or named in known:
        return
    message = (
        f"{pair.rules.engine} {pair.rules.version} reads speculators checkpoints of type {', '.join(sorted(known))}, "
        f"not {named}"
    )
    remedy = "use a speculator in one of these formats, or its original, unconverted checkpoint"
    yield error(
        Code.FORMAT_UNSUPPORTED, "speculator config.json speculators_model_type", (None, named), message, remedy
    )


def _one_pass(pair: Pair) -> Iterator[Finding]:
    asked = pair.requested.parallel_drafting
    if pair.method in BLOCKS:
        return
    if pair.nature.parallel and not asked and pair.nature.method is pair.method:
        message = "the speculator was trained to draft all tokens in one pass and drafts worse one by one"
        values = ("false", pair.nature.basis)
        yield warning(Code.PARALLEL_UNSET, _PARALLEL, values, message, "set it to true")
    filler_key = speculator_files.filler(pair.speculator)
    if asked and not filler_key and pair.rules.has(Fact.PARALLEL_TOKEN) and pair.speculator.config:
        message = "drafting in one pass needs a mask token, which config.json does not name"
        remedy = "set it to false, or use a speculator that was trained for it"
        yield error(Code.PARALLEL_UNTRAINED, _PARALLEL, ("true", "no pard_token or ptd_token_id"), message, remedy)


def _inner_states(pair: Pair) -> Iterator[Finding]:
    named = reading.texts(pair.verifier.config, "architectures")
    if pair.method not in INNER or not named or named[0] not in pair.rules.names(Fact.NO_INNER_STATES):
        return
    message = (
        f"{pair.rules.engine} {pair.rules.version} cannot read hidden states inside {named[0]}, which {pair.method} "
        "needs"
    )
    remedy = "use eagle, draft_model or ngram, or an image of the engine that supports it"
    yield warning(Code.VERIFIER_UNSUPPORTED, "verifier config.json architectures", (named[0], None), message, remedy)


def _stages(pair: Pair) -> Iterator[Finding]:
    """vLLM 0.32.0 v1/worker/gpu/spec_decode/eagle/eagle3_utils.py: a start under pipeline parallelism ends with "does
    not support ... with pipeline parallelism" where the verifier's class does not pass on what the speculator reads."""
    verifier, named = pair.spec.verifier, reading.texts(pair.verifier.config, "architectures")
    stages = verifier.pipeline_parallel_size
    reads = pair.method in INNER and (pair.inside or speculator_files.uses_auxiliary(pair.speculator))
    if stages == 1 or not reads or not pair.rules.has(Fact.RELAY):
        return
    field = "spec.verifier.pipelineParallelSize"
    remedy = f"set it to 1, and tensorParallelSize: {verifier.tensor_parallel_size * stages}"
    if named and named[0] in pair.rules.names(Fact.NO_RELAY):
        message = (
            f"{pair.method} reads hidden states from inside the verifier, which {named[0]} does not pass between its "
            f"{stages} stages: {pair.rules.engine} {pair.rules.version} refuses to start"
        )
        yield error(Code.VERIFIER_UNSUPPORTED, field, (stages, None), message, remedy)
    elif not named or named[0] not in pair.rules.names(Fact.RELAY):
        message = f"the engine starts only with verifiers that pass hidden states between their {stages} stages"
        yield warning(Code.VERIFIER_UNSUPPORTED, field, (stages, None), message, remedy)
