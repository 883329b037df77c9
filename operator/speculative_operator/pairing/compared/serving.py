"""Does what the spec asks of serving go with the files: lengths of requests, parallel sizes, number formats, and size?

Called by `judge`, for the pair and for the verifier alone. Sources are vLLM 0.32.0 config/model.py (lengths,
quantizations) and its verify_with_parallel_config, for verifier and speculator each. Small models have odd numbers of
attention heads: Qwen2.5-0.5B has 14.
"""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain.models import ModelFacts
from speculative_operator.domain.reading import at
from speculative_operator.domain.spec import DeploymentSpec, Method
from speculative_operator.pairing import reading
from speculative_operator.pairing.findings import Code, Finding, error, info, warning
from speculative_operator.pairing.fit_caches import RECURRENT, layer_kinds
from speculative_operator.pairing.pair import BLOCKS, EngineRules, Fact, Pair

_STRETCHED = (Method.EAGLE, Method.EAGLE3)
"""Heads that draft by the verifier's positions."""
_OWN = (Method.DRAFT_MODEL, *BLOCKS)
"""Speculators with a position limit of their own."""
_UNSCALED = ("", "default", "mrope", "llama3", "longrope", "su")
"""Kinds of rotary scaling by which vLLM 0.32.0 (config/model.py, _get_and_verify_max_len) multiplies nothing."""
_OVERRIDES = ("hf-overrides", "hf_overrides", "rope-", "rope_", "config-format", "tokenizer-mode")
_ALLOWING = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
LARGE = 0.5
"""Share of the verifier's bytes from which a draft model is called large. Drafting K tokens reads it K times:
from one half on, two drafts cost as much as the verification that they may save."""
_FAMILIES = (
    ("gptq", "auto_gptq"),
    ("awq", "auto_awq"),
    ("modelopt", "nvfp4"),
    ("compressed-tensors", "compressed_tensors"),
    ("bitsandbytes",),
    ("mxfp4", "gpt_oss_mxfp4"),
    ("fp8", "fbgemm_fp8", "deepseek_v4_fp8"),
)
"""Beginnings of names of one quantization; kernels of it have names such as awq_marlin."""
_CONVERTING = ("humming", "inc", "moe_wna16", "auto-round", "torchao")
"""Methods that vLLM 0.32.0 (config/model.py, _verify_quantization) puts in place of others."""


def findings(pair: Pair) -> Iterator[Finding]:
    """Findings on what both models serve together."""
    yield from _ranks(pair)
    yield from _positions(pair)
    yield from _formats(pair)
    yield from _large(pair)


def of_verifier(verifier: ModelFacts, spec: DeploymentSpec, rules: EngineRules) -> Iterator[Finding]:
    """Findings on the verifier as the spec has it served; needs no speculator."""
    yield from _beyond(verifier, spec, rules)
    size, count, field = spec.verifier.tensor_parallel_size, _heads(verifier), "spec.verifier.tensorParallelSize"
    yield from _undivided(rules, count, size, field, (count, None), f"set it to a divisor of {count}")


def reported(verifier: ModelFacts, spec: DeploymentSpec, rules: EngineRules) -> Iterator[Finding]:
    """Findings on combinations whose output, or reuse of cached prompts, was reported wrong with drafts."""
    kinds = layer_kinds(reading.decoder(verifier.config)) or ()
    found = {
        "hybrid": any(kind in RECURRENT for kind in kinds),
        "adapters": spec.verifier.lora is not None,
        "any": True,
    }
    for one in rules.wrong:
        if found[one.verifier]:
            release = f"{rules.engine} {rules.version}"
            code, say = (Code.REUSE_DOUBTFUL, info) if one.of_reuse else (Code.OUTPUTS_DOUBTFUL, warning)
            yield say(code, "spec.engine.version", (None, None), f"{release}: {one.effect}", one.remedy)


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


def _ranks(pair: Pair) -> Iterator[Finding]:
    if pair.inside:
        return
    size = pair.requested.tensor_parallel_size or pair.spec.verifier.tensor_parallel_size
    count = _heads(pair.speculator)
    remedy = f"set spec.verifier.tensorParallelSize to a divisor of {count}, or use another speculator"
    values = (f"tensor parallel {size}", count)
    yield from _undivided(pair.rules, count, size, "speculator config.json num_attention_heads", values, remedy)


def _undivided(
    rules: EngineRules, count: int | None, size: int, field: str, values: tuple[object, object], remedy: str
) -> Iterator[Finding]:
    """Finding on `count` attention heads that `size` accelerators cannot share."""
    if count is not None and count % size and rules.has(Fact.DIVISIBLE_HEADS):
        message = f"{count} attention heads are not divisible by tensor parallel size {size}"
        yield error(Code.HEADS_NOT_DIVISIBLE, field, values, f"{message}: the engine refuses to start", remedy)


def _heads(facts: ModelFacts) -> int | None:
    return reading.whole(reading.decoder(facts.config), "num_attention_heads")


def _positions(pair: Pair) -> Iterator[Finding]:
    longest = pair.spec.verifier.max_model_len or positions_of(pair.verifier)
    known = positions_of(pair.speculator)
    if pair.inside or longest is None or known is None or known >= longest:
        return
    field, values = "speculator config.json max_position_embeddings", (longest, known)
    if pair.method in _OWN:
        message = f"requests have up to {longest} tokens, but drafts end at the speculator's {known} positions"
        remedy = f"set spec.verifier.maxModelLen: {known}, or use a speculator for longer texts"
        yield warning(Code.POSITIONS_SHORT, field, values, message, remedy)
    elif pair.method in _STRETCHED and pair.rules.has(Fact.STRETCHES_POSITIONS):
        message = f"the head is configured for {known} positions and may draft worse beyond them"
        yield info(Code.POSITIONS_SHORT, field, values, message)
    elif pair.method in _STRETCHED:
        message = f"the head is configured for {known} positions; beyond them the engine may read out of bounds"
        remedy = f"set spec.verifier.maxModelLen: {known}, or a release of the engine that has vllm#49343"
        yield warning(Code.POSITIONS_SHORT, field, values, message, remedy)


def _beyond(verifier: ModelFacts, spec: DeploymentSpec, rules: EngineRules) -> Iterator[Finding]:
    """Finding on a `maxModelLen` that the verifier's configuration does not allow; needs no speculator."""
    asked, allowed = spec.verifier.max_model_len, positions_of(verifier)
    if asked is None or allowed is None or asked <= allowed or not rules.has(Fact.CHECKS_LENGTHS) or _overridden(spec):
        return
    field = "spec.verifier.maxModelLen"
    message = f"{asked} tokens, but config.json of the verifier allows {allowed}: {rules.engine} refuses to start"
    remedy = f"set it to {allowed} or less"
    if _has_scaling(verifier):
        yield warning(Code.CONTEXT_BEYOND, field, (allowed, None), message, remedy)
    else:
        yield error(Code.CONTEXT_BEYOND, field, (allowed, None), message, remedy)


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
    return any(part in one.replace("_", "-") for one in spec.engine.args for part in _OVERRIDES)


def _formats(pair: Pair) -> Iterator[Finding]:
    ours = pair.spec.verifier.dtype or reading.dtype(pair.verifier)
    theirs = reading.dtype(pair.speculator)
    if not pair.inside and ours and theirs and ours not in (theirs, "auto"):
        message = f"its weights are {theirs}, which the engine converts to {ours}, the verifier's format"
        yield info(Code.DTYPE_DIFFERS, "speculator config.json dtype", (ours, theirs), message)
    if pair.rules.has(Fact.CHECKS_QUANTIZATION):
        yield from _quantization("verifier", pair.spec.verifier.quantization, pair.verifier)
        if not pair.inside:
            yield from _quantization("speculator", pair.requested.quantization, pair.speculator)


def _quantization(side: str, asked: str, facts: ModelFacts) -> Iterator[Finding]:
    own = reading.quantization(facts)
    one, other = _family(asked), _family(own)
    if not one or not other or one == other:
        return
    values = (own, asked) if side == "speculator" else (asked, None)
    message = f"the spec asks for {asked}, and the {side}'s checkpoint is {own}: the engine refuses to start"
    field = f"spec.{side}.quantization"
    yield error(Code.QUANTIZATION_DIFFERS, field, values, message, f"remove it: the engine takes {own} by itself")


def _family(name: str) -> str:
    """The quantization that a name stands for; empty for one that is not known well enough to contradict."""
    plain = name.strip().lower()
    if not plain or plain in _CONVERTING:
        return ""
    return next((names[0] for names in _FAMILIES if any(plain.startswith(one) for one in names)), "")


def _large(pair: Pair) -> Iterator[Finding]:
    ours, theirs = pair.verifier.weights.bytes, pair.speculator.weights.bytes
    if not pair.inside and pair.method is Method.DRAFT_MODEL and theirs >= LARGE * ours > 0:
        message = (
            f"the speculator's weights are {theirs / ours:.0%} of the verifier's: drafting costs about what it saves"
        )
        values = (f"{ours} bytes", f"{theirs} bytes")
        yield warning(Code.SPECULATOR_LARGE, "speculator weights", values, message, "use a smaller model of the family")
