"""What stands in for the engine's image passes everything on, and adds the test aid where it is asked for."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from realengine.image import command

CONFIG = {"method": "draft_model", "num_speculative_tokens": 2, "model": "/models/draft"}
ARGS = ["/models/target", "--speculative-config", json.dumps(CONFIG), "--max-num-seqs", "16"]


@given(st.lists(st.text()))
def test_without_rates_everything_passes_as_it_is(given_args: list[str]) -> None:
    assert command(given_args, None) == ["vllm", "serve", *given_args]
    assert command(given_args, "") == ["vllm", "serve", *given_args]


def test_rates_make_acceptance_synthetic_as_far_as_drafts_go() -> None:
    argv = command(ARGS, "[0.9, 0.7, 0.5]")
    assert argv[:4] == ["vllm", "serve", "/models/target", "--speculative-config"]
    aided = {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.9, 0.7]}
    assert json.loads(argv[4]) == CONFIG | aided
    assert argv[5:] == ARGS[3:]


def test_a_pod_without_a_drafter_has_nothing_to_accept() -> None:
    assert command(["/models/target"], "[0.9]") == ["vllm", "serve", "/models/target"]
