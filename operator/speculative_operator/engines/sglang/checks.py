"""Everything that SGLang would reject, or silently do otherwise, found before a pod exists. Called by `adapter`."""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, Method, Speculator
from speculative_operator.domain.vendor import Vendor
from speculative_operator.engines.base import Notice, Refusal
from speculative_operator.engines.sglang.capability import OFFER, WITH_LORA
from speculative_operator.engines.shared.checks import refusals_of, refuse_field
from speculative_operator.engines.shared.flags import ALWAYS, SPECULATION, Flags

LOSSY_FLAGS = ("--speculative-accept-threshold-single", "--speculative-accept-threshold-acc")
"""Below 1.0 they accept drafts that the verifier would not have written."""
SAMPLING_FLAG = "--speculative-use-rejection-sampling"
"""Has drafts verified by their probability on AMD too, where a release does so for eagle and mtp only by itself."""

FLAGS = Flags(
    owned={
        "--model-path": "set spec.verifier.model instead",
        "--served-model-name": "set spec.verifier.servedName instead",
        "--revision": "set spec.verifier.revision instead",
        "--host": ALWAYS,
        "--port": ALWAYS,
        "--tp-size": "set spec.verifier.tensorParallelSize instead",
        "--pp-size": "set spec.verifier.pipelineParallelSize instead",
        "--dp-size": "set spec.verifier.dataParallelSize instead",
        "--ep-size": "set spec.verifier.expertParallel instead",
        "--attn-dp-size": "set spec.verifier.dataParallelSize or spec.replicas instead",
        "--enable-dp-attention": "set spec.verifier.dataParallelSize or spec.replicas instead",
        "--context-length": "set spec.verifier.maxModelLen instead",
        "--max-running-requests": "set spec.verifier.maxNumSeqs instead",
        "--chunked-prefill-size": "set spec.verifier.maxNumBatchedTokens instead",
        "--mem-fraction-static": "set spec.verifier.gpuMemoryUtilizationPercent instead",
        "--kv-cache-dtype": "set spec.verifier.kvCacheDtype instead",
        "--quantization": "set spec.verifier.quantization instead",
        "--dtype": "set spec.verifier.dtype instead",
        "--enable-lora": "set spec.verifier.lora instead",
        "--max-loras-per-batch": "set spec.verifier.lora instead",
        "--max-lora-rank": "set spec.verifier.lora instead",
        "--enable-metrics": ALWAYS,
        "--speculative-algorithm": SPECULATION,
        "--speculative-draft-model-path": SPECULATION,
        "--speculative-draft-model-revision": SPECULATION,
        "--speculative-draft-model-quantization": SPECULATION,
        "--speculative-num-steps": SPECULATION,
        "--speculative-eagle-topk": "drafts are a chain, of which K is the length",
        "--speculative-num-draft-tokens": SPECULATION,
        "--speculative-dflash-block-size": SPECULATION,
        "--speculative-dspark-block-size": SPECULATION,
        "--speculative-ngram-max-bfs-breadth": "drafts are a chain, of which K is the length",
        "--speculative-adaptive": "the table is given to the engine through it",
        "--speculative-adaptive-config": "the table is given to the engine through it",
    },
    aliases={
        "--model": "--model-path",
        "--tensor-parallel-size": "--tp-size",
        "--pipeline-parallel-size": "--pp-size",
        "--data-parallel-size": "--dp-size",
        "--expert-parallel-size": "--ep-size",
        "--ep": "--ep-size",
        "--attention-data-parallel-size": "--attn-dp-size",
        "--speculative-draft-model": "--speculative-draft-model-path",
    },
    blinding={
        "--enable-metrics-for-all-schedulers": "counts every step once for each rank in the metrics",
    },
    abbreviates=True,
)


def refusals(spec: DeploymentSpec) -> tuple[Refusal, ...]:
    """Why SGLang cannot serve `spec`; empty when it can."""
    return refusals_of(spec, OFFER, FLAGS, lambda _: (), _speculator)


def notices(spec: DeploymentSpec) -> tuple[Notice, ...]:
    """Notices where output may not be the verifier's: by the user's engine.args, or by greedy sampling on AMD."""
    return (*_notices(spec), *_greedy_on_amd(spec))


def _speculator(spec: DeploymentSpec, speculator: Speculator) -> Iterator[Refusal]:
    if spec.verifier.lora is not None and speculator.method not in WITH_LORA:
        why = (
            "SGLang serves adapters beside ngram, eagle, eagle3, mtp, dflash and dspark only; use one of them or "
            "remove verifier.lora"
        )
        yield refuse_field("verifier.lora", why, f"with speculator.method {speculator.method}")
    if speculator.prompt_lookup_min is not None or speculator.prompt_lookup_max is not None:
        why = (
            "SGLang looks tokens up in a tree of all texts, which has a depth only; remove it and set "
            "--speculative-ngram-max-trie-depth in engine.args"
        )
        yield refuse_field("speculator.promptLookup", why)


def _notices(spec: DeploymentSpec) -> Iterator[Notice]:
    for flag in LOSSY_FLAGS:
        for value in FLAGS.values(spec.engine.args, flag):
            if not _is_one(value):
                message = f"engine.args sets {flag} {value}: outputs may differ from the verifier's own; remove it"
                yield Notice(Reason.LOSSY, message)


def _greedy_on_amd(spec: DeploymentSpec) -> Iterator[Notice]:
    """SGLang 0.5.23 speculative/eagle_utils.py, _verify_uses_greedy, and arg_groups/speculative_hook.py."""
    method = spec.speculator.method if spec.speculator is not None and spec.speculates else None
    if spec.accelerator.vendor is not Vendor.AMD or method not in (Method.EAGLE3, Method.DRAFT_MODEL):
        return
    if method is Method.EAGLE3 and any(FLAGS.name(one) == SAMPLING_FLAG for one in spec.engine.args):
        return
    message = (
        f"speculator.method {method}: on AMD SGLang verifies it by the likeliest token alone, so that requests get "
        "the answer of temperature 0 whatever they ask for; use eagle, mtp or engine.type: vLLM"
    )
    if method is Method.EAGLE3:
        message += f", or give {SAMPLING_FLAG} in engine.args where the speculator has the verifier's whole vocabulary"
    yield Notice(Reason.LOSSY, message)


def _is_one(value: str) -> bool:
    try:
        return float(value) == 1.0
    except ValueError:
        return False
