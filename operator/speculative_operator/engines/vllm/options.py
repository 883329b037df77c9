"""Options of drafting that belong to some methods only, or exclude each other. Called by `checks`.

`api.checks` refuses most of it before a spec gets here; this is what it cannot know, and what a row of the catalogue
may ask for. Rules of vLLM 0.32 config/speculative.py and transformers_utils/configs/speculators/algos.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, Method, Speculator
from speculative_operator.domain.vllm import IN_ONE_PASS
from speculative_operator.engines.base import Refusal
from speculative_operator.engines.vllm.plan import plan
from speculative_operator.engines.vllm.weights import IN_VERIFIER, OWN_NAME

MODULES = {"stepfun-ai/step-3.5-flash": 3}
"""Checkpoints whose number of mtp modules is above 1 (`num_nextn_predict_layers` of their config.json)."""
_INVALID = Reason.SPEC_INVALID


def refusals(spec: DeploymentSpec, speculator: Speculator) -> Iterator[Refusal]:
    """What vLLM refuses of a speculator's options, in the order of its fields."""
    yield from _own_name(spec, speculator)
    yield from _one_pass(speculator)
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
    if not speculator.parallel_drafting:
        return
    if speculator.heterogeneous_vocabulary:
        message = (
            "speculator.heterogeneousVocabulary true with parallelDrafting true: speculators that draft in one pass "
            "are trained for one vocabulary; remove one of the two"
        )
        yield Refusal("spec.speculator.heterogeneousVocabulary", _INVALID, message)
    if speculator.method not in (*IN_ONE_PASS, Method.DFLASH, Method.DSPARK):
        named = ", ".join(IN_ONE_PASS)
        message = f"speculator.parallelDrafting with method {speculator.method}: it is an option of {named}; remove it"
        yield Refusal("spec.speculator.parallelDrafting", _INVALID, message)


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
