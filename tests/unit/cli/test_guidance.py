"""What `plan` and `explain` advise: the arithmetic of cost, why a gain is small, and rules of thumb with what holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.test_cluster_commands import stored

from speculative_operator.cli import explain, guidance
from speculative_operator.cli.beliefs import beliefs_at
from speculative_operator.cli.subject import subject
from speculative_operator.tuner.outlook import Outlook, outlook

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "tuning.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (\S+) \((\w+)\) \| (\d) \| (.+) \|$", PAGE, re.M)


def view_of(model: str, method: str) -> Outlook:
    spec = {
        "verifier": {"model": "hf://Qwen/Qwen3-8B"},
        "speculator": {"method": method, "model": f"hf://{model}"},
        "accelerator": {"product": "H100-SXM"},
    }
    return outlook(subject({"spec": spec}).policy)


@pytest.mark.parametrize(("model", "method", "k", "cells"), ROWS)
def test_the_page_shows_from_which_acceptance_on_drafts_pay(model: str, method: str, k: str, cells: str) -> None:
    view, shown = view_of(model, method), []
    for load in (1, 8, 32, 64):
        belief = next(one for one in beliefs_at(view, load) if one.k == int(k))
        shown.append(f"{100 * guidance.pays_from(view, belief):.0f} %")
    assert shown == cells.split(" | ")


def test_the_page_has_a_head_a_block_and_a_model() -> None:
    assert {method for _, method, _, _ in ROWS} == {"eagle3", "dflash", "draft_model"}


@pytest.mark.parametrize(
    ("gain", "told"),
    [
        (50.0, ("0.0139 per 1,000 tokens, 0.0208 without", "saves 60.00 a day, 21,900 a year")),
        (-10.0, ("0.0139 per 1,000 tokens, 0.0125 without", "loses 12.00 a day, 4,380 a year")),
    ],
)
def test_the_arithmetic_of_the_cost(gain: float, told: tuple[str, str]) -> None:
    lines = [text for _, text in guidance.cost(100.0, 5.0, gain)]
    assert lines[0].startswith("100 tokens/s at 5.00 an hour is ")
    assert [part in line for part, line in zip(told, lines, strict=True)] == [True, True]


@pytest.fixture
def body() -> dict[str, Any]:
    return stored("tuned")


def advice(body: dict[str, Any], **seen: str) -> dict[str, list[str]]:
    """Lines of `explain` by label, where status.speculation says `seen`."""
    body["status"]["speculation"] |= seen
    found: dict[str, list[str]] = {}
    for line in explain.summary(body)["advice"]:
        label, _, text = line.partition(": ")
        found.setdefault(label, []).append(text)
        assert any(f"  {label:<9} {text}" == one for one in explain.explanation(body))
    return found


def test_below_one_and_a_half_explain_says_why_and_what_would_help(body: dict[str, Any]) -> None:
    found = advice(body, k="1", concurrency="24")
    assert re.search(r"; here \d+ % with K 1, and drafts pay from \d+ % on$", found["guides"][0])
    assert re.match(
        r"a step with K 1 yields 1\.\d\d tokens per request and takes 1\.\d\d times as long$", found["why"][0]
    )
    assert "1.5x with K 1 at 24 requests takes" in found["why"][1]
    assert found["helps"]


def test_explain_prices_the_present_traffic(body: dict[str, Any]) -> None:
    found = advice(body, tokensPerSecond="100", costPer1kTokens="0.0139", gain="+50.0%")
    assert found["cost"][0].startswith("100 tokens/s at 5.00 an hour is 0.0139 per 1,000 tokens")
    assert "saves 60.0" in found["cost"][1]
    assert "cost" not in advice(body, costPer1kTokens="")


@pytest.mark.parametrize("seen", [{"concurrency": ""}, {"k": ""}, {"concurrency": "nan"}, {"concurrency": "-1"}])
def test_without_a_k_at_a_load_nothing_is_advised(body: dict[str, Any], seen: dict[str, str]) -> None:
    assert advice(body, **seen) == {}


def test_an_object_without_memory_gets_no_advice_on_k(body: dict[str, Any]) -> None:
    body["status"]["memory"] = {}
    assert "guides" not in advice(body)
