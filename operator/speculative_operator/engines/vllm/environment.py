"""Environment of the serving container: caches in writable folders, hub credentials, the payload. Called by `adapter`.

Every path lies in the cache mount, so that the pod runs under any user id and with a read-only root file system.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.knobs import Actuator
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.engines.images import environment_of
from speculative_operator.engines.shared.container import hub, variables, with_users
from speculative_operator.engines.vllm.forms import Runner
from speculative_operator.engines.vllm.plan import RUNNER_VARIABLE, Plan, leaves_out
from speculative_operator.engines.vllm.weights import serves_itself

TABLE_VARIABLE = "SPECULATIVE_TABLE_FILE"
OFF_VARIABLE, OFF_STEPS = "SPECULATIVE_OFF_STEPS", 64
"""Steps at K = 0 after which pods leave the speculator out: some seconds, so that loads at a threshold do not flap."""
_PATH = "PYTHONPATH"
_CACHE = names.CACHE_MOUNT

COMPILED = ("vllm/torch_compile_cache", "triton", "torchinductor")
"""Where vLLM, Triton and torch keep what they compile, below the cache mount: VLLM_CACHE_ROOT, TRITON_CACHE_DIR and
TORCHINDUCTOR_CACHE_DIR."""

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
    if leaves_out(spec, plan):
        ours[OFF_VARIABLE] = str(OFF_STEPS)
    users = map(_with_payload, spec.engine.env) if live else spec.engine.env
    # A checkpoint that names its own verifier names it on the hub, wherever it lies itself.
    return with_users((*variables(ours), *hub(spec, asked=serves_itself(spec))), users)


def _with_payload(variable: Mapping[str, Any]) -> Mapping[str, Any]:
    if variable.get("name") != _PATH:
        return variable
    return {"name": _PATH, "value": f"{names.PAYLOAD_MOUNT}:{variable.get('value', '')}".rstrip(":")}
