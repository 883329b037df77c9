"""How many Events are posted of a tuner that decides often."""

from __future__ import annotations

import pytest

from speculative_operator.domain.reasons import Reason
from speculative_operator.reconcile.world import Event
from speculative_operator.shell import report
from speculative_operator.shell.report import LIMIT_SECONDS, REPEAT_AFTER, News


def decision(number: int, reason: Reason = Reason.HIGH_CONCURRENCY) -> Event:
    return Event("Normal", reason, f"table {number}", decision=True)


def posted(found: News, uid: str, *reasons: Reason) -> list[float]:
    """When something is posted of an object on which the tuner decides every five seconds for five minutes."""
    looks = [(5.0 * look, [decision(look, reason) for reason in reasons]) for look in range(60)]
    return [now for now, events in looks for _ in found.due(uid, events, now)]


def test_of_decisions_at_most_one_a_minute_for_each_reason_and_object() -> None:
    found = News()
    assert posted(found, "a", Reason.HIGH_CONCURRENCY) == [LIMIT_SECONDS * minute for minute in range(5)]
    assert len(posted(found, "b", Reason.HIGH_CONCURRENCY, Reason.LOW_ACCEPTANCE)) == 2 * 5


def test_other_events_wait_for_nothing_and_are_told_once() -> None:
    found = News()
    refusals = [Event("Warning", Reason.SPEC_INVALID, f"field {number}") for number in range(3)]
    assert list(found.due("a", refusals, 0.0)) == refusals
    assert list(found.due("a", refusals, REPEAT_AFTER - 1.0)) == []
    assert list(found.due("a", refusals, REPEAT_AFTER)) == refusals


def test_a_decision_told_again_is_posted_once() -> None:
    """A status write that failed has the next look tell it again."""
    found = News()
    told = [one for now in (0.0, 5.0, LIMIT_SECONDS, 65.0) for one in found.due("a", [decision(1)], now)]
    assert [one.message for one in told] == ["table 1"]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "REMEMBERED", 3)
    found = News()
    for number in range(9):
        assert list(found.due(str(number), [decision(number)], 0.0))
    assert len(found._posted) == 3
