"""What serving containers share: caches, hub credentials, mounts, the budget of a start. Used by the adapters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.resolved import ResolvedSpec
from speculative_operator.domain.spec import DeploymentSpec, Scheme
from speculative_operator.engines.base import EngineContainer, PvcMount
from speculative_operator.engines.images import environment_of, image_of, limits_of, user_of
from speculative_operator.engines.shared.arguments import locate_all
from speculative_operator.engines.shared.plan import Plan

TOKEN_KEY = "HF_TOKEN"  # noqa: S105  (the key within the Secret, no token)
"""Key of `spec.weights.secretName` that holds the hub's token."""
START_SECONDS = 900
"""Loading, compiling, capturing graphs; vLLM is reported to take 16 minutes. Too small a budget kills pods that were
coming up."""
START_SECONDS_PER_K = 60
DOWNLOAD_SECONDS = 1800
DOWNLOAD_RATE = 50e6
"""Bytes per second of a download that is slow but works."""
LOAD_RATE = 100e6
"""Bytes per second from a network file system that is slow but works, as long as nothing was measured: what Amazon EFS
bursts to at its smallest (100 MiB/s, docs.aws.amazon.com/efs/latest/ug/performance.html, read 2026-11)."""
LOAD_SECONDS = 300
"""Share of a start's budget that is for reading weights: 30 GB at that rate."""
_FOLDERS = {
    "HOME": names.CACHE_MOUNT,
    "HF_HOME": f"{names.CACHE_MOUNT}/huggingface",
    "XDG_CACHE_HOME": f"{names.CACHE_MOUNT}/xdg",
    "TRITON_CACHE_DIR": f"{names.CACHE_MOUNT}/triton",
    "TORCHINDUCTOR_CACHE_DIR": f"{names.CACHE_MOUNT}/torchinductor",
}


def serving_container(
    spec: ResolvedSpec,
    *,
    with_speculator: bool,
    args: tuple[str, ...],
    command: tuple[str, ...] = (),
    shared_memory: bool = True,
    **fields: Any,
) -> EngineContainer:
    """The container of `spec`. Raises ValueError for sources or accelerators that the checks refuse.

    `fields` are other fields of EngineContainer, the engine's own.
    """
    sources = locate_all(spec, with_speculator=with_speculator)
    claims: dict[str, PvcMount] = {source.pvc.claim: source.pvc for source in sources if source.pvc}
    return EngineContainer(
        image=image_of(spec),
        command=command,
        args=args,
        limits=limits_of(spec),
        user=user_of(spec),
        shared_memory=shared_memory,
        pvc_mounts=tuple(claims.values()),
        image_mounts=tuple(source.image for source in sources if source.image),
        **fields,
    )


def startup_seconds(spec: DeploymentSpec, plan: Plan, more: int = 0) -> int:
    """Startup budget in seconds: grows with each K and with the weights; at least `spec.engine.startup_seconds`."""
    budget = START_SECONDS + START_SECONDS_PER_K * len(plan.ks) + more + weights_seconds(spec)
    return max(budget, spec.engine.startup_seconds)


def weights_seconds(spec: DeploymentSpec) -> int:
    """Seconds that a startup budget adds for weights: for a download, and for bytes beyond what LOAD_RATE loads in
    LOAD_SECONDS, which every budget holds already."""
    size = spec.weights.bytes
    load = max(math.ceil(size / LOAD_RATE) - LOAD_SECONDS, 0)
    return load + (max(DOWNLOAD_SECONDS, math.ceil(size / DOWNLOAD_RATE)) if _downloads(spec) else 0)


def environment(spec: DeploymentSpec, own: Mapping[str, str]) -> tuple[Mapping[str, Any], ...]:
    """EnvVar objects: caches in writable folders, the engine's own, the accelerator's, then the user's, which win."""
    ours = {**_FOLDERS, "USER": "engine", **own, **environment_of(spec)}
    return with_users((*variables(ours), *hub(spec)), spec.engine.env)


def variables(values: Mapping[str, str]) -> list[Mapping[str, Any]]:
    """EnvVar objects with plain values."""
    return [{"name": name, "value": value} for name, value in values.items()]


def with_users(ours: Iterable[Mapping[str, Any]], users: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """The operator's variables, then the user's, which win by name; of two with one name the later one counts."""
    given = {str(variable.get("name", "")): variable for variable in users}
    return (*(entry for entry in ours if entry["name"] not in given), *given.values())


def hub(spec: DeploymentSpec, *, asked: bool = False) -> Iterator[Mapping[str, Any]]:
    """EnvVar objects for the hub: its credentials, or that the engine must not ask it.

    `asked`: the engine asks the hub wherever its sources lie.
    """
    if not asked and not _downloads(spec):
        yield {"name": "HF_HUB_OFFLINE", "value": "1"}
        return
    if spec.weights.secret_name:
        reference = {"name": spec.weights.secret_name, "key": TOKEN_KEY, "optional": True}
        yield {"name": TOKEN_KEY, "valueFrom": {"secretKeyRef": reference}}
    yield from reach(spec)
    if spec.weights.ca_config_map:
        yield from authorities()


def authorities() -> Iterator[Mapping[str, Any]]:
    """EnvVar objects with the file of `spec.weights.caConfigMap`'s authorities, under the names that clients read."""
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        yield {"name": name, "value": f"{names.AUTHORITIES_MOUNT}/{names.AUTHORITIES_KEY}"}


def reach(spec: DeploymentSpec) -> Iterator[Mapping[str, Any]]:
    """EnvVar objects with the address of the hub and the proxies to it, under the names that its clients read."""
    weights = spec.weights
    if weights.hub_endpoint:
        yield {"name": "HF_ENDPOINT", "value": weights.hub_endpoint}
    if weights.proxy:
        yield from ({"name": name, "value": weights.proxy} for name in ("HTTPS_PROXY", "HTTP_PROXY"))
    if weights.no_proxy:
        yield {"name": "NO_PROXY", "value": ",".join(weights.no_proxy)}


def _downloads(spec: DeploymentSpec) -> bool:
    """True when the engine itself loads a model from the hub."""
    sources = (spec.verifier.source, spec.speculator.source if spec.speculator else None)
    return any(source is not None and source.scheme is Scheme.HF for source in sources)
