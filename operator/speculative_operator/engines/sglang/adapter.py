"""SGLang behind `engines.base.Engine`: what it would reject or silently do otherwise, the arguments of
`python3 -m sglang.launch_server`, and our table as its adaptive configuration: one candidate per slot, so that the
engine never adapts by itself. Chosen by `registry`; nothing passes a shell.

Everything was read in SGLang 0.5.23 (the wheel of that release; paths below python/sglang/srt/). Older releases are
refused: the adapter relies on flags and counters that were read there only.

SGLang 0.5.23 speculative/adaptive_spec_params.py: a step's batch is padded to the next CUDA-graph size, and the slot
with the largest key not above that decides. A slot moves only between its own candidates, so with a single one its
number of steps never changes, whatever is accepted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

from speculative_operator.domain import names
from speculative_operator.domain.platform import Vendor
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.resolved import ResolvedSpec
from speculative_operator.domain.spec import DeploymentSpec, EngineType, Method, Speculator, Verifier
from speculative_operator.domain.table import Actuator, KTable
from speculative_operator.engines.base import Engine, EngineContainer, Notice, Refusal
from speculative_operator.engines.matrix.rows import Version
from speculative_operator.engines.sglang import reading
from speculative_operator.engines.shared.arguments import (
    ALL_INTERFACES,
    flag_arguments,
    locate,
    verifier_arguments,
)
from speculative_operator.engines.shared.checks import refusals_of, refuse_field
from speculative_operator.engines.shared.container import environment, serving_container, startup_seconds
from speculative_operator.engines.shared.flags import ALWAYS, SPECULATION, Flags, of_verifier
from speculative_operator.engines.shared.plan import Offer, Plan, knobs, plan

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
VERIFIER_FLAGS = {
    "--tp-size": "tensorParallelSize", "--pp-size": "pipelineParallelSize", "--dp-size": "dataParallelSize",
    "--ep-size": "expertParallel", "--context-length": "maxModelLen", "--chunked-prefill-size": "maxNumBatchedTokens",
    "--dtype": "dtype", "--quantization": "quantization", "--kv-cache-dtype": "kvCacheDtype",
    "--mem-fraction-static": "gpuMemoryUtilizationPercent",
}  # fmt: skip
FLAGS = Flags(
    EngineType.SGLANG,
    owned={
        **of_verifier({
            **VERIFIER_FLAGS, "--model-path": "model", "--served-model-name": "servedName", "--revision": "revision",
            "--attn-dp-size": "dataParallelSize or spec.replicas",
            "--enable-dp-attention": "dataParallelSize or spec.replicas", "--max-running-requests": "maxNumSeqs",
            "--enable-lora": "lora", "--max-loras-per-batch": "lora", "--max-lora-rank": "lora",
        }),
        **dict.fromkeys(("--host", "--port", "--enable-metrics"), ALWAYS),
        **{f"--speculative-{name}": SPECULATION for name in _DRAFTS},
        **dict.fromkeys(("--speculative-eagle-topk", "--speculative-ngram-max-bfs-breadth"), _CHAIN),
        **dict.fromkeys(("--speculative-adaptive", "--speculative-adaptive-config"), _GIVEN),
    },
    more_aliases={
        "--model": "--model-path", "--tensor-parallel-size": "--tp-size", "--pipeline-parallel-size": "--pp-size",
        "--data-parallel-size": "--dp-size", "--expert-parallel-size": "--ep-size", "--ep": "--ep-size",
        "--attention-data-parallel-size": "--attn-dp-size",
        "--speculative-draft-model": "--speculative-draft-model-path",
    },
)  # fmt: skip


def refusals(spec: DeploymentSpec) -> tuple[Refusal, ...]:
    """Why SGLang cannot serve `spec`; empty when it can."""
    return refusals_of(spec, OFFER, FLAGS, lambda _: (), _speculator_refusals)


def notices(spec: DeploymentSpec) -> tuple[Notice, ...]:
    """Notices where output may not be the verifier's: by the user's engine.args, or by greedy sampling on AMD."""
    return (*_lossy_flags(spec), *_greedy_on_amd(spec))


def _speculator_refusals(spec: DeploymentSpec, speculator: Speculator) -> Iterator[Refusal]:
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


def _lossy_flags(spec: DeploymentSpec) -> Iterator[Notice]:
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


FILE = "adaptive.json"
UNREACHED = 1_000_000
"""Slot that no batch gets to: a table of zeros alone needs one with a K, for the engine to build its speculator."""
_CHAINS = (Method.EAGLE, Method.EAGLE3, Method.MTP, Method.DRAFT_MODEL)


def arguments(spec: DeploymentSpec, plan: Plan, table: KTable) -> tuple[str, ...]:
    """The whole list for `spec` with `table` active: the operator's, then the user's."""
    drafting = _speculation(spec.speculator, plan, table) if spec.speculator and plan.drafts(table) else ()
    return (*_serving(spec, plan), *_verifier(spec.verifier), *drafting, *spec.engine.args)


def adaptive(table: KTable) -> str:
    """Text of the file for `table`: its bands' first batch sizes are the keys."""
    slots = {str(band.first): {"candidate_steps": [band.k]} for band in table}
    if table.max_k == 0:
        slots[str(UNREACHED)] = {"candidate_steps": [1]}
    return json.dumps(slots, separators=(",", ":"))


def first_steps(table: KTable) -> int:
    """Value of --speculative-num-steps: it must be among the candidates, and buffers are sized by it."""
    return max(1, table.max_k)


def _serving(spec: DeploymentSpec, plan: Plan) -> Iterator[str]:
    source = locate(spec.verifier.source, "verifier")
    yield from flag_arguments(("--model-path", source.model), ("--revision", source.revision))
    yield from ("--served-model-name", spec.verifier.served_name)
    yield from ("--host", ALL_INTERFACES, "--port", str(spec.port))
    yield from ("--max-running-requests", str(plan.max_batch))
    yield "--enable-metrics"


def _verifier(verifier: Verifier) -> Iterator[str]:
    yield from verifier_arguments(verifier, VERIFIER_FLAGS, experts=verifier.tensor_parallel_size)
    yield from flag_arguments(("--disable-overlap-schedule", verifier.pipeline_parallel_size > 1))
    if verifier.lora is not None:
        yield from ("--enable-lora", "--max-loras-per-batch", str(verifier.lora.max_adapters))
        # Without adapters at start the engine asks which layers they may change.
        yield from ("--max-lora-rank", str(verifier.lora.max_rank), "--lora-target-modules", "all")


def _speculation(speculator: Speculator, plan: Plan, table: KTable) -> Iterator[str]:
    yield from ("--speculative-algorithm", ALGORITHMS[speculator.method])
    if speculator.source is not None:
        source = locate(speculator.source, "speculator")
        yield from flag_arguments(("--speculative-draft-model-path", source.model))
        yield from flag_arguments(("--speculative-draft-model-revision", source.revision))
    yield from flag_arguments(("--speculative-draft-model-quantization", speculator.quantization))
    yield from _draft_length(speculator.method, plan, table)


def _draft_length(method: Method, plan: Plan, table: KTable) -> Iterator[str]:
    """Flags that give K as each algorithm wants it: a chain of K is verified with the token before it, K + 1 in all."""
    k = first_steps(table)
    if method in _CHAINS:
        yield from ("--speculative-num-steps", str(k), "--speculative-eagle-topk", "1")
        yield from ("--speculative-num-draft-tokens", str(k + 1))
    elif method is Method.DSPARK:
        yield from ("--speculative-dspark-block-size", str(k))
    else:
        yield from ("--speculative-num-draft-tokens", str(k + 1))
    if method is Method.NGRAM:
        # The default, 10, is a tree of drafts; with 1 they are a chain as everywhere else.
        yield from ("--speculative-ngram-max-bfs-breadth", "1")
    if plan.actuator is Actuator.TABLE:
        yield from ("--speculative-adaptive", "--speculative-adaptive-config", f"{names.CONFIG_MOUNT}/{FILE}")


_SHUTDOWN_SECONDS = 120
"""After SIGTERM the engine drains the requests it has; this is the longest that the pod waits for it."""
_ENV = {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false"}
"""/health would otherwise generate a token for each probe, and wait behind a long prefill."""


def container(spec: ResolvedSpec, table: KTable) -> EngineContainer:
    """The container that serves `spec` by `table`."""
    planned = plan(spec, OFFER)
    active = table.resize(planned.max_batch)
    return serving_container(
        spec,
        with_speculator=planned.drafts(table),
        args=arguments(spec, planned, active),
        command=("python3", "-m", "sglang.launch_server"),
        env=environment(spec, _ENV),
        startup_seconds=startup_seconds(spec, planned),
        shutdown_seconds=_SHUTDOWN_SECONDS,
        files={FILE: adaptive(active)} if planned.actuator is Actuator.TABLE else {},
    )


ENGINE = Engine(
    reading.read.names,
    refusals,
    notices,
    partial(knobs, offer=OFFER),
    container,
    reading.read,
    needed=reading.read.need.required,
)
