"""How long may requests be? What the verifier's configuration allows, and what the speculator knows."""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain.artifact import ModelFacts
from speculative_operator.domain.reading import at
from speculative_operator.domain.spec import DeploymentSpec, Method
from speculative_operator.pairing import reading
from speculative_operator.pairing.codes import Code
from speculative_operator.pairing.findings import Finding
from speculative_operator.pairing.pair import BLOCKS, Pair, error, info, warning
from speculative_operator.pairing.rules import EngineRules

_STRETCHED = (Method.EAGLE, Method.EAGLE3)
"""Heads that draft by the verifier's positions."""
_OWN = (Method.DRAFT_MODEL, *BLOCKS)
"""Speculators with a position limit of their own."""
_UNSCALED = ("", "default", "mrope", "llama3", "longrope", "su")
"""Kinds of rotary scaling by which vLLM 0.32.0 (config/model.py, _get_and_verify_max_len) multiplies nothing."""
_OVERRIDES = ("hf-overrides", "hf_overrides", "rope-", "rope_", "config-format", "tokenizer-mode")
_ALLOWING = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"


def findings(pair: Pair) -> Iterator[Finding]:
    longest = pair.spec.verifier.max_model_len or positions_of(pair.verifier)
    known = positions_of(pair.speculator)
    if pair.inside or longest is None or known is None or known >= longest:
        return
    field, values = "speculator config.json max_position_embeddings", (longest, known)
    if pair.method in _OWN:
        message = f"requests have up to {longest} tokens, but drafts end at the speculator's {known} positions"
        remedy = f"set spec.verifier.maxModelLen: {known}, or use a speculator for longer texts"
        yield warning(Code.POSITIONS_SHORT, field, values, message, remedy)
    elif pair.method in _STRETCHED and pair.rules.stretches_positions:
        message = f"the head is configured for {known} positions and may draft worse beyond them"
        yield info(Code.POSITIONS_SHORT, field, values, message)
    elif pair.method in _STRETCHED:
        message = f"the head is configured for {known} positions; beyond them the engine may read out of bounds"
        remedy = f"set spec.verifier.maxModelLen: {known}, or a release of the engine that has vllm#49343"
        yield warning(Code.POSITIONS_SHORT, field, values, message, remedy)


def beyond(verifier: ModelFacts, spec: DeploymentSpec, rules: EngineRules) -> Iterator[Finding]:
    """Finding on a `maxModelLen` that the verifier's configuration does not allow; needs no speculator."""
    asked, allowed = spec.verifier.max_model_len, positions_of(verifier)
    if asked is None or allowed is None or asked <= allowed or not rules.checks_lengths or _overridden(spec):
        return
    field = "spec.verifier.maxModelLen"
    message = f"{asked} tokens, but config.json of the verifier allows {allowed}: {rules.engine} refuses to start"
    remedy = f"set it to {allowed} or less"
    if _has_scaling(verifier):
        yield warning(Code.CONTEXT_BEYOND, field, (allowed, None), message, remedy)
    else:
        yield error(Code.CONTEXT_BEYOND, field, (allowed, None), message, remedy)


def positions_of(facts: ModelFacts) -> int | None:
    """Positions that config.json allows, rotary scaling included; None where the file does not tell."""
    inner = reading.decoder(facts.config)
    limit = reading.whole(inner, "max_position_embeddings")
    if limit is None or not _has_scaling(facts):
        return limit
    scaling = _scaling(facts)
    factor = at(scaling, "factor")
    if not isinstance(factor, (int, float)) or isinstance(factor, bool) or not 1.0 <= factor <= 1e6:
        return limit
    original = reading.whole(scaling, "original_max_position_embeddings") if _kind(scaling) == "yarn" else None
    return max(limit, int((original or limit) * factor)) if original else int(limit * factor)


def _has_scaling(facts: ModelFacts) -> bool:
    scaling = _scaling(facts)
    return at(scaling, "factor") is not None and _kind(scaling) not in _UNSCALED


def _scaling(facts: ModelFacts) -> object:
    inner = reading.decoder(facts.config)
    return at(inner, "rope_scaling") or at(inner, "rope_parameters")


def _kind(scaling: object) -> str:
    return reading.text(scaling, "rope_type") or reading.text(scaling, "type")


def _overridden(spec: DeploymentSpec) -> bool:
    """True when the user's own arguments or environment may change what the configuration allows."""
    if any(variable.get("name") == _ALLOWING for variable in spec.engine.env):
        return True
    return any(part in argument for argument in spec.engine.args for part in _OVERRIDES)
