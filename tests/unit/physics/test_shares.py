"""What a pod gets of an accelerator, by all the names that say so: memory and rates, requests, and the words for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.engines.building import spec
from tests.unit.pairing.test_memory import HEAD, VERIFIER

from speculative_operator.domain.spec import AcceleratorRequest, DeploymentSpec
from speculative_operator.engines.pairs import pair_facts, unknown_accelerator
from speculative_operator.pairing.memory import fit
from speculative_operator.physics.catalog import accelerator_of, find_accelerator

GPU = "nvidia.com/gpu"


def on(product: str, resource: str = GPU, each: int = 1, **pod: Any) -> DeploymentSpec:
    request = AcceleratorRequest(resource=resource, product=product, per_replica=each)
    return replace(spec(), accelerator=request, template={"spec": pod})


GKE = "cloud.google.com/gke-gpu-"
SLICES: list[tuple[DeploymentSpec, str, float, float]] = [
    (on("A100-80GB", "nvidia.com/mig-1g.10gb"), "A100-80GB", 10.0, 1 / 7),
    (on("H100-SXM", "nvidia.com/mig-3g.40gb"), "H100-SXM", 40.0, 3 / 7),
    (on("NVIDIA-A100-SXM4-80GB-MIG-2g.20gb"), "A100-80GB", 20.0, 2 / 7),
    (on("A30", "nvidia.com/mig-2g.12gb"), "A30", 12.0, 2 / 4),
    (on("A100-40GB", "nvidia.com/mig-1g.10gb.me"), "A100-40GB", 10.0, 1 / 7),
    (on("A100-40GB", "nvidia.com/mig-1c.3g.20gb"), "A100-40GB", 20.0, 3 / 7),
    (on("A100-40GB", nodeSelector={f"{GKE}partition-size": "1g.5gb"}), "A100-40GB", 5.0, 1 / 7),
    (on("H200-SXM", "nvidia.com/mig-7g.141gb"), "H200-SXM", 141.0, 1.0),
]


@pytest.mark.parametrize(("subject", "product", "gigabytes", "parts"), SLICES, ids=lambda value: str(value)[-24:])
def test_a_slice_has_the_memory_of_its_name_and_the_rates_that_come_with_it(
    subject: DeploymentSpec, product: str, gigabytes: float, parts: float
) -> None:
    found, whole = accelerator_of(subject), find_accelerator(product)
    assert found is not None
    assert whole is not None
    assert found.memory_bytes == pytest.approx(gigabytes * 1e9)
    assert found.bf16_flops == pytest.approx(whole.bf16_flops * parts)
    assert found.memory_bandwidth / whole.memory_bandwidth == pytest.approx(found.memory_bytes / whole.memory_bytes)
    assert pair_facts(subject).accelerator == found
    assert unknown_accelerator(subject) == ()
    assert find_accelerator(found.name) is None, "no published figure of the whole one stands for it"


@pytest.mark.parametrize(
    "subject",
    [
        on("Tesla-T4-SHARED"),
        on("L4", "nvidia.com/gpu.shared"),
        on("A100-80GB", "nvidia.com/mig-1g.10gb.shared"),
        on("L4", nodeSelector={f"{GKE}sharing-strategy": "time-sharing"}),
        on("MI300X", "amd.com/cpx_nps4"),
        on("H100-SXM", "deviceclass.resource.kubernetes.io/mig.nvidia.com"),
        on("H100-SXM", each=0, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "one"}]),
        on("A100-40GB", "nvidia.com/mig-3g.80gb"),
        on("A100-40GB", "nvidia.com/mig-9g.40gb"),
        on("", "nvidia.com/mig-1g.10gb"),
    ],
    ids=lambda one: f"{one.accelerator.product} {one.accelerator.resource}",
)
def test_a_share_of_no_known_size_is_not_taken_for_the_whole(subject: DeploymentSpec) -> None:
    assert accelerator_of(subject) is None
    facts = pair_facts(subject)
    assert (facts.accelerator, facts.kv_capacity_tokens) == (None, None)
    assert len(unknown_accelerator(subject)) == bool(subject.accelerator.product), "and a warning says so"


@pytest.mark.parametrize(
    "subject",
    [
        on("H100-SXM"),
        on("H100-SXM", "deviceclass.resource.kubernetes.io/gpu.nvidia.com"),
        on("H100-SXM", resourceClaims=[{"name": "network"}]),
        on("MI300X", "amd.com/gpu"),
        on("MI300X", "amd.com/spx_nps1"),
    ],
    ids=lambda one: f"{one.accelerator.product} {one.accelerator.resource}",
)
def test_a_whole_accelerator_stays_whole(subject: DeploymentSpec) -> None:
    assert accelerator_of(subject) == find_accelerator(subject.accelerator.product)
    assert accelerator_of(subject) is not None


def test_memory_is_judged_by_the_slice_and_the_remedy_is_not_another_slice_beside_it() -> None:
    """Engines do not spread one model over slices."""
    for subject, fits, said in (
        (on("A100-80GB", "nvidia.com/mig-1g.10gb"), False, "accelerator.resource: a larger slice"),
        (on("A100-80GB", "nvidia.com/mig-3g.40gb"), None, "on A100-80GB MIG 3g.40gb 90% of 37.3 GiB"),
        (on("A100-80GB", "nvidia.com/gpu.shared"), None, "pods get a time slice, whose memory no name tells"),
    ):
        found = fit(VERIFIER, HEAD, subject, accelerator_of(subject))
        assert found.fits is fits, found.message
        assert said in found.message
        assert "tensorParallelSize" not in found.message
