"""How engines are started, and whether they fit into an accelerator beside each other."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from acceleratorkit import engines, program
from acceleratorkit.bench import STEADY, Group
from acceleratorkit.engines import Engine, Setting
from acceleratorkit.launches import CALLS, timed
from speculative_operator.engines.vllm.arguments import OFF_STEPS

SETTING = Setting(Path("python"), Path("/home"), "FLASH_ATTN")
GROUPS = (program.SPECULATION, program.RUNNERS, program.DRAFTS, program.VERIFIED)
every_group = pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
WEIGHTS = {"": 16.4e9, "eagle3": 17.2e9, "draft_model": 17.6e9}
"""Bytes of Qwen3-8B and of what drafts for it, in bfloat16."""
PROMPT = 30
"""Tokens of the longest prompt, and more."""


def value(flags: list[str], flag: str) -> str:
    return flags[flags.index(flag) + 1]


def test_steps_leave_the_speculator_out_where_they_may_and_as_the_operator_has_it(tmp_path: Path) -> None:
    skips, keeps = Engine("a", 2, "eagle3", skip=True), Engine("b", 2, "eagle3")
    assert engines.flags(skips, SETTING) == engines.flags(keeps, SETTING)
    with_it = engines.variables(skips, tmp_path, 1)
    assert with_it["SPECULATIVE_OFF_STEPS"] == str(OFF_STEPS)
    assert engines.variables(keeps, tmp_path, 1) == {
        name: text for name, text in with_it.items() if name != "SPECULATIVE_OFF_STEPS"
    }


def test_every_k_that_is_forced_is_prepared_at_the_start() -> None:
    config = json.loads(value(engines.flags(Engine("a", 2, "eagle3"), SETTING), "--speculative-config"))
    assert {k for _, _, k in config["num_speculative_tokens_per_batch_size"]} == set(engines.KS)
    assert config["num_speculative_tokens"] == max(engines.KS) == len(config["synthetic_acceptance_rates"])
    forced = {arm.k for group in GROUPS for arm in group.arms} - {None}
    assert forced <= set(engines.KS)


def test_runners_and_what_only_one_of_them_has(tmp_path: Path) -> None:
    old, new = Engine("a", 1, "draft_model"), Engine("b", 2, "draft_model")
    assert engines.variables(old, tmp_path, 1)["VLLM_USE_V2_MODEL_RUNNER"] == "0"
    assert engines.variables(new, tmp_path, 1)["VLLM_USE_V2_MODEL_RUNNER"] == "1"
    assert "--worker-extension-cls" not in engines.flags(old, SETTING)
    assert "--worker-extension-cls" in engines.flags(new, SETTING)
    plain = engines.variables(Engine("c"), tmp_path, 1)
    assert not [name for name in plain if name.startswith("SPECULATIVE")]


@every_group
def test_arms_have_engines_and_the_first_has_no_speculator(group: Group) -> None:
    by_name = {engine.name: engine for engine in group.engines}
    assert {arm.engine for arm in group.arms} == set(by_name)
    assert not by_name[group.arms[0].engine].speculator
    assert len({arm.name for arm in group.arms}) == len(group.arms)
    assert all((arm.k is not None) == bool(by_name[arm.engine].speculator) for arm in group.arms)


@every_group
def test_engines_of_a_group_fit_side_by_side(group: Group) -> None:
    used = sum(
        WEIGHTS[one.speculator] + engines.CACHE_TOKENS * engines.TOKEN_BYTES[one.speculator] for one in group.engines
    )
    assert used < program.NEEDED_BYTES


@every_group
def test_all_requests_of_a_load_fit_into_the_cache(group: Group) -> None:
    for traffic in group.traffic:
        lengths = [traffic.tokens + 5 * n * (traffic.kind == STEADY) for n in range(engines.LENGTHS)]
        assert traffic.width * (PROMPT + sum(lengths) / len(lengths)) < engines.CACHE_TOKENS
        assert traffic.width <= engines.SEATS


@pytest.mark.parametrize("tiny", [False, True])
def test_shapes_are_those_of_a_pair(tiny: bool, tmp_path: Path) -> None:
    engines.make_models(tmp_path, tiny)
    shapes = {name: json.loads((tmp_path / name / "config.json").read_text()) for name in ("verifier", "eagle3")}
    verifier, head = shapes["verifier"], shapes["eagle3"]
    assert (head["hidden_size"], head["vocab_size"]) == (verifier["hidden_size"], verifier["vocab_size"])
    assert head["draft_vocab_size"] < head["vocab_size"]
    assert max(head["eagle_config"]["eagle_aux_hidden_state_layer_ids"]) < verifier["num_hidden_layers"]
    assert (tmp_path / "eagle3" / "tokenizer.json").exists()
    assert not list(tmp_path.rglob("*.safetensors"))


def test_launches_are_timed_until_they_return_and_until_they_are_done() -> None:
    begun: list[int] = []
    found = timed(lambda: begun.append(1), lambda: time.sleep(0.004))
    assert 0 <= found["host_us"] < found["whole_us"]
    assert found["whole_us"] - found["host_us"] >= 0.9e6 * 0.004 / CALLS
