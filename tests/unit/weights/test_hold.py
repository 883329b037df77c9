"""A version that a pod holds is never collected, however long ago it was fetched."""

import json
import os
import threading
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from speculative_operator.domain.models import Pin
from speculative_operator.domain.spec import Scheme
from speculative_operator.own_folder import FOLDER
from speculative_operator.weights.cache import GRACE_SECONDS, MANIFEST, Cache, collect
from speculative_operator.weights.command import RENEW_SECONDS, hold

PINS = [Pin(Scheme.HF, f"org/{name}", "", "c" * 40) for name in ("held", "other")]
HELD, OTHER = (pin.key for pin in PINS)


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
    stop = threading.Event()
    stop.set()
    hold(tmp_path, (HELD,), "models/demo", stop, expires=True)
    assert collect(tmp_path) == (OTHER,)
    assert Cache(tmp_path).model(HELD).exists()


def test_marks_are_renewed_until_ended(tmp_path: Path) -> None:
    Cache(tmp_path).prepare()
    stop = threading.Event()
    thread = threading.Thread(target=hold, args=(tmp_path, (HELD,), "models/demo", stop), kwargs={"seconds": 0.01})
    thread.start()
    mark = Cache(tmp_path).uses(HELD) / "models.demo"
    try:
        for _ in range(2):
            deadline = time.monotonic() + 20
            while not mark.exists() or mark.stat().st_mtime == 0:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            os.utime(mark, (0, 0))
    finally:
        stop.set()
        thread.join(20)
    assert not thread.is_alive()


def test_a_volume_that_fails_is_no_reason_to_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stop = threading.Event()
    stop.set()
    (tmp_path / FOLDER).write_text("no folder")
    hold(tmp_path, (HELD,), "models/demo", stop)
    assert "cannot mark version" in caplog.text


def test_marks_are_renewed_well_within_the_grace() -> None:
    assert RENEW_SECONDS * 12 <= GRACE_SECONDS
