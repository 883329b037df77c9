"""Containers and volume by which pods keep compiled code for later pods: one container before the engine, one beside
it. Called by `values`.

Neither may stand in the engine's way: the first always ends well, the second never ends, and both work on a copy in the
pod's own emptyDir, so that the engine never touches the shared volume.
"""

from __future__ import annotations

from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.spec import Cache
from speculative_operator.render import metadata
from speculative_operator.render.environment import plain
from speculative_operator.render.inputs import RenderInput
from speculative_operator.render.metadata import digest

VOLUME = "compiled"
USER = 65532
"""User id of the operator's image."""
REQUESTS = {"cpu": "10m", "memory": "64Mi"}
_MODULE = "speculative_operator.compiled"
_OWN = frozenset({"VLLM_ENGINE_READY_TIMEOUT_S", "HF_TOKEN"})
"""Variables of the engine that the key leaves out: what may change between two starts that compile the same."""


def cache_of(inp: RenderInput) -> Cache | None:
    """The cache of compiled code; None where the spec has none, or engine or operator cannot keep code in one."""
    useful = inp.container.compiled and inp.capabilities.job_image
    return inp.spec.engine.compile_cache if useful else None


def key(inp: RenderInput) -> str:
    """Sixteen hexadecimal digits that change with whatever may change what is compiled: pair, engine, image, arguments,
    files, variables, accelerators, and what the user lays over the template. The kind of node is added in the pod."""
    container, wanted = inp.container, inp.spec.accelerator
    parts = [
        metadata.pair_hash(inp.spec),
        [inp.spec.engine.type.value, inp.spec.engine.version, container.image],
        [list(container.command), list(container.args), dict(container.files)],
        [dict(one) for one in container.env if one.get("name") not in _OWN],
        [wanted.resource, wanted.per_replica, dict(container.limits)],
        plain(inp.spec.template),
    ]
    return digest(parts, 16)


def containers(inp: RenderInput, user: int | None) -> list[dict[str, Any]]:
    """Init containers for compiled code, in order, as `templates/deployment.yaml.j2` places them."""
    if cache_of(inp) is None:
        return []
    common = ["--volume", names.COMPILED_MOUNT, "--key", key(inp), "--cache", names.CACHE_MOUNT]
    for folder in inp.container.compiled:
        common += ["--folder", folder]
    health = f"{inp.spec.inference_service.scheme}://127.0.0.1:{inp.spec.port}/health"
    # Half the budget of a start: an engine that does not come up with what it was given still has the other half.
    patience = str(inp.container.startup_seconds // 2)
    keeping = [*common, "--health", health, "--patience", patience]
    return [
        _container(inp, names.COMPILED_SEED, ["seed", *common], user),
        _container(inp, names.COMPILED_KEEP, ["keep", *keeping], user) | {"stays": True},
    ]


def volumes(inp: RenderInput) -> list[dict[str, Any]]:
    """The volume of the compile cache as a pod mounts it; empty where the object has none."""
    cache = cache_of(inp)
    return [{"name": VOLUME, "persistentVolumeClaim": {"claimName": cache.claim}}] if cache is not None else []


def fs_group(inp: RenderInput) -> int | None:
    """Group that gets a fresh volume; None without a volume, where the platform assigns groups, and where the claim
    exists already: files of others keep their group."""
    cache = cache_of(inp)
    if cache is None or not cache.size or inp.capabilities.assigns_uids:
        return None
    return inp.container.user if inp.container.user is not None and not inp.spec.engine.image else USER


def _container(inp: RenderInput, name: str, args: list[str], user: int | None) -> dict[str, Any]:
    # An image of the user's own may say its user by itself; then this one runs as the operator's image does.
    security = {"runAsUser": USER} if user is None and not inp.capabilities.assigns_uids else {}
    return {
        "name": name,
        "image": inp.capabilities.job_image,
        "command": "python",
        "args": ["-m", _MODULE, *args],
        "env": [],
        "stays": False,
        "requests": REQUESTS,
        "limits": {},
        "security": security,
        "mounts": [
            {"name": "cache", "mountPath": names.CACHE_MOUNT},
            {"name": VOLUME, "mountPath": names.COMPILED_MOUNT},
        ],
    }
