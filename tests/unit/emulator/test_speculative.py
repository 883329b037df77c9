"""`--speculative-config`: what is taken, what is refused and in which words."""

from __future__ import annotations

from typing import Any

import pytest

from speculative_lab.emulator.arguments import parse
from speculative_lab.emulator.errors import ConfigError
from speculative_lab.emulator.speculative import checked, raw_config

BASE: dict[str, Any] = {"method": "eagle3", "model": "org/head", "num_speculative_tokens": 3}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"num_speculative_tokens": 0}, "greater than 0"),
        ({"num_speculative_tokens": "3"}, "should be an integer"),
        ({"num_speculative_tokens": None}, "`num_speculative_tokens` was not provided"),
        ({"model": None}, "num_speculative_tokens was provided but without speculative model."),
        ({"method": "magic"}, "Input should be one of ngram, "),
        ({"foo": 1, "bar": 2}, "2 validation errors for SpeculativeConfig\nfoo\n"),
        ({"draft_tensor_parallel_size": 2}, "draft_tensor_parallel_size=2 cannot be other than 1"),
        ({"method": "ngram", "prompt_lookup_min": 5, "prompt_lookup_max": 2}, "must be <= prompt_lookup_max=2"),
        ({"rejection_sample_method": "synthetic"}, "synthetic acceptance is not emulated"),
    ],
    ids=lambda value: "" if isinstance(value, str) else str(value),
)
def test_refusals(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        checked({**BASE, **change}, tensor_parallel_size=4)
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("model", "method"),
    [("org/Qwen3-EAGLE3", "eagle3"), ("org/x-eagle-y", "eagle"), ("/models/d", "draft_model")],
)
def test_method_guessed_from_the_name(model: str, method: str) -> None:
    assert checked({"model": model, "num_speculative_tokens": 2}, 1).method == method


@pytest.mark.parametrize("method", ["ngram", "suffix", "mtp", "dspark"])
def test_methods_without_a_model(method: str) -> None:
    assert checked({"method": method, "num_speculative_tokens": 2}, 1).model is None


def _raw(*words: str) -> dict[str, Any] | None:
    return raw_config(parse(["serve", "m", *words]))


def test_keys_may_have_dashes_and_the_value_is_an_object() -> None:
    assert _raw() is None
    assert _raw("--speculative-config", '{"num-speculative-tokens": 3}') == {"num_speculative_tokens": 3}
    with pytest.raises(ConfigError, match="valid dictionary"):
        _raw("--speculative-config", "[1]")
