"""What the engine's container asks for beside accelerators: enough to serve, and never more than usual nodes have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.render.test_manifests import CONTAINER, INPUT, SPEC, engine

from speculative_operator.domain import names
from speculative_operator.domain.formats import quantity
from speculative_operator.domain.resolved import ResolvedWeights
from speculative_operator.domain.spec import AcceleratorRequest, Scheme
from speculative_operator.render import RenderInput
from speculative_operator.render.requests import requests

GIB = 1024**3


def of(
    per_replica: int = 1, size: int = 0, resource: str = "nvidia.com/gpu", scheme: Scheme = Scheme.HF, **more: Any
) -> RenderInput:
    """An object whose engine loads `size` bytes on so many accelerators."""
    source = replace(SPEC.verifier.source, scheme=scheme)
    spec = replace(
        SPEC,
        verifier=replace(SPEC.verifier, source=source),
        accelerator=AcceleratorRequest(resource, per_replica=per_replica),
        weights=ResolvedWeights(bytes=size),
        **more,
    )
    return replace(INPUT, spec=spec, container=replace(CONTAINER, shared_memory=per_replica > 1))


def asked(inp: RenderInput) -> dict[str, str]:
    found: dict[str, str] = engine(inp)["resources"].get("requests", {})
    return found


def amount(inp: RenderInput, name: str) -> float:
    return float(quantity(asked(inp)[name]) or 0)


NODES = {
    # name: accelerators, processors, GiB of memory, GiB of one accelerator
    "n1-standard-4 with a T4": (1, 4, 15, 16),
    "g2-standard-4": (1, 4, 16, 24),
    "g5.xlarge": (1, 4, 16, 24),
    "g6e.xlarge": (1, 4, 32, 48),
    "NC4as_T4_v3": (1, 4, 28, 16),
    "a2-highgpu-1g": (1, 12, 85, 40),
    "a2-megagpu-16g": (16, 96, 1360, 40),
    "p3.8xlarge": (4, 32, 244, 16),
    "g5.12xlarge": (4, 48, 192, 24),
    "p4d.24xlarge": (8, 96, 1152, 40),
    "a3-highgpu-8g": (8, 208, 1872, 80),
    "p5.48xlarge": (8, 192, 2048, 80),
    "ND96isr_MI300X_v5": (8, 96, 1850, 192),
}
"""Usual nodes, as their vendors list them."""


def left(processors: float, memory: float) -> tuple[float, float]:
    """What a node has for pods of users: less the kubelet's reserve (GKE's rule) and a share for daemons."""
    reserve = 0.25 * min(memory, 4) + 0.2 * min(max(memory - 4, 0), 4) + 0.1 * min(max(memory - 8, 0), 8)
    reserve += 0.06 * min(max(memory - 16, 0), 112) + 0.02 * max(memory - 128, 0)
    return processors - 1.0, memory - reserve - 1.5


@pytest.mark.parametrize(
    ("node", "together"),
    [(name, number) for name, node in NODES.items() for number in (1, 2, 4, 8, 16) if number <= node[0]],
)
def test_a_node_takes_as_many_pods_as_it_has_accelerators_for(node: str, together: int) -> None:
    accelerators, processors, memory, each = NODES[node]
    pod = of(together, int(0.9 * each * together * GIB))
    pods = accelerators // together
    free_processors, free_memory = left(processors, memory)
    assert pods * amount(pod, "cpu") <= free_processors
    assert pods * amount(pod, "memory") / GIB <= free_memory


def test_seven_slices_of_one_accelerator_fit_its_node() -> None:
    free_processors, free_memory = left(*NODES["a2-highgpu-1g"][1:3])
    for resource in ("nvidia.com/mig-1g.5gb", "nvidia.com/gpu.shared", "example.com/slice"):
        pod = of(1, 4 * GIB, resource)
        assert 7 * amount(pod, "cpu") <= free_processors, resource
        assert 7 * amount(pod, "memory") / GIB <= free_memory, resource


def test_the_figures_follow_the_accelerators_and_the_weights() -> None:
    assert asked(of()) == {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "2Gi"}
    assert asked(of(1, 16 * GIB)) == {"cpu": "2", "memory": "8Gi", "ephemeral-storage": "19Gi"}
    assert asked(of(8, 600 * GIB)) == {"cpu": "9", "memory": "170Gi", "ephemeral-storage": "632Gi"}


def test_weights_of_an_engine_without_accelerators_are_memory() -> None:
    assert asked(of(0, 16 * GIB))["memory"] == "20Gi"
    assert asked(of(0, 16 * GIB))["cpu"] == "1"


def test_quantities_are_written_as_the_api_server_writes_them() -> None:
    assert asked(of(1, 4 * 1020 * GIB))["memory"] == "1Ti"


@pytest.mark.parametrize("scheme", [Scheme.PVC, Scheme.OCI, Scheme.POD])
def test_only_an_engine_that_downloads_needs_the_disk(scheme: Scheme) -> None:
    assert requests(of(1, 600 * GIB, scheme=scheme))["ephemeral-storage"] == "1Gi"


@pytest.mark.parametrize(
    "pod",
    [
        {"volumes": [{"name": "cache", "persistentVolumeClaim": {"claimName": "mine"}}]},
        {"containers": [{"name": "engine", "env": [{"name": "HF_HOME", "value": "/mine"}]}]},
        {"containers": [{"name": "engine", "volumeMounts": [{"mountPath": f"{names.CACHE_MOUNT}/huggingface"}]}]},
    ],
    ids=["volume", "variable", "mount"],
)
def test_nor_does_one_that_the_user_has_download_elsewhere(pod: dict[str, Any]) -> None:
    pod["containers"] = [{**one, "volumeMounts": [{"name": "v", **mount} for mount in one.get("volumeMounts", ())]}
                         for one in pod.get("containers", ())]  # fmt: skip
    assert asked(of(1, 600 * GIB, template={"spec": pod}))["ephemeral-storage"] == "1Gi"


def user(resources: dict[str, Any]) -> RenderInput:
    return of(1, 16 * GIB, template={"spec": {"containers": [{"name": "engine", "resources": resources}]}})


def test_the_user_says_otherwise() -> None:
    assert asked(user({"requests": {"memory": "64Gi"}})) == {"cpu": "2", "memory": "64Gi", "ephemeral-storage": "19Gi"}
    assert asked(user({"requests": {"cpu": None}})) == {"memory": "8Gi", "ephemeral-storage": "19Gi"}


def test_a_limit_of_the_user_or_of_the_vendor_is_never_below_what_is_asked_for() -> None:
    """The API server refuses a request above its limit; without one it takes the limit."""
    assert asked(user({"limits": {"memory": "2Gi", "cpu": "1"}})) == {"ephemeral-storage": "19Gi"}
    gaudi = replace(INPUT, container=replace(CONTAINER, limits={"memory": "88320Mi", "hugepages-2Mi": "5250Mi"}))
    assert set(asked(gaudi)) == {"cpu", "ephemeral-storage"}


@pytest.mark.parametrize("odd", [7, "x", [1], {"a": 1}, [{"name": "engine", "resources": [], "env": {"a": 1}}]])
def test_odd_templates_are_the_mergers_to_refuse(odd: Any) -> None:
    for part in ("containers", "volumes"):
        assert requests(of(template={"spec": {part: odd}}))
    assert requests(of(template={"spec": odd}))
