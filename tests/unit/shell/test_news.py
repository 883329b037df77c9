"""How many Events are posted of a tuner that decides often, and that none of its decisions is lost."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from speculative_operator.domain.reasons import Reason
from speculative_operator.reconcile.world import Event
from speculative_operator.shell import report
from speculative_operator.shell.report import LIMIT_SECONDS, News

SECONDS = 5.0
"""Between two looks at an object."""


def decision(number: int, reason: Reason = Reason.HIGH_CONCURRENCY) -> Event:
    return Event("Normal", reason, f"table {number}", decision=True)


def posted(found: News, looks: int, reasons: tuple[Reason, ...], uid: str = "a") -> list[tuple[float, Event]]:
    """What is posted of an object on which the tuner decides with each look."""
    told = []
    for look in range(looks):
        now = look * SECONDS
        told += [(now, one) for one in found.due(uid, [decision(look, reason) for reason in reasons], now)]
    return told


def count_of(event: Event) -> int:
    form = re.match(r"(\d+) such decisions in \d+ s, the last: table \d+$", event.message)
    return int(form[1]) if form else 1


def test_at_most_one_a_minute_beyond_the_first_and_all_are_counted() -> None:
    looks = 1 + int(10 * LIMIT_SECONDS / SECONDS)
    told = posted(News(), looks, (Reason.HIGH_CONCURRENCY,))
    assert len(told) == 1 + 10
    moments = [now for now, _ in told]
    assert moments[0] == 0.0
    assert min(later - now for now, later in pairwise(moments)) >= LIMIT_SECONDS
    assert sum(count_of(one) for _, one in told) == looks
    assert told[0][1].message == "table 0"
    assert told[1][1].message == "12 such decisions in 60 s, the last: table 12"


def test_each_reason_and_each_object_has_its_own_minute() -> None:
    found = News()
    both = (Reason.HIGH_CONCURRENCY, Reason.LOW_ACCEPTANCE)
    assert len(posted(found, 6, both)) == 2
    assert len(posted(found, 6, both, uid="b")) == 2


def test_the_last_one_is_told_though_no_other_follows() -> None:
    found = News()
    assert [one.message for _, one in posted(found, 2, (Reason.GUARD,))] == ["table 0"]
    assert list(found.due("a", [], LIMIT_SECONDS - 1)) == []
    assert [one.message for one in found.due("a", [], LIMIT_SECONDS)] == ["table 1"]
    assert list(found.due("a", [], 10 * LIMIT_SECONDS)) == []


def test_other_events_wait_for_nothing() -> None:
    found = News()
    refusals = [Event("Warning", Reason.SPEC_INVALID, f"field {number}") for number in range(3)]
    assert [one for event in refusals for one in found.due("a", [event], 0.0)] == refusals


def test_a_decision_told_again_counts_once() -> None:
    """A status write that failed has the next look tell it again."""
    found = News()
    told = [one for now in (0.0, 5.0, 60.0, 65.0) for one in found.due("a", [decision(1)], now)]
    assert [one.message for one in told] == ["table 1"]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "OBJECTS", 3)
    monkeypatch.setattr(report, "REMEMBERED", 3)
    found = News()
    for number in range(9):
        assert list(found.due(str(number), [decision(number)], 0.0))
    assert len(found._decided) == len(found._posted) == 3
