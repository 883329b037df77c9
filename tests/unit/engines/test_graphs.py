"""Sizes of CUDA graphs as vLLM captures them, and when the operator raises their ceiling."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.engines.building import spec, valued

from speculative_lab.emulator.arguments import parse
from speculative_lab.emulator.config import engine_config
from speculative_lab.emulator.settings import Settings
from speculative_operator.domain.resolved import resolve
from speculative_operator.domain.spec import DeploymentSpec, Method, Mode, OffPolicy
from speculative_operator.domain.table import KTable
from speculative_operator.engines.registry import engine_for
from speculative_operator.engines.vllm.graphs import RAISED

FLAG = "--max-cudagraph-capture-size"


def sizes(subject: DeploymentSpec) -> tuple[int, ...]:
    return engine_for(subject).knobs(subject).capture_sizes


def arguments(subject: DeploymentSpec) -> tuple[str, ...]:
    table = KTable.constant(subject.speculation.max_speculative_tokens, 256)
    return engine_for(subject).container(resolve(subject), table).args


def on(product: str, resource: str = "nvidia.com/gpu", **fields: Any) -> DeploymentSpec:
    subject = spec(**fields)
    return replace(subject, accelerator=replace(subject.accelerator, product=product, resource=resource))


@pytest.mark.parametrize(
    ("subject", "ceiling"),
    [
        (on("L4"), 512),
        (on("H100-SXM"), RAISED),
        (on("H100-SXM", verifier={"max_num_seqs": 8}), 8 * 8 * 2),
        (on("H100-SXM", args=("--enforce-eager",)), None),
        (on("H100-SXM", args=("-O0",)), None),
        (on("H100-SXM", args=("-cc", '{"cudagraph_mode": "NONE"}')), None),
        (on("H100-SXM", args=(f"{FLAG}=2048",)), 2048),
        (on("H100-SXM", args=(FLAG, "256", "--foo")), 256),
        (on("H100-SXM", args=('--compilation-config={"max_cudagraph_capture_size": 128}',)), 128),
        (on("H100-SXM", args=("--cudagraph-capture-sizes", "1", "2", "640")), 640),
        (on("H100-SXM", args=(f"{FLAG}=300",)), 288),
        (on("H100-SXM", args=(f"{FLAG}=0",)), None),
        (on("NVIDIA-GB200"), 1024),
        (on("MI300X", "amd.com/gpu"), 512),
        (on("Gaudi3", "habana.ai/gaudi"), None),
    ],
)
def test_ceiling(subject: DeploymentSpec, ceiling: int | None) -> None:
    assert engine_for(subject).knobs(subject).capture_ceiling_tokens == ceiling


def test_sizes_by_value() -> None:
    """1, 2, 4, every 8th below 256, every 16th from there; the boot schedule adds no size between."""
    found = sizes(on("L4", off_policy=OffPolicy.NEVER))
    assert found[:6] == (1, 2, 4, 8, 16, 24)
    assert found[-4:] == (464, 480, 496, 512)
    assert set(range(8, 257, 8)) | set(range(272, 513, 16)) <= set(found)
    assert 504 not in found, "126 requests of 4 tokens are not on the grid of requests"


def test_decoding_steps_of_an_odd_k_have_sizes_of_their_own() -> None:
    """Up to the widest batch with that K: 6 tokens for each of 1, 2, 4, 8, 16, ... requests."""
    found = sizes(on("L4", max_speculative_tokens=5, num_speculative_tokens=5))
    assert {6, 12, 24, 48, 96, 144, 192, 240, 288, 336, 384, 432, 480} <= set(found)
    assert {6, 12} & set(sizes(on("L4", version="0.30.0", max_speculative_tokens=5))) == set(), "not before 0.31"


def test_one_k_on_v1_has_whole_multiples() -> None:
    subject = on("L4", method=Method.MEDUSA, mode=Mode.STATIC, num_speculative_tokens=4)
    assert all(size % 5 == 0 for size in sizes(subject))
    assert sizes(subject)[0] == 5
    assert sizes(subject)[-1] == 500, "496 rounded up; 512 would be 515"


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("--enforce-eager",), ()),
        ((FLAG, "20"), (1, 2, 4, 8, 16)),
        ((f"{FLAG}=3",), (1, 2)),
        (("--cudagraph-capture-sizes", "96", "4", "8", "4", "--foo", "7"), (4, 8, 96)),
        (("--cudagraph-capture-sizes=1,2,12",), (1, 2, 12)),
        (("--cudagraph-capture-sizes=[0, 16]",), (16,)),
        (("--cudagraph-capture-sizes", "many"), ()),
        (("-cc", '{"cudagraph_capture_sizes": [2, 8]}'), (2, 8)),
        (("-cc", "not json"), None),
    ],
)
def test_sizes_as_the_user_has_them(args: tuple[str, ...], expected: tuple[int, ...] | None) -> None:
    subject = on("H100-SXM", args=args)
    assert FLAG not in set(arguments(subject)) - set(args), "the user's word stands alone"
    if expected is not None:
        assert sizes(subject) == expected


@pytest.mark.parametrize(
    ("subject", "value"),
    [
        (on("H100-SXM"), "1024"),
        (on("H100-SXM", verifier={"max_num_seqs": 100}), "800"),
        (on("H100-SXM", verifier={"max_num_seqs": 64}), None),
        (on("H100-SXM", version="0.31.0"), None),
        (on("H100-SXM", method=None), None),
        (on("H100-SXM", mode=Mode.DISABLED), None),
        (on("A100-80GB"), "1024"),
        (on("A100-40GB"), None),
        (on("L4"), None),
        (on(""), None),
        (on("H100-SXM", "nvidia.com/mig-3g.40gb"), None),
        (on("B200-SXM"), None),
        (on("MI300X", "amd.com/gpu"), None),
    ],
)
def test_when_the_ceiling_is_raised(subject: DeploymentSpec, value: str | None) -> None:
    args = arguments(subject)
    assert (valued(args, FLAG) if FLAG in args else None) == value


@given(
    st.sampled_from(Method), st.integers(1, 16),
    st.integers(1, 600), st.sampled_from(["L4", "H100-SXM", "B200-SXM"]),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_the_emulator_captures_the_same(method: Method, top: int, seqs: int, product: str) -> None:
    """Its rules were written apart from these, from the same source. Where a rollout carries K, for the largest."""
    subject = on(product, method=method, verifier={"max_num_seqs": seqs}, max_speculative_tokens=top)
    engine = engine_for(subject)
    knobs = engine.knobs(subject)
    made = engine.container(resolve(subject), KTable.constant(max(knobs.ks), seqs))
    environment = {str(entry["name"]): str(entry.get("value", "")) for entry in made.env}
    words = Settings(accelerator=product)
    emulated = engine_config(parse(["serve", *made.args]), environment, words)
    if emulated.max_num_batched_tokens >= 2048:
        assert emulated.capture_sizes() == knobs.capture_sizes
