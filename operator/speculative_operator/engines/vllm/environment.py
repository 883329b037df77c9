"""Environment of the serving container: caches in writable folders, hub credentials, the payload. Called by `adapter`.

Every path lies in the cache mount, so that the pod runs under any user id and with a read-only root file system.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.knobs import Actuator
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.engines.images import environment_of
from speculative_operator.engines.shared.container import hub
from speculative_operator.engines.vllm.capability import Runner
from speculative_operator.engines.vllm.plan import RUNNER_VARIABLE, Plan, leaves_out
from speculative_operator.engines.vllm.weights import serves_itself

TABLE_VARIABLE = "SPECULATIVE_TABLE_FILE"
OFF_VARIABLE, OFF_STEPS = "SPECULATIVE_OFF_STEPS", 64
"""Steps at K = 0 after which pods leave the drafter out: some seconds, so that what flaps at a threshold does not."""
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
    """EnvVar objects: ours, then the user's, which win by name (a user's PYTHONPATH keeps the payload before it)."""
    given = {str(variable.get("name", "")): variable for variable in spec.engine.env}
    live = plan.actuator is Actuator.LIVE
    users = [_with_payload(variable) if live else variable for variable in given.values()]
    return (*(entry for entry in _ours(spec, plan, startup_seconds) if entry["name"] not in given), *users)


def _ours(spec: DeploymentSpec, plan: Plan, startup_seconds: int) -> Iterator[Mapping[str, Any]]:
    for name, folder in _FOLDERS.items():
        yield _variable(name, folder)
    # An arbitrary user id has no passwd entry, and torch asks for the user's name.
    yield _variable("USER", "vllm")
    yield _variable("VLLM_NO_USAGE_STATS", "1")
    yield _variable("VLLM_ENGINE_READY_TIMEOUT_S", str(startup_seconds))
    for name, value in environment_of(spec).items():
        yield _variable(name, value)
    if plan.asked_runner is not None:
        yield _variable(RUNNER_VARIABLE, "0" if plan.asked_runner is Runner.V1 else "1")
    if plan.actuator is Actuator.LIVE:
        yield _variable(TABLE_VARIABLE, f"{names.TABLE_MOUNT}/{names.TABLE_KEY}")
        yield _variable(_PATH, names.PAYLOAD_MOUNT)
    if leaves_out(spec, plan):
        yield _variable(OFF_VARIABLE, str(OFF_STEPS))
    # A checkpoint that names its own verifier names it on the hub, wherever it lies itself.
    yield from hub(spec, asked=serves_itself(spec))


def _with_payload(variable: Mapping[str, Any]) -> Mapping[str, Any]:
    if variable.get("name") != _PATH:
        return variable
    return _variable(_PATH, f"{names.PAYLOAD_MOUNT}:{variable.get('value', '')}".rstrip(":"))


def _variable(name: str, value: str) -> Mapping[str, Any]:
    return {"name": name, "value": value}
