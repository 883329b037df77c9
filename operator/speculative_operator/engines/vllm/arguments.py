"""What vLLM's container is given: the argument list of `vllm serve` (flags that the operator owns, then the user's),
its environment (caches in writable folders, hub credentials, the payload), and where the speculator's weights are
found. Called by `adapter` and `checks`.

The image's entry point is `vllm serve`, so the model comes first; pods of KServe run vLLM's API server instead. Nothing
here ever passes a shell. Every path of the environment lies in the cache mount, so that the pod runs under any user id
and with a read-only root file system.

Weights lie in the speculator's own checkpoint, in the verifier's, or go by the speculator's name. By its own name a
speculators-format checkpoint is served like a model: it names its verifier, and the engine loads both (vLLM 0.32
transformers_utils/config.py, `maybe_override_with_speculators`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, Method, Mode, OffPolicy, Speculator, Target, Verifier
from speculative_operator.domain.table import Actuator, KTable
from speculative_operator.engines.base import Refusal
from speculative_operator.engines.images import API_SERVER, command_of, environment_of
from speculative_operator.engines.shared.arguments import ALL_INTERFACES, flag_arguments, locate, verifier_arguments
from speculative_operator.engines.shared.container import hub, variables, with_users
from speculative_operator.engines.vllm.flags import VERIFIER_FLAGS
from speculative_operator.engines.vllm.graphs import boot, budget_flag, raised_ceiling
from speculative_operator.engines.vllm.plan import (
    RUNNER_VARIABLE,
    SHUTDOWN_TIMEOUT_SINCE,
    Plan,
    Runner,
    has_worker,
    skips,
)

OWN_NAME = (Method.EAGLE3, Method.DFLASH, Method.DSPARK)
"""Methods that speculators-format checkpoints have (vLLM 0.32 transformers_utils/configs/speculators/algos.py)."""
IN_VERIFIER = (Method.MTP, Method.DSPARK)
"""Methods that need no model beside the verifier's (vLLM 0.32 config/speculative.py, `__post_init__`)."""


def serves_itself(spec: DeploymentSpec) -> bool:
    """True for a speculator that is served by its own name: verifier and speculator name one checkpoint.

    A `dspark` that is part of its verifier is told by the absence of speculator.model.
    """
    return _names_one_checkpoint(spec) and spec.speculator is not None and spec.speculator.method in OWN_NAME


def in_verifier(spec: DeploymentSpec) -> bool:
    """True when the drafting layers are part of the verifier's checkpoint; `mtp` may name that one once more."""
    speculator = spec.speculator
    if speculator is None or speculator.method not in IN_VERIFIER:
        return False
    return speculator.source is None or (_names_one_checkpoint(spec) and not serves_itself(spec))


def has_own_weights(spec: DeploymentSpec) -> bool:
    """True when the speculator's weights are a second source, with a place of its own."""
    return not serves_itself(spec) and not in_verifier(spec)


def weights_refusals(spec: DeploymentSpec) -> Iterator[Refusal]:
    """A speculator served by its own name drafts whenever it is served, and its revision is not its verifier's."""
    if not serves_itself(spec) or spec.speculator is None:
        return
    source, speculation = spec.verifier.source, spec.speculation
    remedy = "set verifier.model to the model that it was made for"
    if spec.speculator.method in IN_VERIFIER:
        remedy += ", or remove speculator.model if it drafts with layers of its own"
        if source.revision:
            message = (
                f"verifier.revision {source.revision}: {source.uri} is also the speculator, whose revision it would "
                f"be, not that of the verifier it names; {remedy}"
            )
            yield Refusal("spec.speculator.model", Reason.SPEC_INVALID, message)
    if speculation.mode is Mode.DISABLED:
        message = (
            f"verifier.model {source.uri} is its own speculator and cannot be served with speculation.mode Disabled; "
            f"{remedy}"
        )
        yield Refusal("spec.verifier.model", Reason.SPEC_INVALID, message)
    elif speculation.off_policy is OffPolicy.REMOVE and speculation.mode is not Mode.STATIC:
        message = (
            f"speculation.offPolicy Remove needs a verifier that is served without drafts, which {source.uri} is not; "
            f"{remedy}, or set speculation.offPolicy: Skip"
        )
        yield Refusal("spec.speculation.offPolicy", Reason.SPEC_INVALID, message)


def _names_one_checkpoint(spec: DeploymentSpec) -> bool:
    source = spec.speculator.source if spec.speculator is not None else None
    return source is not None and source.uri == spec.verifier.source.uri


TABLE_VARIABLE = "SPECULATIVE_TABLE_FILE"
OFF_VARIABLE, OFF_STEPS = "SPECULATIVE_OFF_STEPS", 64
"""Steps at K = 0 after which pods skip the speculator: some seconds, so that loads at a threshold do not flap."""
_PATH = "PYTHONPATH"
_CACHE = names.CACHE_MOUNT

# In this order: another one would be another pod template.
_FOLDERS = {
    "HOME": _CACHE,
    "HF_HOME": f"{_CACHE}/huggingface",
    "XDG_CACHE_HOME": f"{_CACHE}/xdg",
    "VLLM_CACHE_ROOT": f"{_CACHE}/vllm",
    "VLLM_CONFIG_ROOT": f"{_CACHE}/vllm-config",
    "TRITON_CACHE_DIR": f"{_CACHE}/triton",
    "TORCHINDUCTOR_CACHE_DIR": f"{_CACHE}/torchinductor",
    "OUTLINES_CACHE_DIR": f"{_CACHE}/outlines",
}


def environment(spec: DeploymentSpec, plan: Plan, startup_seconds: int) -> tuple[Mapping[str, Any], ...]:
    """EnvVar objects: the operator's, then the user's, which win by name.

    A user's PYTHONPATH keeps the payload before it.
    """
    live = plan.actuator is Actuator.LIVE
    # An arbitrary user id has no passwd entry, and torch asks for the user's name.
    ours = {**_FOLDERS, "USER": "vllm", "VLLM_NO_USAGE_STATS": "1"}
    ours |= {"VLLM_ENGINE_READY_TIMEOUT_S": str(startup_seconds), **environment_of(spec)}
    if plan.required_runner is not None:
        ours[RUNNER_VARIABLE] = "0" if plan.required_runner is Runner.V1 else "1"
    if live:
        ours |= {TABLE_VARIABLE: f"{names.TABLE_MOUNT}/{names.TABLE_KEY}", _PATH: names.PAYLOAD_MOUNT}
    if skips(spec, plan):
        ours[OFF_VARIABLE] = str(OFF_STEPS)
    users = map(_with_payload, spec.engine.env) if live else spec.engine.env
    # A checkpoint that names its own verifier names it on the hub, wherever it lies itself.
    return with_users((*variables(ours), *hub(spec, asked=serves_itself(spec))), users)


def _with_payload(variable: Mapping[str, Any]) -> Mapping[str, Any]:
    if variable.get("name") != _PATH:
        return variable
    return {"name": _PATH, "value": f"{names.PAYLOAD_MOUNT}:{variable.get('value', '')}".rstrip(":")}


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
    yield from ("--served-model-name", *served_names(spec))
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


def served_names(spec: DeploymentSpec) -> tuple[str, ...]:
    """Names that the model has for clients, each once; metrics bear the first."""
    name, of_kserve = spec.verifier.served_name, spec.target is Target.LLM_INFERENCE_SERVICE
    others = (*spec.verifier.aliases, *((names.published(spec.namespace, name),) if of_kserve else ()))
    return tuple(dict.fromkeys((name, *others)))


def _verifier(verifier: Verifier) -> Iterator[str]:
    yield from verifier_arguments(verifier, VERIFIER_FLAGS)
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
    # Escaped, so that the kubelet finds no `$(NAME)` to expand.
    yield from ("--speculative-config", config.replace("$", "\\u0024"))
    if plan.actuator is Actuator.LIVE:
        yield from ("--scheduler-cls", SCHEDULER_CLASS)
    if has_worker(plan):
        yield from ("--worker-extension-cls", WORKER_EXTENSION)
    yield from flag_arguments(("--max-cudagraph-capture-size", raised_ceiling(spec, plan)))


def speculative_config(spec: DeploymentSpec, speculator: Speculator, plan: Plan, table: KTable) -> dict[str, Any]:
    """The value of `--speculative-config`. `method` is always named: vLLM would guess it from the model's name.

    A speculators-format checkpoint that is served by its own name says method and model itself and wins over these.
    """
    config = {"method": str(speculator.method), **_weights(spec, speculator), **_options(speculator)}
    config["num_speculative_tokens"] = plan.max_k if plan.actuator is Actuator.LIVE else max(1, table.max_k)
    if plan.actuator is Actuator.LIVE:
        config["num_speculative_tokens_per_batch_size"] = boot(spec, plan)
    elif plan.actuator is Actuator.TABLE:
        config["num_speculative_tokens_per_batch_size"] = table.resize(plan.max_batch).rows()
    if spec.speculation.adaptive_verification:
        config["enable_adaptive_verification"] = True
    return config | dict(speculator.options)


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
