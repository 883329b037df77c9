"""The engine's exposition as numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from realengine.counters import Counters, payload, read

TEXT = """
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="tiny"} 10.0
# TYPE vllm:spec_decode_num_draft_tokens_total counter
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="tiny"} 40.0
# TYPE vllm:spec_decode_num_accepted_tokens_total counter
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="tiny"} 12.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="tiny"} 22.0
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 3.0
"""


def test_every_counter_is_found() -> None:
    assert read(TEXT) == Counters(drafts=10, draft_tokens=40, accepted=12, generated=22, running=3, waiting=0)


def test_an_engine_without_drafts_counts_none() -> None:
    assert read("# TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total 7\n") == Counters(
        generated=7
    )


def test_series_of_several_engines_add_up() -> None:
    second = TEXT.replace('engine="0"', 'engine="1"').splitlines()
    both = TEXT + "\n".join(line for line in second if not line.startswith("#")) + "\n"
    assert read(both).draft_tokens == 80


def test_k_is_the_length_of_a_draft_and_zero_without() -> None:
    assert read(TEXT).k == 4
    assert Counters(generated=5).k == 0


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 64))
def test_what_lies_between_two_looks(before: int, drafts: int, k: int) -> None:
    first = Counters(drafts=before, draft_tokens=3 * before)
    second = Counters(drafts=before + drafts, draft_tokens=3 * before + k * drafts, running=5)
    step = second.since(first)
    assert step.k == (k if drafts else 0)
    assert step.running == 5


def test_gauges_of_the_payload() -> None:
    text = (
        "# TYPE speculative_payload_table_version gauge\nspeculative_payload_table_version 7\n"
        "# TYPE speculative_payload_steps_total counter\nspeculative_payload_steps_total 9\n"
    )
    assert payload(text) == {"table_version": 7.0}
