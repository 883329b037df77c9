"""Is the checkpoint of the method that the spec asks for, can the engine read it and its verifier, and does K go with
what it was trained to draft: modules of MTP, blocks of DFlash and DSpark, Medusa's heads?

Called by `judge`; `speculative check` asks for the modules. vLLM 0.32.0 config/speculative.py rewrites the verifier's
configuration into that of its MTP modules: `n_predict` of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain.models import ModelFacts
from speculative_operator.domain.reading import at
from speculative_operator.domain.spec import Method
from speculative_operator.pairing import reading, speculator_files
from speculative_operator.pairing.findings import Code, Finding, error, info, warning
from speculative_operator.pairing.pair import BLOCKS, INNER, Fact, Pair

_FIELD = "spec.speculator.method"
_PARALLEL = "spec.speculator.parallelDrafting"
_MOST = "spec.speculation.maxSpeculativeTokens"
_NAMED = (("eagle-", Method.EAGLE), ("eagle3", Method.EAGLE3), ("dflash", Method.DFLASH), ("dspark", Method.DSPARK))
"""Part of a name -> what vLLM takes a draft_model of it for (config/speculative.py, __post_init__), in the order in
which it looks; a release may know fewer."""
KEYS = ("num_mtp_modules", "num_nextn_predict_layers", "mtp_num_hidden_layers", "n_predict")
"""Keys for the number of modules, by family: MiniMax; DeepSeek, GLM and most others; Qwen; standalone ones."""
_FIRST_ONLY = "mimo_v2"
"""Families of which vLLM 0.32.0 runs the first module alone."""
_TENSORS = ("mtp", "eh_proj", "nextn")
_OMNI = "qwen3_omni_moe"


def findings(pair: Pair) -> Iterator[Finding]:
    yield from _stages(pair)
    if not pair.inside:
        yield from _format(pair)
        yield from _method(pair)
        yield from _one_pass(pair)
        yield from _inner_states(pair)


def of_k(pair: Pair) -> Iterator[Finding]:
    """Findings on K, and on modules that are not there."""
    if pair.method is Method.MTP:
        yield from _modules(pair)
    elif pair.method in BLOCKS or (pair.nature.parallel and pair.nature.method is pair.method):
        yield from _block(pair)
    elif pair.method is Method.MEDUSA:
        yield from _heads(pair)


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


def modules(facts: ModelFacts) -> tuple[str, int] | None:
    """(key, number of modules); None where config.json does not tell."""
    for place, prefix in ((reading.decoder(facts.config), ""), (at(facts.config, "mtp_config"), "mtp_config.")):
        for key in KEYS:
            if count := reading.whole(place, key):
                return prefix + key, 1 if reading.model_type(facts).startswith(_FIRST_ONLY) else count
    return None


def _modules(pair: Pair) -> Iterator[Finding]:
    if pair.inside:
        absent = list(_absent(pair))
        yield from absent
        if absent:
            return
    found = modules(pair.speculator)
    if found is None or pair.k <= found[1]:
        return
    side = "verifier" if pair.inside else "speculator"
    key, count = found
    values, field = (f"{count} modules", None), f"{side} config.json {key}"
    if pair.k % count and pair.rules.has(Fact.DIVISIBLE_MODULES):
        message = f"K reaches {pair.k}, and {pair.rules.engine} accepts at most {count}, or a multiple of it"
        remedy = f"set spec.speculation.maxSpeculativeTokens: {count}, or a Static K of {pair.k - pair.k % count}"
        yield error(Code.MODULES_NOT_DIVIDING, field, values, message, remedy)
    else:
        message = (
            f"K reaches {pair.k} with {count} module{'s' * (count > 1)}: the engine runs them again on their own output"
        )
        yield info(Code.MODULES_REUSED, field, values, message)


def _absent(pair: Pair) -> Iterator[Finding]:
    facts = pair.verifier
    family = reading.model_type(facts)
    remedy = "use another method (eagle3, draft_model, ngram), or a checkpoint that still has its modules"
    if modules(facts) is not None:
        if reading.headers_read(facts) and not _tensors(facts):
            message = (
                "config.json names mtp modules, but the checkpoint lacks their tensors, as converted copies often do"
            )
            yield warning(Code.MODULES_ABSENT, "verifier weights", ("no mtp tensor", None), message, remedy)
        return
    if not facts.config or _tensors(facts):
        return
    if _none_by_number(facts):
        message = "config.json says that the checkpoint has no modules that predict further tokens"
        yield error(Code.MODULES_ABSENT, f"verifier config.json {_none_by_number(facts)}", ("0", None), message, remedy)
    elif pair.rules.has(Fact.MODULES) and _unknown(facts, pair.rules.names(Fact.MODULES)):
        message = (
            f"{pair.rules.engine} {pair.rules.version} knows no mtp modules of a {family}, and config.json names none"
        )
        yield error(Code.MODULES_ABSENT, "verifier config.json model_type", (family, None), message, remedy)
    else:
        message = "config.json names no modules that predict further tokens"
        yield warning(Code.MODULES_ABSENT, f"verifier config.json {KEYS[1]}", (family, None), message, remedy)


def _none_by_number(facts: ModelFacts) -> str:
    """The key of config.json that says 0 modules; empty where none says it."""
    inner = reading.decoder(facts.config)
    return next((key for key in KEYS if at(inner, key) in (0,) and not isinstance(at(inner, key), bool)), "")


def _unknown(facts: ModelFacts, known: frozenset[str]) -> bool:
    """True for a model that tells type and architecture, neither of which is `known`."""
    architectures = reading.texts(facts.config, "architectures")
    types = {reading.text(facts.config, "model_type"), reading.text(reading.decoder(facts.config), "model_type")} - {""}
    return bool(types and architectures) and known.isdisjoint({*types, *architectures})


def _tensors(facts: ModelFacts) -> bool:
    return any(part in name for name in facts.weights.shapes for part in _TENSORS)


def _block(pair: Pair) -> Iterator[Finding]:
    trained = speculator_files.block(pair.speculator)
    if trained is None or trained < 1:
        return
    omni = reading.text(pair.verifier.config, "model_type") == _OMNI and pair.method is Method.DSPARK
    if omni and not pair.inside and pair.rules.has(Fact.DIVISIBLE_MODULES) and pair.k != trained:
        message = (
            f"{pair.rules.engine} accepts this speculator only with K {trained}, its block size; K reaches {pair.k}"
        )
        remedy = f"set spec.speculation.mode: Static and numSpeculativeTokens: {trained}"
        yield error(Code.BLOCK_EXCEEDED, _MOST, (pair.k, trained), message, remedy)
    elif pair.k > trained:
        message = (
            f"K reaches {pair.k}, but the speculator was trained to draft {trained} in one pass: later drafts fail"
        )
        remedy = f"set it to {trained} or less"
        yield warning(Code.BLOCK_EXCEEDED, _MOST, (pair.k, trained), message, remedy)


def _heads(pair: Pair) -> Iterator[Finding]:
    count = reading.first_whole(pair.speculator.config, ("medusa_num_heads", "num_heads", "n_predict"))
    if count is not None and pair.k > count:
        message = f"K reaches {pair.k}, but config.json has {count} heads, each of which drafts one token"
        yield warning(Code.HEADS_EXCEEDED, _MOST, (pair.k, count), message, f"set it to {count} or less")
