"""Combinations whose output was reported wrong: told of what they are about, and of nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from speculative_operator.api.convert import to_domain
from speculative_operator.domain.models import ModelFacts, Pin
from speculative_operator.domain.spec import DeploymentSpec, Scheme
from speculative_operator.engines.pairs import rules_of
from speculative_operator.pairing.judge import judge

HYBRID = {
    "model_type": "qwen3_5",
    "text_config": {"num_hidden_layers": 64, "full_attention_interval": 4, "mtp_num_hidden_layers": 1},
}
PLAIN = {"model_type": "qwen3", "num_hidden_layers": 64, "mtp_num_hidden_layers": 1}


def spec(
    method: str = "mtp", version: str = "0.28.0", mode: str = "Auto", *args: str, **verifier: Any
) -> DeploymentSpec:
    model = {"model": "hf://a/head"} if method.startswith("eagle") else {}
    wanted = {
        "verifier": {"model": "hf://a/b", **verifier},
        "speculator": {"method": method, **model},
        "speculation": {"mode": mode},
        "engine": {"version": version, "args": list(args)},
    }
    return to_domain({"metadata": {"name": "x"}, "spec": wanted})


def reported(config: dict[str, Any], asked: DeploymentSpec) -> list[str]:
    facts = ModelFacts(Pin(Scheme.HF, "a/b", "", "1"), config)
    found = judge(facts, facts, asked, rules_of(asked)).findings
    return [f"{one.level}: {one.message}; {one.remedy}" for one in found if one.code == "OutputsDoubtful"]


def test_recurrent_layers_with_prefix_caching_and_mtp() -> None:
    (told,) = reported(HYBRID, spec())
    assert told.startswith("Warning: vLLM 0.28.0: ")
    for part in ("vllm#43559", "2026-09", "--no-enable-prefix-caching"):
        assert part in told


@pytest.mark.parametrize(
    ("config", "asked"),
    [
        (PLAIN, spec()),
        (HYBRID, spec("mtp", "0.28.0", "Auto", "--no-enable-prefix-caching")),
        (HYBRID, spec("mtp", "0.28.0", "Auto", "--no_enable_prefix_caching")),
        (HYBRID, spec("mtp", "0.18.0")),
        (HYBRID, spec("ngram")),
        (HYBRID, spec(mode="Disabled")),
        ({}, spec()),
        ({"num_hidden_layers": "many", "layer_types": 7}, spec()),
    ],
)
def test_nothing_is_said_of_what_was_not_reported(config: dict[str, Any], asked: DeploymentSpec) -> None:
    assert reported(config, asked) == []


@pytest.mark.parametrize(
    ("config", "engine", "method", "args", "source"),
    [
        (HYBRID, {"version": "0.32.0"}, "mtp", (), "vllm#54360"),
        (HYBRID, {"version": "0.24.0"}, "mtp", (), ""),
        (HYBRID, {"version": "0.32.0"}, "mtp", ("--no-enable-prefix-caching",), ""),
        (PLAIN, {"version": "0.32.0"}, "mtp", (), ""),
        (PLAIN, {"type": "SGLang", "version": "0.5.23"}, "mtp", (), "sglang#32459"),
        (PLAIN, {"type": "SGLang", "version": "0.5.23"}, "mtp", ("--disable-radix-cache",), ""),
        (PLAIN, {"type": "SGLang", "version": "0.5.23"}, "ngram", (), ""),
    ],
)
def test_lost_reuse_of_prompts_is_said_and_warns_of_nothing(
    config: dict[str, Any], engine: dict[str, str], method: str, args: tuple[str, ...], source: str
) -> None:
    asked = to_domain(
        {
            "metadata": {"name": "x"},
            "spec": {
                "verifier": {"model": "hf://a/b"},
                "speculator": {"method": method},
                "engine": {**engine, "args": list(args)},
            },
        }
    )
    facts = ModelFacts(Pin(Scheme.HF, "a/b", "", "1"), config)
    told = [one for one in judge(facts, facts, asked, rules_of(asked)).findings if one.code == "ReuseDoubtful"]
    assert [one.level for one in told] == (["Info"] if source else [])
    assert all(source in one.message and "speculative compare" in one.remedy for one in told)


def test_an_argument_or_adapters_may_bring_it() -> None:
    (told,) = reported(HYBRID, spec("ngram", "0.32.0", "Auto", '--kv-transfer-config={"kv_connector":"x"}'))
    assert "vllm#53505" in told
    (told,) = reported(PLAIN, spec("eagle3", "0.32.0", lora={"maxAdapters": 2, "maxRank": 16}))
    assert "--model ADAPTER" in told
