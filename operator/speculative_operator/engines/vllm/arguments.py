"""The argument list of `vllm serve`: flags the operator owns, then the user's. Called by `adapter`.

The image's entry point is `vllm serve`, so the model comes first; pods of KServe run vLLM's API server instead. Nothing
here ever passes a shell.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from speculative_operator.domain.knobs import Actuator
from speculative_operator.domain.spec import DeploymentSpec, Speculator, Verifier
from speculative_operator.domain.table import KTable
from speculative_operator.engines.images import API_SERVER, command_of
from speculative_operator.engines.shared.flags import ALL_INTERFACES, above_one, flag_arguments, share
from speculative_operator.engines.shared.sources import locate
from speculative_operator.engines.vllm.batching import budget_flag
from speculative_operator.engines.vllm.forms import SHUTDOWN_TIMEOUT_SINCE
from speculative_operator.engines.vllm.graphs import raised_ceiling
from speculative_operator.engines.vllm.plan import Plan, boot_schedule, leaves_out
from speculative_operator.engines.vllm.weights import in_verifier, serves_itself

SCHEDULER_CLASS = "speculative_scheduler.scheduler"
WORKER_EXTENSION = "speculative_worker.Extension"
SHUTDOWN_SECONDS = 120
"""vLLM's default, 0, aborts requests in flight; two minutes let nearly every answer end."""
CERTIFICATE = "/var/run/kserve/tls"
"""Where KServe's template for LLMInferenceServices mounts the certificate of the pod's Service."""


def arguments(spec: DeploymentSpec, plan: Plan, table: KTable) -> tuple[str, ...]:
    """All arguments for `spec` with `table` active."""
    verifier = (*_verifier(spec.verifier), *_nodes(spec))
    return (*_serving(spec, plan), *verifier, *_speculation(spec, plan, table), *spec.engine.args)


def _serving(spec: DeploymentSpec, plan: Plan) -> Iterator[str]:
    source = locate(spec.verifier.source, "verifier")
    # vLLM's own command takes the model by position and refuses the flag; its API server takes the flag only.
    yield source.model if command_of(spec) != API_SERVER else f"--model={source.model}"
    yield from ("--served-model-name", spec.verifier.served_name)
    yield from ("--host", ALL_INTERFACES, "--port", str(spec.port))
    if spec.inference_service.tls:
        yield from ("--ssl-certfile", f"{CERTIFICATE}/tls.crt", "--ssl-keyfile", f"{CERTIFICATE}/tls.key")
        yield "--enable-ssl-refresh"
    # By its own name a speculator is served with its verifier's weights, of which the revision is not one.
    if source.revision and not serves_itself(spec):
        yield from ("--revision", source.revision)
    yield from flag_arguments(("--max-num-seqs", plan.max_batch), ("--max-num-batched-tokens", budget_flag(spec, plan)))
    if plan.version >= SHUTDOWN_TIMEOUT_SINCE:
        yield from ("--shutdown-timeout", str(SHUTDOWN_SECONDS))


def _verifier(verifier: Verifier) -> Iterator[str]:
    yield from flag_arguments(
        ("--tensor-parallel-size", verifier.tensor_parallel_size),
        ("--pipeline-parallel-size", above_one(verifier.pipeline_parallel_size)),
        ("--data-parallel-size", above_one(verifier.data_parallel_size)),
        ("--enable-expert-parallel", verifier.expert_parallel),
        ("--max-model-len", verifier.max_model_len),
        ("--dtype", verifier.dtype),
        ("--quantization", verifier.quantization),
        ("--kv-cache-dtype", verifier.kv_cache_dtype),
        ("--gpu-memory-utilization", share(verifier.gpu_memory_utilization_percent)),
    )
    if (lora := verifier.lora) is not None:
        yield from flag_arguments(
            ("--enable-lora", True), ("--max-loras", lora.max_adapters), ("--max-lora-rank", lora.max_rank)
        )


def _nodes(spec: DeploymentSpec) -> Iterator[str]:
    """Flags by which the pods of a group find each other. LWS sets the variables, the kubelet expands them."""
    if spec.nodes > 1:
        yield from ("--nnodes", str(spec.nodes), "--node-rank", "$(LWS_WORKER_INDEX)")
        yield from ("--master-addr", "$(LWS_LEADER_ADDRESS)")


def _speculation(spec: DeploymentSpec, plan: Plan, table: KTable) -> Iterator[str]:
    if spec.speculator is None or not plan.drafts(table):
        return
    config = json.dumps(speculative_config(spec, spec.speculator, plan, table), separators=(",", ":"))
    yield from ("--speculative-config", config)
    if plan.actuator is Actuator.LIVE:
        yield from ("--scheduler-cls", SCHEDULER_CLASS)
    if leaves_out(spec, plan):
        yield from ("--worker-extension-cls", WORKER_EXTENSION)
    yield from flag_arguments(("--max-cudagraph-capture-size", raised_ceiling(spec, plan)))


def speculative_config(spec: DeploymentSpec, speculator: Speculator, plan: Plan, table: KTable) -> dict[str, Any]:
    """The value of `--speculative-config`. `method` is always named: vLLM would guess it from the model's name.

    A speculators-format checkpoint that is served by its own name says method and model itself and wins over these.
    """
    config = {"method": str(speculator.method), **_weights(spec, speculator), **_options(speculator)}
    if plan.actuator is Actuator.LIVE:
        config["num_speculative_tokens"] = plan.max_k
        config["num_speculative_tokens_per_batch_size"] = boot_schedule(plan.ks, plan.max_batch)
        return config
    config["num_speculative_tokens"] = max(1, table.max_k)
    if plan.actuator is Actuator.TABLE:
        config["num_speculative_tokens_per_batch_size"] = table.resize(plan.max_batch).rows()
    return config


def _weights(spec: DeploymentSpec, speculator: Speculator) -> dict[str, Any]:
    if in_verifier(spec):
        # The engine fills in the verifier's model and quantization, but drafts with the newest revision of it.
        return {"revision": spec.verifier.source.revision} if spec.verifier.source.revision else {}
    if speculator.source is None:
        return {}
    own_name = serves_itself(spec)
    source = locate(speculator.source, "verifier" if own_name else "speculator")
    revision = source.revision or (spec.verifier.source.revision if own_name else "")
    return {"model": source.model} | ({"revision": revision} if revision else {})


def _options(speculator: Speculator) -> dict[str, Any]:
    """Return the speculator's options in the spec, its place aside, without those left at the engine's default."""
    options = {
        "quantization": speculator.quantization or None,
        "draft_tensor_parallel_size": speculator.tensor_parallel_size,
        "parallel_drafting": speculator.parallel_drafting or None,
        "use_heterogeneous_vocab": speculator.heterogeneous_vocabulary or None,
        "prompt_lookup_min": speculator.prompt_lookup_min,
        "prompt_lookup_max": speculator.prompt_lookup_max,
    }
    return {key: value for key, value in options.items() if value is not None}
