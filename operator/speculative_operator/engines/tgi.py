"""TGI behind `engines.base.Engine`: one constant K for n-gram lookup and Medusa heads, the arguments of
text-generation-launcher 3.3, what it would reject, and why its pods yield no windows. Chosen by `registry`; nothing
passes a shell.

Read in huggingface/text-generation-inference 3.3.7 (launcher/src/main.rs, server/text_generation_server/models/
__init__.py): `--speculate N`, Medusa heads if the checkpoint has them, else n-gram. Its metrics
(backends/v3/src/backend.rs) count accepted drafts (`tgi_request_skipped_tokens`) and passes, but neither how many
tokens were drafted nor what a step takes as a request sees it. A tuner given windows without drafts would take the pods
for ones without a speculator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

from speculative_operator.domain import names
from speculative_operator.domain.observation import Gap, PodWindow, Series
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.resolved import ResolvedSpec
from speculative_operator.domain.spec import DeploymentSpec, EngineType, Method, Mode, Speculator, Verifier
from speculative_operator.domain.table import KTable
from speculative_operator.engines.base import Engine, EngineContainer, Notice, Refusal
from speculative_operator.engines.matrix.rows import Version
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

OLDEST: Version = (3, 0, 0)
DEFAULT_MAX_BATCH = 128
"""TGI's own limit of concurrent requests; more are answered 429."""

NOTHING_TUNED = (
    "With TGI nothing is tuned: K stays what it is when a pod starts, for no metric tells how many tokens were drafted"
)

OFFER = Offer(
    engine=EngineType.TGI,
    oldest=OLDEST,
    why_oldest="was not read for this adapter",
    default_batch=DEFAULT_MAX_BATCH,
)


VERIFIER_FLAGS = {
    "--num-shard": "tensorParallelSize", "--max-total-tokens": "maxModelLen",
    "--max-batch-prefill-tokens": "maxNumBatchedTokens", "--dtype": "dtype", "--quantize": "quantization",
    "--kv-cache-dtype": "kvCacheDtype", "--cuda-memory-fraction": "gpuMemoryUtilizationPercent",
}  # fmt: skip
FLAGS = Flags(
    EngineType.TGI,
    owned={
        **of_verifier({
            **VERIFIER_FLAGS, "--model-id": "model", "--revision": "revision", "--sharded": "tensorParallelSize",
            "--max-batch-size": "maxNumSeqs", "--max-concurrent-requests": "maxNumSeqs",
        }),
        **dict.fromkeys(("--hostname", "--port", "--graceful-termination-timeout"), ALWAYS),
        "--speculate": SPECULATION,
    },
    more_aliases={"-p": "--port"},
)  # fmt: skip


def refusals(spec: DeploymentSpec) -> tuple[Refusal, ...]:
    """Why TGI cannot serve `spec`; empty when it can."""
    return refusals_of(spec, OFFER, FLAGS, _verifier_refusals, _speculator_refusals)


def notices(spec: DeploymentSpec) -> tuple[Notice, ...]:
    """Notices: TGI is in maintenance mode (its README since 2025-12-11), and cannot be tuned where the mode asks."""
    unmaintained = "TGI is in maintenance mode: small fixes only; engine.type: vLLM or SGLang is maintained"
    found = (Notice(Reason.ENGINE_UNMAINTAINED, unmaintained),)
    if not spec.speculates or spec.speculation.mode not in (Mode.AUTO, Mode.RECOMMEND):
        return found
    return (Notice(Reason.UNSUPPORTED_BY_ENGINE, f"{NOTHING_TUNED}; set speculation.mode: Static, or use vLLM"), *found)


def _verifier_refusals(verifier: Verifier) -> Iterator[Refusal]:
    for field, size in (
        ("verifier.dataParallelSize", verifier.data_parallel_size),
        ("verifier.pipelineParallelSize", verifier.pipeline_parallel_size),
    ):
        if size > 1:
            yield refuse_field(field, "TGI only splits tensors; set 1 and raise spec.replicas", size)
    if verifier.expert_parallel:
        yield refuse_field("verifier.expertParallel", "TGI only splits tensors; remove it")
    if verifier.lora is not None:
        why = "TGI loads adapters by name; remove it and give --lora-adapters in engine.args"
        yield refuse_field("verifier.lora", why)


def _speculator_refusals(spec: DeploymentSpec, speculator: Speculator) -> Iterator[Refusal]:
    source = speculator.source
    if speculator.method is Method.MEDUSA and source is not None and source.uri != spec.verifier.source.uri:
        why = (
            "TGI finds Medusa heads in the verifier's own checkpoint; name the checkpoint with the heads in "
            "verifier.model and remove speculator.model"
        )
        yield refuse_field("speculator.model", why, source.uri)
    if speculator.quantization:
        why = "TGI's drafts have no weights to quantize; remove it"
        yield refuse_field("speculator.quantization", why, speculator.quantization)
    if speculator.prompt_lookup_min is not None or speculator.prompt_lookup_max is not None:
        yield refuse_field("speculator.promptLookup", "TGI looks up single tokens; remove it")


_ENV = {"HUGGINGFACE_HUB_CACHE": f"{names.CACHE_MOUNT}/huggingface/hub"}
"""The image sets it to /data, which no volume is mounted at."""
_DRAIN_SECONDS = 90
"""--graceful-termination-timeout, TGI's default, written out because the pod has to wait as long."""
_UNREADABLE = Gap(
    Reason.UNSUPPORTED_BY_ENGINE, "TGI's metrics do not include drafted tokens, so the tuner cannot measure K"
)


def container(spec: ResolvedSpec, table: KTable) -> EngineContainer:
    """The container that serves `spec` with the K of `table`."""
    planned = plan(spec, OFFER)
    return serving_container(
        spec,
        with_speculator=False,
        args=_arguments(spec, planned, table),
        env=environment(spec, _ENV),
        startup_seconds=startup_seconds(spec, planned),
        shutdown_seconds=_DRAIN_SECONDS,
    )


def read(
    series: Sequence[Series], pods: Collection[str], since: Mapping[str, float], now: float, stale_after: float
) -> dict[str, PodWindow | Gap]:
    """A gap for each of `pods`."""
    return dict.fromkeys(pods, _UNREADABLE)


ENGINE = Engine((), refusals, notices, partial(knobs, offer=OFFER), container, read)


def _arguments(spec: DeploymentSpec, plan: Plan, table: KTable) -> tuple[str, ...]:
    verifier = verifier_arguments(spec.verifier, VERIFIER_FLAGS)
    drafting = ("--speculate", str(table.max_k)) if plan.drafts(table) else ()
    return (*_serving(spec, plan), *verifier, *drafting, *spec.engine.args)


def _serving(spec: DeploymentSpec, plan: Plan) -> Iterator[str]:
    source = locate(spec.verifier.source, "verifier")
    yield from flag_arguments(("--model-id", source.model), ("--revision", source.revision))
    # Left out, the launcher takes the variable HOSTNAME, which in a pod is its name.
    yield from ("--hostname", ALL_INTERFACES, "--port", str(spec.port))
    yield from ("--max-concurrent-requests", str(plan.max_batch), "--max-batch-size", str(plan.max_batch))
    yield from ("--graceful-termination-timeout", str(_DRAIN_SECONDS))
