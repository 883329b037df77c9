"""Room for drafts in a step: what is asked for, and what is refused because the engine would not start with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.engines.building import SMALL_QWEN, spec, valued

from speculative_operator.domain.resolved import resolve
from speculative_operator.domain.spec import AcceleratorRequest, DeploymentSpec, LoraLimits, Method, Speculator
from speculative_operator.domain.table import KTable
from speculative_operator.engines.registry import engine_for
from speculative_operator.engines.vllm.graphs import budget, budget_flag, drafting_slots, token_need
from speculative_operator.engines.vllm.plan import plan

FLAG = "--max-num-batched-tokens"


def on(product: str, resource: str = "nvidia.com/gpu", count: int = 1, **fields: Any) -> DeploymentSpec:
    return replace(spec(**fields), accelerator=AcceleratorRequest(resource, product, count))


@pytest.mark.parametrize(
    ("speculator", "slots"),
    [
        (Speculator(Method.EAGLE3), 0),
        (Speculator(Method.MTP), 0),
        (Speculator(Method.NGRAM), 0),
        (Speculator(Method.DRAFT_MODEL), 1),
        (Speculator(Method.EAGLE3, parallel_drafting=True), 4),
        (Speculator(Method.DSPARK), 4),
        (Speculator(Method.DFLASH), 5),
        (Speculator(Method.DRAFT_MODEL, parallel_drafting=True), 5),
    ],
)
def test_slots_by_method(speculator: Speculator, slots: int) -> None:
    """vLLM 0.32 config/speculative.py, `max_num_new_slots_for_drafting`, at K = 5."""
    assert drafting_slots(speculator, 5) == slots


@pytest.mark.parametrize(
    ("subject", "value"),
    [
        (on("H100-SXM", method=Method.DRAFT_MODEL, max_speculative_tokens=8), None),
        (on("H100-SXM", method=Method.DFLASH, max_speculative_tokens=31), "16384"),
        (on("A100-80GB", method=Method.DRAFT_MODEL, max_speculative_tokens=8), "3072"),
        (on("L4", method=Method.DRAFT_MODEL, max_speculative_tokens=8), "3072"),
        (on("L4"), None),
        (on("", method=Method.DRAFT_MODEL, max_speculative_tokens=8), "8192"),
        (on("", method=Method.DFLASH, max_speculative_tokens=31), "16384"),
        (on("", method=None), None),
        (on("B200-SXM", method=Method.DFLASH, max_speculative_tokens=15), None),
        (on("TPU-v6e", "google.com/tpu", version="0.27.0", verifier={"max_num_seqs": 64}), "1024"),
        (on("", verifier={"max_num_batched_tokens": 4096}), "4096"),
        (on("", method=None, verifier={"max_num_batched_tokens": 4096}), "4096"),
    ],
)
def test_what_is_asked_for(subject: DeploymentSpec, value: str | None) -> None:
    engine = engine_for(subject)
    assert engine.refusals(subject) == ()
    args = engine.container(resolve(subject), KTable.constant(1, 256)).args
    assert (valued(args, FLAG) if FLAG in args else None) == value


@given(
    st.sampled_from(Method), st.integers(1, 2000),
    st.integers(1, 31), st.sampled_from(["", "L4", "A100-80GB", "H100-SXM", "B200-SXM"]),
)  # fmt: skip
def test_a_full_batch_of_drafts_always_fits(method: Method, seqs: int, top: int, product: str) -> None:
    subject = on(product, method=method, verifier={"max_num_seqs": seqs}, max_speculative_tokens=top)
    planned = plan(subject)
    assert budget(subject, planned) >= token_need(subject, planned) >= seqs * (planned.max_k + 1)
    asked = budget_flag(subject, planned)
    assert asked is None or asked % 1024 == 0


@pytest.mark.parametrize(
    ("subject", "field", "parts"),
    [
        (
            on("H100-SXM", verifier={"max_num_batched_tokens": 200}),
            "spec.verifier.maxNumBatchedTokens",
            ("200", "256 or more"),
        ),
        (
            on("H100-SXM", verifier={"max_num_batched_tokens": 1024, "lora": LoraLimits()}),
            "spec.verifier.maxNumBatchedTokens",
            ("256 requests times 7 drafts", "2048 or more"),
        ),
        (
            on("H100-SXM", method=Method.DFLASH, version="0.31.0", verifier={"max_num_batched_tokens": 1024}),
            "spec.verifier.maxNumBatchedTokens",
            ("dflash", "slots"),
        ),
        (
            on("H100-SXM", verifier={"lora": LoraLimits(1, 24)}),
            "spec.verifier.lora.maxRank",
            ("24", "32"),
        ),
    ],
)
def test_what_the_engine_would_not_start_with(subject: DeploymentSpec, field: str, parts: tuple[str, ...]) -> None:
    (refusal,) = engine_for(subject).refusals(subject)
    assert refusal.field == field
    for part in parts:
        assert part in refusal.message


def test_from_0_32_on_slots_count_once() -> None:
    fields = {"max_num_batched_tokens": 1024}
    subject = on("H100-SXM", method=Method.DFLASH, verifier=fields)
    assert engine_for(subject).refusals(subject) == ()
    one_pass = replace(subject, speculator=Speculator(Method.DRAFT_MODEL, SMALL_QWEN, parallel_drafting=True))
    assert engine_for(one_pass).refusals(one_pass) == ()
