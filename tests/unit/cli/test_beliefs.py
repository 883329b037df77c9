"""What `explain` says of each K, and how far the active one is ahead, from the status that a release left."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.cli.test_cluster_commands import stored

from speculative_operator.cli import explain
from speculative_operator.cli.beliefs import beliefs_at, lead_at, outlook_of
from speculative_operator.tuner.outlook import Outlook

LOAD = 6.0


@pytest.fixture
def body() -> dict[str, Any]:
    return stored("tuned")


@pytest.fixture
def view(body: dict[str, Any]) -> Outlook:
    found = outlook_of(body)
    assert found is not None
    return found


def test_the_lead_is_over_the_best_other_k(view: Outlook) -> None:
    gains = {one.k: one.gain for one in beliefs_at(view, LOAD)}
    lead = lead_at(view, LOAD, 1)
    assert lead is not None
    assert gains[lead.k].mid == max(gain.mid for k, gain in gains.items() if k != 1)
    assert lead.percent.mid == pytest.approx(100 * ((100 + gains[1].mid) / (100 + gains[lead.k].mid) - 1), abs=2)
    assert lead.percent.low < lead.percent.mid < lead.percent.high


def test_a_k_that_is_behind_says_so(view: Outlook) -> None:
    lead = lead_at(view, LOAD, 0)
    assert lead is not None
    assert (lead.k, lead.percent.high < 0) == (1, True)


def test_a_k_that_is_no_candidate_has_no_lead(view: Outlook) -> None:
    assert lead_at(view, LOAD, 99) is None


def lead_line(body: dict[str, Any]) -> str:
    return next((line for line in explain.explanation(body) if line.startswith("  lead ")), "")


def test_a_lead_that_is_not_certain_is_told_as_such(body: dict[str, Any]) -> None:
    assert lead_line(body).startswith("  lead      +3.2 % over K 3, the best other (-8 to +15): not certain")
    told = explain.summary(body)["lead"]
    assert (told["over"], told["percent"]) == (3, [-7.7, 3.2, 15.4])


@pytest.mark.parametrize("change", [{"hardOff": True}, {"k": ""}, {"k": "99"}, {"concurrency": ""}])
def test_without_a_k_at_a_load_there_is_no_lead(body: dict[str, Any], change: dict[str, Any]) -> None:
    body["status"]["speculation"] |= change
    assert lead_line(body) == ""
    assert "lead" not in explain.summary(body)
