"""MTP: has the verifier modules that predict further tokens, and does K go with how many there are?

vLLM 0.32.0 config/speculative.py rewrites the verifier's configuration into that of its modules: `n_predict` of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain.artifact import ModelFacts
from speculative_operator.domain.reading import at
from speculative_operator.domain.spec import Method
from speculative_operator.pairing import reading
from speculative_operator.pairing.codes import Code
from speculative_operator.pairing.findings import Finding
from speculative_operator.pairing.pair import Pair, error, info, warning

KEYS = ("num_mtp_modules", "num_nextn_predict_layers", "mtp_num_hidden_layers", "n_predict")
"""Keys for the number of modules, by family: MiniMax; DeepSeek, GLM and most others; Qwen; standalone ones."""
_FIRST_ONLY = "mimo_v2"
"""Families of which vLLM 0.32.0 runs the first module alone."""
_TENSORS = ("mtp", "eh_proj", "nextn")
_FIELD = "verifier config.json"


def findings(pair: Pair) -> Iterator[Finding]:
    if pair.method is not Method.MTP:
        return
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
    if pair.k % count and pair.rules.divisible_modules:
        message = f"K reaches {pair.k}, and {pair.rules.engine} accepts at most {count}, or a multiple of it"
        remedy = f"set spec.speculation.maxSpeculativeTokens: {count}, or a Static K of {pair.k - pair.k % count}"
        yield error(Code.MODULES_NOT_DIVIDING, field, values, message, remedy)
    else:
        message = (
            f"K reaches {pair.k} with {count} module{'s' * (count > 1)}: the engine runs them again on their own output"
        )
        yield info(Code.MODULES_REUSED, field, values, message)


def modules(facts: ModelFacts) -> tuple[str, int] | None:
    """(key, number of modules); None where config.json does not tell."""
    inner = reading.decoder(facts.config)
    for place, prefix in ((facts.config, ""), (inner, ""), (at(facts.config, "mtp_config"), "mtp_config.")):
        for key in KEYS:
            if count := reading.whole(place, key):
                return prefix + key, 1 if reading.model_type(facts).startswith(_FIRST_ONLY) else count
    return None


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
    elif pair.rules.mtp_types is not None and family and not _types(facts) & pair.rules.mtp_types:
        message = (
            f"{pair.rules.engine} {pair.rules.version} knows no mtp modules of a {family}, and config.json names none"
        )
        yield error(Code.MODULES_ABSENT, f"{_FIELD} model_type", (family, None), message, remedy)
    else:
        message = "config.json names no modules that predict further tokens"
        yield warning(Code.MODULES_ABSENT, f"{_FIELD} {KEYS[1]}", (family, None), message, remedy)


def _none_by_number(facts: ModelFacts) -> str:
    """The key of config.json that says 0 modules; empty where none says it."""
    places = (facts.config, reading.decoder(facts.config))
    keys = (key for key in KEYS for place in places if at(place, key) in (0,) and _plain(place, key))
    return next(keys, "")


def _plain(place: object, key: str) -> bool:
    return not isinstance(at(place, key), bool)


def _types(facts: ModelFacts) -> frozenset[str]:
    inner = reading.decoder(facts.config)
    return frozenset({reading.text(facts.config, "model_type"), reading.text(inner, "model_type")} - {""})


def _tensors(facts: ModelFacts) -> bool:
    return any(part in name for name in facts.weights.shapes for part in _TENSORS)
