"""Does K go with what the speculator was trained to draft: modules of MTP, blocks of DFlash and DSpark, Medusa's heads?

Called by `judge`; `method` and `speculative check` ask for the modules. vLLM 0.32.0 config/speculative.py rewrites the
verifier's configuration into that of its MTP modules: `n_predict` of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain.models import ModelFacts
from speculative_operator.domain.reading import at
from speculative_operator.domain.spec import Method
from speculative_operator.pairing import reading, speculator_files
from speculative_operator.pairing.findings import Code, Finding, error, info, warning
from speculative_operator.pairing.pair import BLOCKS, Fact, Pair

KEYS = ("num_mtp_modules", "num_nextn_predict_layers", "mtp_num_hidden_layers", "n_predict")
"""Keys for the number of modules, by family: MiniMax; DeepSeek, GLM and most others; Qwen; standalone ones."""
_FIRST_ONLY = "mimo_v2"
"""Families of which vLLM 0.32.0 runs the first module alone."""
_TENSORS = ("mtp", "eh_proj", "nextn")
_FIELD = "verifier config.json"
_MOST = "spec.speculation.maxSpeculativeTokens"
_OMNI = "qwen3_omni_moe"


def findings(pair: Pair) -> Iterator[Finding]:
    """Findings on K, and on modules that are not there."""
    if pair.method is Method.MTP:
        yield from _modules(pair)
    elif pair.method in BLOCKS:
        yield from _block(pair)
    elif pair.method is Method.MEDUSA:
        yield from _heads(pair)


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
        yield error(Code.MODULES_ABSENT, f"{_FIELD} {_none_by_number(facts)}", ("0", None), message, remedy)
    elif pair.rules.has(Fact.MODULES) and _unknown(facts, pair.rules.names(Fact.MODULES)):
        message = (
            f"{pair.rules.engine} {pair.rules.version} knows no mtp modules of a {family}, and config.json names none"
        )
        yield error(Code.MODULES_ABSENT, f"{_FIELD} model_type", (family, None), message, remedy)
    else:
        message = "config.json names no modules that predict further tokens"
        yield warning(Code.MODULES_ABSENT, f"{_FIELD} {KEYS[1]}", (family, None), message, remedy)


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
            f"K reaches {pair.k}, but the speculator was trained for blocks of {trained} drafts: later drafts fail"
        )
        remedy = f"set it to {trained} or less"
        yield warning(Code.BLOCK_EXCEEDED, _MOST, (pair.k, trained), message, remedy)


def _heads(pair: Pair) -> Iterator[Finding]:
    count = reading.first_whole(pair.speculator.config, ("medusa_num_heads", "num_heads", "n_predict"))
    if count is not None and pair.k > count:
        message = f"K reaches {pair.k}, but config.json has {count} heads, each of which drafts one token"
        yield warning(Code.HEADS_EXCEEDED, _MOST, (pair.k, count), message, f"set it to {count} or less")
