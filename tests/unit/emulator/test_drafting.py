"""Runner and reaction to a falling K, method by method, as facts of vLLM 0.32 have them."""

from __future__ import annotations

from typing import Any

import pytest

from speculative_lab.emulator.drafting import WORKER_EXTENSION, Drafting, Reaction, Runner, drafting
from speculative_lab.emulator.errors import ConfigError, LateError
from speculative_lab.emulator.speculative import checked


def of(method: str, wish: str = "", worker: str = "", **more: Any) -> Drafting:
    config = checked({"method": method, "model": "org/d", "num_speculative_tokens": 3, **more}, 1)
    return drafting(config, {"VLLM_USE_V2_MODEL_RUNNER": wish}, worker)


@pytest.mark.parametrize(
    ("method", "wish", "runner", "reaction"),
    [
        ("eagle", "", Runner.V2, Reaction.FOLLOWS),
        ("eagle3", "0", Runner.V1, Reaction.FOLLOWS),
        ("mtp", "", Runner.V2, Reaction.FOLLOWS),
        ("draft_model", "", Runner.V2, Reaction.VERIFIES_LESS),
        ("draft_model", "0", Runner.V1, Reaction.FOLLOWS),
        ("dflash", "", Runner.V2, Reaction.VERIFIES_LESS),
        ("dflash", "0", Runner.V1, Reaction.FOLLOWS),
        ("dspark", "", Runner.V2, Reaction.VERIFIES_LESS),
        ("ngram", "", Runner.V2, Reaction.VERIFIES_LESS),
        ("ngram", "0", Runner.V1, Reaction.FOLLOWS),
        ("ngram_gpu", "0", Runner.V1, Reaction.DIES),
        ("suffix", "", Runner.V1, Reaction.DIES),
        ("medusa", "", Runner.V1, Reaction.DIES),
    ],
)
def test_matrix(method: str, wish: str, runner: Runner, reaction: Reaction) -> None:
    found = of(method, wish)
    assert (found.runner, found.reaction) == (runner, reaction)


def test_passes_at_zero() -> None:
    assert of("eagle3").passes_at_zero == 1
    assert of("draft_model", "0").passes_at_zero == 1
    assert of("draft_model").passes_at_zero == 3, "the V2 runner drafts in full whatever K is"
    assert of("ngram").passes_at_zero == 0
    assert of("dflash").passes_at_zero == 1


@pytest.mark.parametrize("method", ["draft_model", "ngram", "eagle", "eagle3", "mtp", "dflash", "dspark"])
def test_the_plug_ins_worker_skips_the_drafter_on_v2(method: str) -> None:
    found = of(method, worker=WORKER_EXTENSION)
    assert found.skipped
    assert (found.reaction is Reaction.FOLLOWS) is (method not in ("dflash", "dspark"))
    assert found.passes_at_zero == (0 if method == "ngram" else 1)
    assert not of(method).skipped
    assert not of(method, worker="my.Worker").skipped


@pytest.mark.parametrize(
    ("method", "wish"), [("draft_model", "0"), ("eagle3", "0"), ("ngram_gpu", ""), ("suffix", ""), ("medusa", "")]
)
def test_elsewhere_the_worker_changes_nothing(method: str, wish: str) -> None:
    assert of(method, wish, WORKER_EXTENSION) == of(method, wish)


def test_look_ups_draft_nothing_without_a_match_on_v1_only() -> None:
    assert not of("ngram", "0").always_drafts
    assert not of("suffix").always_drafts
    assert of("ngram").always_drafts


@pytest.mark.parametrize(
    ("method", "wish", "more"),
    [("suffix", "1", {}), ("dspark", "0", {}), ("draft_model", "1", {"use_heterogeneous_vocab": True})],
)
def test_runner_that_cannot_serve(method: str, wish: str, more: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="VLLM_USE_V2_MODEL_RUNNER"):
        of(method, wish, **more)


def test_mlp_speculator_fails_late() -> None:
    with pytest.raises(LateError, match="no model runner implements it"):
        of("mlp_speculator")
