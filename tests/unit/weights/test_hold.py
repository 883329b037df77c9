"""Marks of the versions that a pod holds are renewed as long as it lives."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from speculative_operator.own_folder import FOLDER
from speculative_operator.weights.bring import Stopped
from speculative_operator.weights.cache import Cache
from speculative_operator.weights.command import hold

HELD = "0123456789abcdef"


@pytest.fixture(autouse=True)
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal comes when the first marks are made."""

    def sleep(_: float) -> None:
        raise Stopped

    monkeypatch.setattr("time.sleep", of_this_thread(sleep))


def of_this_thread(sleep: Callable[[float], None]) -> Callable[[float], None]:
    """`sleep` for this thread; those that other tests have left sleep as ever."""
    here, always = threading.current_thread(), time.sleep

    def either(seconds: float) -> None:
        (sleep if threading.current_thread() is here else always)(seconds)

    return either


def test_marks_are_renewed_until_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Cache(tmp_path).prepare()
    mark, ages = Cache(tmp_path).uses(HELD) / "models.demo", list[float]()

    def sleep(seconds: float) -> None:
        ages.append(time.time() - mark.stat().st_mtime)
        if len(ages) == 3:
            raise Stopped
        os.utime(mark, (0, 0))

    monkeypatch.setattr("time.sleep", of_this_thread(sleep))
    with pytest.raises(Stopped):
        hold(tmp_path, (HELD,), "models/demo")
    assert max(ages) < 60


def test_a_volume_that_fails_is_no_reason_to_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FOLDER).write_text("no folder")
    with pytest.raises(Stopped):
        hold(tmp_path, (HELD,), "models/demo")
    assert "cannot mark version" in caplog.text
