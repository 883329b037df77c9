"""`--speculative-config`: what is taken, what is refused and in which words."""

from __future__ import annotations

from typing import Any

import pytest

from speculative_lab.emulator.arguments import parse
from speculative_lab.emulator.errors import ConfigError, ValidationError
from speculative_lab.emulator.speculative import checked, raw_config

BASE: dict[str, Any] = {"method": "eagle3", "model": "org/head", "num_speculative_tokens": 3}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"num_speculative_tokens": 0}, "Input should be greater than 0"),
        ({"num_speculative_tokens": -2}, "Input should be greater than 0"),
        ({"num_speculative_tokens": "3"}, "Input should be a valid integer"),
        ({"num_speculative_tokens": True}, "Input should be a valid integer"),
        ({"num_speculative_tokens": None}, "`num_speculative_tokens` was not provided"),
        ({"model": None}, "num_speculative_tokens was provided but without speculative model."),
        ({"method": "magic"}, "Input should be 'ngram', "),
        ({"method": 3}, "Input should be a valid string"),
        ({"speculative_token_schedule": []}, "Unexpected keyword argument"),
        ({"disable_by_batch_size": 4}, "Unexpected keyword argument"),
        ({"tensor_parallel_size": 2}, "Please pass 'draft_tensor_parallel_size' instead."),
        ({"draft_tensor_parallel_size": 2}, "draft_tensor_parallel_size=2 cannot be other than 1"),
        ({"parallel_drafting": "yes"}, "Input should be a valid boolean"),
        ({"method": "ngram", "prompt_lookup_min": 5, "prompt_lookup_max": 2}, "must be <= prompt_lookup_max=2"),
        ({"rejection_sample_method": "magic"}, "Input should be 'standard', 'synthetic' or 'block'"),
        ({"rejection_sample_method": "synthetic"}, "synthetic acceptance is not emulated"),
        ({"method": "custom_class"}, "not emulated"),
    ],
    ids=lambda value: "" if isinstance(value, str) else str(value),
)
def test_refusals(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        checked({**BASE, **change}, tensor_parallel_size=4)
    assert text in str(raised.value)


def test_every_unknown_key_is_reported() -> None:
    with pytest.raises(ValidationError) as raised:
        checked({**BASE, "foo": 1, "bar": 2}, 1)
    assert str(raised.value).startswith("2 validation errors for SpeculativeConfig\nfoo\n")


@pytest.mark.parametrize(
    ("model", "method"),
    [
        ("org/Qwen3-EAGLE3", "eagle3"),
        ("org/x-eagle-y", "eagle"),
        ("/models/d", "draft_model"),
        ("a/dflash-b", "dflash"),
    ],
)
def test_method_guessed_from_the_name(model: str, method: str) -> None:
    assert checked({"model": model, "num_speculative_tokens": 2}, 1).method == method


@pytest.mark.parametrize("method", ["ngram", "suffix", "mtp", "dspark"])
def test_methods_without_a_model(method: str) -> None:
    assert checked({"method": method, "num_speculative_tokens": 2}, 1).model is None


def _raw(*words: str) -> dict[str, Any] | None:
    return raw_config(parse(["serve", "m", *words]))


def test_dashes_in_keys() -> None:
    assert _raw() is None
    assert _raw("--speculative-config", '{"num-speculative-tokens": 3}') == {"num_speculative_tokens": 3}


def test_a_value_that_is_no_object() -> None:
    with pytest.raises(ValidationError, match="valid dictionary"):
        _raw("--speculative-config", "[1]")
