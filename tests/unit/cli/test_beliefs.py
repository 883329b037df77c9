"""What `explain` says of each K, and how far the active one is ahead, from the status that a release left."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.unit.cli.test_cluster_commands import stored

from speculative_operator.cli import explain, status
from speculative_operator.cli.beliefs import beliefs_at, beside, outlook_of
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


def test_each_k_stands_beside_the_active_one(view: Outlook) -> None:
    gains, found = {one.k: one.gain for one in beliefs_at(view, LOAD)}, beside(view, LOAD, 1)
    assert list(found) == list(view.ks)
    assert (found[1].low, found[1].mid, found[1].high) == (0.0, 0.0, 0.0)
    for k in set(found) - {1}:
        assert found[k].mid == pytest.approx(100 * ((100 + gains[k].mid) / (100 + gains[1].mid) - 1), abs=2)
        assert found[k].low < found[k].mid < found[k].high


def test_a_k_that_is_no_candidate_has_none_beside_it(view: Outlook) -> None:
    assert beside(view, LOAD, 99) == {}


def test_they_are_told_with_their_intervals(body: dict[str, Any]) -> None:
    beliefs = {one["k"]: one["overActivePercent"] for one in explain.summary(body)["beliefs"]}
    assert beliefs[1] == [0.0, 0.0, 0.0]
    assert beliefs[3] == pytest.approx([-13.3, -3.1, 8.3], abs=1.5)
    lines = [line for line in explain.explanation(body) if line.startswith("            K ")]
    assert lines[1] == "            K 1    active"
    (third,) = (line for line in lines if line.startswith("            K 3 "))
    assert re.match(r"            K 3    -3\.\d % \(-1\d to \+[78]\)$", third)


@pytest.mark.parametrize("change", [{"speculatorRemoved": True}, {"k": ""}, {"k": "99"}, {"concurrency": ""}])
def test_without_a_k_at_a_load_nothing_stands_beside_it(body: dict[str, Any], change: dict[str, Any]) -> None:
    body["status"]["speculation"] |= change
    assert explain.summary(body)["beliefs"] == []
    assert not [line for line in explain.explanation(body) if line.startswith("  beside")]


@pytest.mark.parametrize(("basis", "told"), [("Measured", "side by side"), ("Estimated", "nobody measured")])
def test_the_gain_says_what_it_rests_on(body: dict[str, Any], basis: str, told: str) -> None:
    body["status"]["speculation"] |= {"gain": "+9.0%", "gainRange": "+8% to +10%", "gainBasis": basis}
    lines = list(explain.explanation(body))
    (at,) = (n for n, line in enumerate(lines) if line.startswith("  gain "))
    assert lines[at].endswith("+9.0% tokens per second over pods without a speculator (80 % interval +8% to +10%)")
    assert told in lines[at + 1]
    assert explain.summary(body)["gainBasis"] == basis


def shown(body: dict[str, Any]) -> list[str]:
    """The lines of `speculative status`."""
    return status.view(body, (), 0.0)


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
        assert believed.endswith("  active  off")
        (row,) = (line for line in shown(body) if "5-64 requests" in line)
        assert row.split() == ["5-64", "requests", "K", "0", "off", "<-", "load", "now"]

    @pytest.mark.parametrize("change", [{"skips": False}, {"speculatorRemoved": True}])
    def test_elsewhere_it_is_not(self, body: dict[str, Any], change: dict[str, bool]) -> None:
        body["status"]["speculation"] |= change
        told = "\n".join((*explain.explanation(body), *shown(body)))
        assert "active  off" not in told
        assert "(off)" not in told

    @pytest.mark.parametrize(("skips", "told"), [(True, "Steps skip it."), (False, "still runs its first pass.")])
    def test_the_state_says_what_becomes_of_the_speculator(self, body: dict[str, Any], skips: bool, told: str) -> None:
        body["status"]["speculation"]["skips"] = skips
        (line,) = (one for one in explain.explanation(body) if one.startswith("  state "))
        assert line.endswith(told)
