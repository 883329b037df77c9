"""What `explain` says of each K, and how far the active one is ahead, from the status that a release left."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.unit.cli.test_cluster_commands import stored

from speculative_operator.cli import explain, status
from speculative_operator.cli.beliefs import beliefs_at, lead_at, outlook_of
from speculative_operator.tuner.comparisons import band_of
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
    assert re.match(r"  lead      \+3\.\d % over K 3, the best other \(-[78] to \+1\d\): not certain", lead_line(body))
    told = explain.summary(body)["lead"]
    assert (told["over"], told["percent"]) == (3, pytest.approx([-7.7, 3.2, 15.4], abs=1.0))


@pytest.mark.parametrize("change", [{"speculatorRemoved": True}, {"k": ""}, {"k": "99"}, {"concurrency": ""}])
def test_without_a_k_at_a_load_there_is_no_lead(body: dict[str, Any], change: dict[str, Any]) -> None:
    body["status"]["speculation"] |= change
    assert lead_line(body) == ""
    assert "lead" not in explain.summary(body)


def cell(k: int, against: int, rate: float, beside: float, load: float = LOAD) -> str:
    """What was compared, as the operator's notes keep it."""
    figures = (band_of(load), k, against, 9, 72, 144, 0, 0.01, 0.01, 0, 0.01, load, rate, beside)
    return " ".join(map(str, figures))


def shown(body: dict[str, Any]) -> list[str]:
    """The lines of `speculative status`."""
    return list(status.tree_lines(status.view(body, (), 0.0)))


class TestOff:
    """K = 0 where nothing of the speculator runs at it."""

    @pytest.fixture
    def body(self, body: dict[str, Any]) -> dict[str, Any]:
        body["spec"]["speculation"] = {**body["spec"].get("speculation", {}), "offPolicy": "Skip"}
        body["spec"]["speculator"]["method"] = "draft_model"
        body["status"]["speculation"] |= {
            "k": "0", "table": [[1, 4, 1], [5, 64, 0]], "method": "draft_model", "skips": True, "state": "Off",
        }  # fmt: skip
        return body

    def test_it_is_called_so(self, body: dict[str, Any]) -> None:
        lines = list(explain.explanation(body))
        assert ": K is 0 (off), at 6.0 requests" in lines[0]
        (believed,) = (line for line in lines if line.startswith("            K 0 "))
        assert believed.endswith("  off  <- active")
        (row,) = (line for line in shown(body) if "5-64 requests" in line)
        assert row.split() == ["5-64", "requests", "K", "0", "off", "<-", "load", "now"]

    @pytest.mark.parametrize("change", [{"skips": False}, {"speculatorRemoved": True}])
    def test_elsewhere_it_is_not(self, body: dict[str, Any], change: dict[str, bool]) -> None:
        body["status"]["speculation"] |= change
        told = "\n".join((*explain.explanation(body), *shown(body)))
        assert " off  <-" not in told
        assert "(off)" not in told

    @pytest.mark.parametrize(("skips", "told"), [(True, "Steps skip it."), (False, "still runs its first pass.")])
    def test_the_state_says_what_becomes_of_the_speculator(self, body: dict[str, Any], skips: bool, told: str) -> None:
        body["status"]["speculation"]["skips"] = skips
        (line,) = (one for one in explain.explanation(body) if one.startswith("  state "))
        assert line.endswith(told)

    def test_what_it_saved_is_told_over_the_best_other_k(self, body: dict[str, Any]) -> None:
        assert "off" not in explain.summary(body)
        far = cell(3, 0, 99.0, 10.0, load=60.0)
        body["status"]["memory"]["cells"] = [cell(0, 1, 33.0, 30.0), cell(3, 0, 20.0, 32.0), far]
        assert explain.summary(body)["off"]["over"] == 1
        (line,) = (one for one in explain.explanation(body) if one.startswith("  off "))
        assert line == "  off       +10 % over K 1: 33 instead of 30 tokens/s per request, in steps side by side"
