"""Default images by engine, release and accelerators; what is not documented is refused with what to set."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.engines.building import spec

from speculative_operator.domain.platform import Vendor
from speculative_operator.domain.spec import AcceleratorRequest, DeploymentSpec, EngineSettings, EngineType
from speculative_operator.engines import images

RESOURCES = {
    Vendor.NVIDIA: "nvidia.com/gpu",
    Vendor.AMD: "amd.com/gpu",
    Vendor.GAUDI: "habana.ai/gaudi",
    Vendor.INTEL_GPU: "gpu.intel.com/xe",
    Vendor.NEURON: "aws.amazon.com/neuroncore",
    Vendor.TPU: "google.com/tpu",
    Vendor.CPU: "nvidia.com/gpu",
    Vendor.OTHER: "example.com/share",
}


def on(vendor: Vendor, version: str = "0.32.0", engine: EngineType = EngineType.VLLM, count: int = 1) -> DeploymentSpec:
    asked = AcceleratorRequest(RESOURCES[vendor], per_replica=0 if vendor is Vendor.CPU else count)
    made = replace(spec(None), accelerator=asked, engine=EngineSettings(engine, version))
    assert made.accelerator.vendor is vendor
    return made


@pytest.mark.parametrize(
    ("vendor", "version", "reference"),
    [
        (Vendor.NVIDIA, "0.32.0", "vllm/vllm-openai:v0.32.0"),
        (Vendor.NVIDIA, "0.11.0+rhai5", "vllm/vllm-openai:v0.11.0"),
        (Vendor.NVIDIA, "0.33.0rc1", "vllm/vllm-openai:v0.33.0rc1"),
        (Vendor.OTHER, "0.32.0", "vllm/vllm-openai:v0.32.0"),
        (Vendor.AMD, "0.14.0", "vllm/vllm-openai-rocm:v0.14.0"),
        (Vendor.CPU, "0.16.1", "public.ecr.aws/q9t5s3a7/vllm-cpu-release-repo:v0.16.1"),
        (Vendor.CPU, "0.17.0", "vllm/vllm-openai-cpu:v0.17.0-x86_64"),
    ],
)
def test_stock_images_of_vllm(vendor: Vendor, version: str, reference: str) -> None:
    assert images.image_of(on(vendor, version)) == reference
    assert images.refusal(on(vendor, version)) is None


@pytest.mark.parametrize(
    ("subject", "told"),
    [
        (on(Vendor.GAUDI), "vllm-installer"),
        (on(Vendor.NEURON, "0.32.0"), "neuronx"),
        (on(Vendor.AMD, "0.13.0"), "built for it"),
        (on(Vendor.INTEL_GPU, "0.25.1"), "built for it"),
        (on(Vendor.AMD, "0.5.23", EngineType.SGLANG), "rocm"),
        (on(Vendor.TPU, "1.2.0", EngineType.TENSORRT_LLM), "built for it"),
    ],
)
def test_what_nobody_publishes_is_refused(subject: DeploymentSpec, told: str) -> None:
    refusal = images.refusal(subject)
    assert refusal is not None
    assert refusal.field == "spec.engine.image"
    assert told in refusal.message
    assert str(subject.accelerator.vendor) in refusal.message
    with pytest.raises(ValueError, match="no image is documented"):
        images.image_of(subject)
    given_one = replace(subject, engine=replace(subject.engine, image="example.com/own:1"))
    assert images.refusal(given_one) is None
    assert images.image_of(given_one) == "example.com/own:1"
    assert images.user_of(given_one) is None


@given(
    st.sampled_from(list(EngineType)), st.sampled_from(list(Vendor)),
    st.tuples(st.integers(0, 4), st.integers(0, 40), st.integers(0, 3)),
)  # fmt: skip
def test_at_most_one_row_speaks_of_a_release(engine: EngineType, vendor: Vendor, version: tuple[int, int, int]) -> None:
    subject = on(vendor, ".".join(map(str, version)), engine)
    served = (engine, Vendor.NVIDIA if vendor is Vendor.OTHER else vendor)
    rows = [one for one in images.IMAGES if (one.engine, one.vendor) == served and one.holds(version)]
    assert len(rows) <= 1
    assert (images.refusal(subject) is None) == bool(rows)


def test_needs_beside_the_accelerators() -> None:
    gaudi = on(Vendor.GAUDI, count=2)
    assert images.limits_of(gaudi) == {"hugepages-2Mi": "10500Mi", "memory": "176640Mi"}
    assert images.environment_of(gaudi)["PT_HPU_ENABLE_LAZY_COLLECTIVES"] == "true"
    assert "PT_HPU_ENABLE_LAZY_COLLECTIVES" not in images.environment_of(on(Vendor.GAUDI))
    assert images.limits_of(on(Vendor.NVIDIA)) == {}
    assert images.command_of(on(Vendor.TPU)) == ("vllm", "serve"), "its image has no entry point"
    assert images.command_of(on(Vendor.NVIDIA)) == ()
    assert images.user_of(on(Vendor.NVIDIA)) == 2000


def test_unreadable_releases_are_left_to_others() -> None:
    assert images.refusal(on(Vendor.GAUDI, "nightly")) is None


@pytest.mark.parametrize(
    ("reference", "mirrored"),
    [
        ("vllm/vllm-openai:v0.32.0", "mirror.example/hub/vllm/vllm-openai:v0.32.0"),
        ("nvcr.io/nvidia/tensorrt-llm/release:1.2.0", "mirror.example/hub/nvidia/tensorrt-llm/release:1.2.0"),
        ("localhost:5000/a@sha256:00", "mirror.example/hub/a@sha256:00"),
        ("busybox:1.37", "mirror.example/hub/busybox:1.37"),
    ],
)
def test_a_mirror_takes_the_place_of_the_registry_alone(reference: str, mirrored: str) -> None:
    assert images.mirror_of(reference, "mirror.example/hub/") == mirrored
    assert images.mirror_of(reference, "") == reference
