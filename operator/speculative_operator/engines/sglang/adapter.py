"""SGLang behind `engines.base.Engine`: the arguments of `python3 -m sglang.launch_server`, SGLang 0.5.23, and our
table as its adaptive configuration: one candidate per slot, so that the engine never adapts by itself. Chosen by
`registry`; nothing passes a shell.

SGLang 0.5.23 speculative/adaptive_spec_params.py: a step's batch is padded to the next CUDA-graph size, and the slot
with the largest key not above that decides. A slot moves only between its own candidates, so with a single one its
number of steps never changes, whatever is accepted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

from speculative_operator.domain import names
from speculative_operator.domain.resolved import ResolvedSpec
from speculative_operator.domain.spec import DeploymentSpec, Method, Speculator, Verifier
from speculative_operator.domain.table import Actuator, KTable
from speculative_operator.engines.base import Engine, EngineContainer
from speculative_operator.engines.sglang import capability, reading
from speculative_operator.engines.sglang.capability import ALGORITHMS, OFFER
from speculative_operator.engines.shared.arguments import ALL_INTERFACES, above_one, flag_arguments, locate, share
from speculative_operator.engines.shared.container import environment, serving_container, startup_seconds
from speculative_operator.engines.shared.plan import Plan, knobs, plan

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
    yield from flag_arguments(
        ("--tp-size", verifier.tensor_parallel_size),
        ("--pp-size", above_one(verifier.pipeline_parallel_size)),
        ("--disable-overlap-schedule", verifier.pipeline_parallel_size > 1),
        ("--dp-size", above_one(verifier.data_parallel_size)),
        ("--ep-size", verifier.tensor_parallel_size if verifier.expert_parallel else None),
        ("--context-length", verifier.max_model_len),
        ("--chunked-prefill-size", verifier.max_num_batched_tokens),
        ("--dtype", verifier.dtype),
        ("--quantization", verifier.quantization),
        ("--kv-cache-dtype", verifier.kv_cache_dtype),
        ("--mem-fraction-static", share(verifier.gpu_memory_utilization_percent)),
    )
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
    capability.refusals,
    capability.notices,
    partial(knobs, offer=OFFER),
    container,
    reading.read,
    needed=reading.read.need.required,
)
