"""Options of drafting that belong to some methods only, or exclude each other. Called by `checks`.

The API server refuses most of it already; objects stored before a rule existed, and callers without an API server, meet
it here. Rules of vLLM 0.32 config/speculative.py and transformers_utils/configs/speculators/algos.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, Method, Speculator
from speculative_operator.engines.base import Refusal
from speculative_operator.engines.vllm.plan import plan
from speculative_operator.engines.vllm.weights import IN_VERIFIER, OWN_NAME

LOOKED_UP = (Method.NGRAM, Method.NGRAM_GPU)
PARALLEL = (Method.EAGLE, Method.EAGLE3, Method.DRAFT_MODEL)
"""Methods with drafters that were trained to draft in one pass (P-EAGLE, PARD)."""
MODULES = {"stepfun-ai/step-3.5-flash": 3}
"""Checkpoints whose number of mtp modules is above 1 (`num_nextn_predict_layers` of their config.json)."""
_INVALID = Reason.SPEC_INVALID


def refusals(spec: DeploymentSpec, speculator: Speculator) -> Iterator[Refusal]:
    """In the order of the speculator's fields."""
    yield from _own_name(spec, speculator)
    yield from _one_pass(speculator)
    yield from _vocabulary(speculator)
    yield from _lookup(speculator)
    yield from _modules(spec, speculator)


def _own_name(spec: DeploymentSpec, speculator: Speculator) -> Iterator[Refusal]:
    source, verifier = speculator.source, spec.verifier.source
    if source is None or source.uri != verifier.uri or speculator.method in (*OWN_NAME, *IN_VERIFIER):
        return
    if speculator.method is Method.DRAFT_MODEL:
        remedy = "a verifier cannot draft faster than it verifies; set a smaller model"
    else:
        named = ", ".join(OWN_NAME)
        remedy = f"checkpoints that name their verifier have method {named}; set another speculator, or that method"
    message = f"speculator.model {source.uri} with method {speculator.method} is the verifier: {remedy}"
    yield Refusal("spec.speculator.model", _INVALID, message)


def _one_pass(speculator: Speculator) -> Iterator[Refusal]:
    if not speculator.parallel_drafting or speculator.method in (*PARALLEL, Method.DFLASH, Method.DSPARK):
        return
    named = ", ".join(PARALLEL)
    message = f"speculator.parallelDrafting with method {speculator.method}: it is an option of {named}; remove it"
    yield Refusal("spec.speculator.parallelDrafting", _INVALID, message)


def _vocabulary(speculator: Speculator) -> Iterator[Refusal]:
    field, method = "spec.speculator.heterogeneousVocabulary", speculator.method
    if not speculator.heterogeneous_vocabulary:
        return
    if method is not Method.DRAFT_MODEL:
        message = f"speculator.heterogeneousVocabulary with method {method}: it is an option of draft_model; remove it"
        yield Refusal(field, _INVALID, message)
    elif speculator.parallel_drafting:
        message = (
            "speculator.heterogeneousVocabulary true with parallelDrafting true: speculators that draft in one pass "
            "are trained for one vocabulary; remove one of the two"
        )
        yield Refusal(field, _INVALID, message)


def _lookup(speculator: Speculator) -> Iterator[Refusal]:
    field, least, most = "spec.speculator.promptLookup", speculator.prompt_lookup_min, speculator.prompt_lookup_max
    if least is None and most is None:
        return
    if speculator.method not in LOOKED_UP:
        message = f"speculator.promptLookup with method {speculator.method}: it is an option of ngram; remove it"
        yield Refusal(field, _INVALID, message)
    elif least is not None and most is not None and least > most:
        message = f"speculator.promptLookup.min {least} is above max {most}; set min to {most} or less"
        yield Refusal(f"{field}.min", _INVALID, message)


def _modules(spec: DeploymentSpec, speculator: Speculator) -> Iterator[Refusal]:
    """Above the number of modules, K must be a multiple of it: each module is then rerun as often."""
    modules = MODULES.get(spec.verifier.source.location.lower(), 1)
    k = plan(spec).max_k
    if speculator.method is Method.MTP and k > modules and k % modules:
        below = k - k % modules
        message = (
            f"speculation reaches K {k}, but {spec.verifier.source.uri} has {modules} mtp modules and vLLM takes "
            f"multiples of that; set speculation.maxSpeculativeTokens: {modules}, or a Static K of {below}"
        )
        yield Refusal("spec.speculation.maxSpeculativeTokens", Reason.UNSUPPORTED_BY_ENGINE, message)
