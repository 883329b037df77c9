"""Everything that SGLang would reject, or silently do otherwise, found before a pod exists. Read by `adapter`.

Everything was read in SGLang 0.5.23 (the wheel of that release; paths below python/sglang/srt/). Older releases are
refused: the adapter relies on flags and counters that were read there only.
"""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain.platform import Vendor
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, EngineType, Method, Speculator
from speculative_operator.engines.base import Notice, Refusal
from speculative_operator.engines.matrix.cell import CELLS, Version
from speculative_operator.engines.shared.arguments import ALWAYS, SPECULATION, Flags, of_verifier
from speculative_operator.engines.shared.checks import refusals_of, refuse_field
from speculative_operator.engines.shared.plan import Offer

OLDEST: Version = (0, 5, 23)
DEFAULT_MAX_RUNNING = 256
"""Never left to the engine: with a speculator it would run 48 requests at once and only warn
(arg_groups/speculative_hook.py)."""
ALGORITHMS = {
    Method.EAGLE: "EAGLE", Method.EAGLE3: "EAGLE3", Method.MTP: "NEXTN", Method.DRAFT_MODEL: "STANDALONE",
    Method.NGRAM: "NGRAM", Method.DFLASH: "DFLASH", Method.DSPARK: "DSPARK",
}  # fmt: skip
"""Values of --speculative-algorithm; NEXTN is resolved to EAGLE."""
WITH_LORA = frozenset({Method.NGRAM, Method.EAGLE, Method.EAGLE3, Method.MTP, Method.DFLASH, Method.DSPARK})
"""arg_groups/lora_hook.py, check_lora_speculative_compatibility."""


def one_k_reason(spec: DeploymentSpec) -> str:
    """Why SGLang keeps one K: `--speculative-adaptive` does not serve adapters (arg_groups/lora_hook.py)."""
    return "SGLang's adaptive mode does not work with LoRA adapters" if spec.verifier.lora is not None else ""


OFFER = Offer(
    engine=EngineType.SGLANG,
    cells=CELLS[EngineType.SGLANG],
    oldest=OLDEST,
    why_oldest="lacks flags and counters that the operator uses",
    default_batch=DEFAULT_MAX_RUNNING,
    # Every K in use holds a state with CUDA graphs of its own, so tables are drawn from few.
    table_ks=frozenset({1, 2, 3, 5, 7}),
    zero_in_table=True,
    fixed_k_reason=one_k_reason,
)


LOSSY_FLAGS = ("--speculative-accept-threshold-single", "--speculative-accept-threshold-acc")
"""Below 1.0 they accept drafts that the verifier would not have written."""
SAMPLING_FLAG = "--speculative-use-rejection-sampling"
"""Has drafts verified by their probability on AMD too, where a release does so for eagle and mtp only by itself."""

_CHAIN = "drafts are a chain, of which K is the length"
_GIVEN = "the table is given to the engine through it"
_DRAFTS = (
    "algorithm", "draft-model-path", "draft-model-revision", "draft-model-quantization", "num-steps",
    "num-draft-tokens", "dflash-block-size", "dspark-block-size",
)  # fmt: skip
FLAGS = Flags(
    owned={
        **of_verifier({
            "--model-path": "model", "--served-model-name": "servedName", "--revision": "revision",
            "--tp-size": "tensorParallelSize", "--pp-size": "pipelineParallelSize", "--dp-size": "dataParallelSize",
            "--ep-size": "expertParallel", "--attn-dp-size": "dataParallelSize or spec.replicas",
            "--enable-dp-attention": "dataParallelSize or spec.replicas", "--context-length": "maxModelLen",
            "--max-running-requests": "maxNumSeqs", "--chunked-prefill-size": "maxNumBatchedTokens",
            "--mem-fraction-static": "gpuMemoryUtilizationPercent", "--kv-cache-dtype": "kvCacheDtype",
            "--quantization": "quantization", "--dtype": "dtype", "--enable-lora": "lora",
            "--max-loras-per-batch": "lora", "--max-lora-rank": "lora",
        }),
        **dict.fromkeys(("--host", "--port", "--enable-metrics"), ALWAYS),
        **{f"--speculative-{name}": SPECULATION for name in _DRAFTS},
        **dict.fromkeys(("--speculative-eagle-topk", "--speculative-ngram-max-bfs-breadth"), _CHAIN),
        **dict.fromkeys(("--speculative-adaptive", "--speculative-adaptive-config"), _GIVEN),
    },
    aliases={
        "--model": "--model-path", "--tensor-parallel-size": "--tp-size", "--pipeline-parallel-size": "--pp-size",
        "--data-parallel-size": "--dp-size", "--expert-parallel-size": "--ep-size", "--ep": "--ep-size",
        "--attention-data-parallel-size": "--attn-dp-size",
        "--speculative-draft-model": "--speculative-draft-model-path",
    },
    blinding={"--enable-metrics-for-all-schedulers": "counts every step once for each rank in the metrics"},
    abbreviates=True,
)  # fmt: skip


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
        for value in FLAGS.values_by_flag(spec.engine.args).get(flag, ()):
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
