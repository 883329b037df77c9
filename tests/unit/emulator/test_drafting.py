"""What holds of drafters beside the rows of the matrix, to which engines/test_matrix_vllm.py holds the emulator."""

from __future__ import annotations

from typing import Any

import pytest

from speculative_lab.emulator.drafting import WORKER_EXTENSION, Drafting, drafting
from speculative_lab.emulator.speculative import checked


def of(method: str, wish: str = "", worker: str = "", **more: Any) -> Drafting:
    config = checked({"method": method, "model": "org/d", "num_speculative_tokens": 3, **more}, 1)
    return drafting(config, {"VLLM_USE_V2_MODEL_RUNNER": wish}, worker)


@pytest.mark.parametrize(
    ("method", "wish"), [("draft_model", "0"), ("eagle3", "0"), ("ngram_gpu", ""), ("suffix", ""), ("medusa", "")]
)
def test_elsewhere_the_worker_changes_nothing(method: str, wish: str) -> None:
    assert of(method, wish, WORKER_EXTENSION) == of(method, wish)


def test_look_ups_draft_nothing_without_a_match_on_v1_only() -> None:
    assert not of("ngram", "0").always_drafts
    assert not of("suffix").always_drafts
    assert of("ngram").always_drafts
