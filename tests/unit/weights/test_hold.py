"""A version that a pod holds is never collected, however long ago it was fetched."""

import json
import os
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from speculative_operator.domain.models import Pin
from speculative_operator.domain.spec import Scheme
from speculative_operator.own_folder import FOLDER
from speculative_operator.weights.bring import Stopped
from speculative_operator.weights.cache import GRACE_SECONDS, MANIFEST, Cache, collect
from speculative_operator.weights.command import RENEW_SECONDS, hold

PINS = [Pin(Scheme.HF, f"org/{name}", "", "c" * 40) for name in ("held", "other")]
HELD, OTHER = (pin.key for pin in PINS)


@pytest.fixture(autouse=True)
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal comes when the first marks are made."""

    def sleep(_: float) -> None:
        raise Stopped

    monkeypatch.setattr("time.sleep", sleep)


def old(cache: Path) -> None:
    """Two published versions, wanted last a month ago."""
    place, before = Cache(cache), time.time() - 31 * 86400
    place.prepare()
    for pin in PINS:
        key = pin.key
        place.model(key).mkdir()
        (place.model(key) / MANIFEST).write_text(json.dumps({"pin": asdict(pin), "files": [], "bytes": 0}))
        place.use(key, "models/gone", expires=True)
        for path in (place.model(key), place.uses(key) / "models.gone"):
            os.utime(path, (before, before))


def test_what_is_held_stays_and_the_rest_goes(tmp_path: Path) -> None:
    old(tmp_path)
    with pytest.raises(Stopped):
        hold(tmp_path, (HELD,), "models/demo", expires=True)
    assert collect(tmp_path) == (OTHER,)
    assert Cache(tmp_path).model(HELD).exists()


def test_marks_are_renewed_until_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Cache(tmp_path).prepare()
    mark, ages = Cache(tmp_path).uses(HELD) / "models.demo", list[float]()

    def sleep(seconds: float) -> None:
        ages.append(time.time() - mark.stat().st_mtime)
        if len(ages) == 3:
            raise Stopped
        os.utime(mark, (0, 0))

    monkeypatch.setattr("time.sleep", sleep)
    with pytest.raises(Stopped):
        hold(tmp_path, (HELD,), "models/demo")
    assert max(ages) < 60


def test_a_volume_that_fails_is_no_reason_to_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FOLDER).write_text("no folder")
    with pytest.raises(Stopped):
        hold(tmp_path, (HELD,), "models/demo")
    assert "cannot mark version" in caplog.text


def test_marks_are_renewed_well_within_the_grace() -> None:
    assert RENEW_SECONDS * 12 <= GRACE_SECONDS
