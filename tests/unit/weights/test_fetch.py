"""Fetching: what comes is what was there, whatever happens on the way."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.unit.weights.shelf import BRISK, COMMIT, KIB, Asked, Fault, Shelf, blocks, content, meter

from speculative_operator.domain.jobs import Progress
from speculative_operator.domain.reasons import Reason
from speculative_operator.own_folder import FOLDER
from speculative_operator.weights import disk
from speculative_operator.weights.bring import Stopped
from speculative_operator.weights.cache import MANIFEST
from speculative_operator.weights.fetch import fetch, missing_bytes
from speculative_operator.weights.progress import Report
from speculative_operator.weights.source import Entry, WeightsError

MODEL = {
    "config.json": b'{"model_type": "small"}',
    "empty.txt": b"",
    "model-00001-of-00002.safetensors": content(700 * KIB, 1),
    "model-00002-of-00002.safetensors": content(513 * KIB + 7, 2),
    "sub/folder/tokenizer.json": content(3, 3),
}
TOTAL = sum(map(len, MODEL.values()))
FIRST = "model-00001-of-00002.safetensors"


def brought(shelf: Shelf, cache: Path, report: Report = lambda _: None, parallel: int = 8) -> Path:
    return fetch(shelf, cache, meter(shelf, report), user="space/object", parallel=parallel, limits=BRISK)


def make_folder(folder: Path) -> Path:
    folder.mkdir()
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    found.pop(MANIFEST)
    return found


def refusal(shelf: Shelf, cache: Path, **options: Any) -> WeightsError:
    with pytest.raises(WeightsError) as caught:
        brought(shelf, cache, **options)
    return caught.value


@pytest.mark.parametrize("parallel", [1, 3, 8])
@pytest.mark.parametrize("summed", [True, False])
def test_the_published_folder_holds_the_files_and_says_which(tmp_path: Path, parallel: int, summed: bool) -> None:
    shelf = Shelf(MODEL, summed=summed)
    folder = brought(shelf, tmp_path, parallel=parallel)
    assert folder == tmp_path / FOLDER / "models" / shelf.pin.key
    assert contents(folder) == MODEL
    assert shelf.given == TOTAL
    told = json.loads((folder / MANIFEST).read_text())
    assert told["pin"] == {"scheme": "hf", "location": "small/model", "asked": "main", "resolved": COMMIT}
    assert told["bytes"] == TOTAL
    assert [path for path, _, _ in told["files"]] == sorted(MODEL)
    assert told["files"][2] == [FIRST, 700 * KIB, hashlib.sha256(MODEL[FIRST]).hexdigest() if summed else ""]


def test_published_files_are_read_only_and_nothing_else_is_left(tmp_path: Path) -> None:
    folder = brought(Shelf(MODEL), tmp_path)
    assert {path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()} == {0o444}
    assert list((tmp_path / FOLDER / "partial").iterdir()) == []
    assert list((tmp_path / FOLDER / "trash").iterdir()) == []
    assert [path.name for path in (tmp_path / FOLDER / "uses" / folder.name).iterdir()] == ["space.object"]


def test_files_of_another_user_id_are_published_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def chmod(path: Path, mode: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", chmod)
    assert contents(brought(Shelf(MODEL), tmp_path)) == MODEL


def test_requests_are_segments_that_never_overlap(tmp_path: Path) -> None:
    shelf = Shelf({"a": content(2000 * KIB)})
    brought(shelf, tmp_path, parallel=4)
    spans = sorted((one.start, one.end) for one in shelf.asked)
    assert spans[0] == (0, 64 * KIB)
    assert all(end == start for (_, end), (start, _) in itertools.pairwise(spans))


def test_what_is_published_is_not_asked_for_again(tmp_path: Path) -> None:
    brought(Shelf(MODEL), tmp_path)
    mark = tmp_path / FOLDER / "uses" / Shelf(MODEL).pin.key / "space.object"
    os.utime(mark, (1, 1))
    again = Shelf(MODEL)
    brought(again, tmp_path)
    assert again.asked == []
    assert time.time() - mark.stat().st_mtime < 60


def test_a_published_version_that_lost_a_file_is_made_whole_again(tmp_path: Path) -> None:
    folder = brought(Shelf(MODEL), tmp_path)
    (folder / "config.json").unlink()
    assert contents(brought(Shelf(MODEL), tmp_path)) == MODEL


def cut_after(count: int, times: int) -> Fault:
    """The first `times` reads of the first shard end after `count` bytes."""

    def fault(asked: Asked) -> Iterator[bytes] | None:
        if asked.entry.path != FIRST or asked.number >= times:
            return None
        return cut(asked, count)

    return fault


def cut(asked: Asked, count: int) -> Iterator[bytes]:
    yield from blocks(asked.data[:count])
    raise WeightsError(Reason.SOURCE_UNREACHABLE, "the connection broke")


@pytest.mark.parametrize("count", [1, 16 * KIB, 64 * KIB - 1])
def test_a_cut_connection_goes_on_where_it_was(tmp_path: Path, count: int) -> None:
    shelf = Shelf(MODEL, cut_after(count, 3))
    assert contents(brought(shelf, tmp_path, parallel=1)) == MODEL
    assert shelf.given == TOTAL, "no byte came twice"


def failing(*errors: WeightsError, path: str = FIRST) -> Fault:
    def fault(asked: Asked) -> Iterator[bytes] | None:
        if asked.entry.path != path or asked.number >= len(errors):
            return None
        return raising(errors[asked.number])

    return fault


def raising(error: WeightsError) -> Iterator[bytes]:
    raise error
    yield b""


def of(reason: Reason, status: int | None = None, retry_after: float | None = None) -> WeightsError:
    return WeightsError(reason, f"the source answered {status}", status=status, retry_after=retry_after)


def test_transient_failures_within_the_budget_pass(tmp_path: Path) -> None:
    errors = [of(Reason.SOURCE_UNREACHABLE, 503), of(Reason.SOURCE_THROTTLED, 429), of(Reason.SOURCE_UNREACHABLE)]
    assert contents(brought(Shelf(MODEL, failing(*errors)), tmp_path, parallel=1)) == MODEL


@pytest.mark.parametrize(
    ("reason", "status"), [(Reason.SOURCE_UNREACHABLE, 503), (Reason.SOURCE_THROTTLED, 429)], ids=str
)
def test_beyond_the_budget_the_fetch_fails_with_the_last_reason(tmp_path: Path, reason: Reason, status: int) -> None:
    shelf = Shelf(MODEL, failing(*[of(reason, status) for _ in range(99)]))
    error = refusal(shelf, tmp_path, parallel=1)
    assert (error.reason, error.status, error.file) == (reason, status, FIRST)
    assert "4 failures in a row" in error.message
    assert len([one for one in shelf.asked if one.entry.path == FIRST]) == BRISK.attempts


@pytest.mark.parametrize(
    ("reason", "status"),
    [(Reason.SOURCE_UNAUTHORIZED, 401), (Reason.SOURCE_UNAUTHORIZED, 403), (Reason.SOURCE_NOT_FOUND, 404)],
)
def test_what_no_retry_mends_fails_at_once(tmp_path: Path, reason: Reason, status: int) -> None:
    shelf = Shelf(MODEL, failing(of(reason, status)))
    error = refusal(shelf, tmp_path, parallel=1)
    assert (error.reason, error.status, error.file) == (reason, status, FIRST)
    assert len([one for one in shelf.asked if one.entry.path == FIRST]) == 1


def test_retry_after_holds_every_stream(tmp_path: Path) -> None:
    times: list[float] = []

    def fault(asked: Asked) -> Iterator[bytes] | None:
        times.append(time.monotonic())
        return raising(of(Reason.SOURCE_THROTTLED, 429, retry_after=0.7)) if len(times) == 1 else None

    brought(Shelf({"a": content(10), "b": content(20), "c": content(30)}, fault), tmp_path, parallel=1)
    assert times[1] - times[0] >= 0.7


def test_a_source_that_asks_for_too_long_a_pause_fails_the_fetch(tmp_path: Path) -> None:
    shelf = Shelf(MODEL, failing(of(Reason.SOURCE_THROTTLED, 429, retry_after=3600)))
    assert refusal(shelf, tmp_path).reason is Reason.SOURCE_THROTTLED


def corrupted(times: int) -> Fault:
    """The first `times` answers that hold byte 300 KiB of the first shard have one bit of it wrong."""
    answers = itertools.count()

    def fault(asked: Asked) -> Iterator[bytes] | None:
        if asked.entry.path != FIRST or not asked.start <= 300 * KIB < asked.end or next(answers) >= times:
            return None
        data = bytearray(asked.data)
        data[300 * KIB - asked.start] ^= 1
        return blocks(bytes(data))

    return fault


def test_a_wrong_byte_is_found_and_the_file_fetched_again(tmp_path: Path) -> None:
    shelf = Shelf(MODEL, corrupted(1))
    assert contents(brought(shelf, tmp_path, parallel=1)) == MODEL
    assert shelf.given == TOTAL + 700 * KIB


def test_a_file_that_is_wrong_twice_is_a_mismatch_and_leaves_nothing_to_resume_from(tmp_path: Path) -> None:
    shelf = Shelf(MODEL, corrupted(99))
    error = refusal(shelf, tmp_path, parallel=2)
    assert (error.reason, error.file) == (Reason.CHECKSUM_MISMATCH, FIRST)
    assert hashlib.sha256(MODEL[FIRST]).hexdigest() in error.message
    assert not (tmp_path / FOLDER / "models" / shelf.pin.key).exists()
    healthy = Shelf(MODEL)
    assert contents(brought(healthy, tmp_path)) == MODEL
    assert sum(one.given for one in healthy.asked if one.entry.path == FIRST) == 700 * KIB


def test_a_git_object_id_is_held_against_the_file_too(tmp_path: Path) -> None:
    """`printf hello | git hash-object --stdin` says the id."""
    entry = Entry("config.json", 5, etag="git:b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0")

    class Git(Shelf):
        @property
        def files(self) -> tuple[Entry, ...]:
            return (entry,)

    assert (
        brought(Git({"config.json": b"hello"}), make_folder(tmp_path / "right")) / "config.json"
    ).read_bytes() == b"hello"
    error = refusal(Git({"config.json": b"hullo"}), make_folder(tmp_path / "wrong"))
    assert error.reason is Reason.CHECKSUM_MISMATCH
    assert "git object id" in error.message


def test_a_stop_keeps_what_has_come(tmp_path: Path) -> None:
    stop = threading.Event()

    def fault(asked: Asked) -> Iterator[bytes] | None:
        return stopping(asked, stop) if asked.entry.path == FIRST and asked.start == 128 * KIB else None

    def report(_: Progress) -> None:  # in the thread that hears of signals
        if stop.is_set():
            raise Stopped

    with pytest.raises(Stopped):
        brought(Shelf(MODEL, fault), tmp_path, parallel=1, report=report)
    again = Shelf(MODEL)
    assert contents(brought(again, tmp_path, parallel=1)) == MODEL
    assert min(one.start for one in again.asked if one.entry.path == FIRST) == 128 * KIB, "two segments were there"
    assert not [one for one in again.asked if one.entry.path == "config.json"]


def stopping(asked: Asked, stop: threading.Event) -> Iterator[bytes]:
    yield from blocks(asked.data[: 20 * KIB])
    stop.set()
    time.sleep(1)
    yield from blocks(asked.data[20 * KIB :])


def test_files_of_another_listing_do_not_get_published(tmp_path: Path) -> None:
    larger = Shelf({**MODEL, "zzz.bin": content(5)}, failing(of(Reason.SOURCE_NOT_FOUND, 404), path="zzz.bin"))
    refusal(larger, tmp_path, parallel=1)
    (tmp_path / FOLDER / "partial" / larger.pin.key / "files" / "stray").write_text("left over")
    assert contents(brought(Shelf(MODEL), tmp_path)) == MODEL


def test_room_is_looked_for_before_the_first_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "free", lambda _: 1_000_000)
    shelf = Shelf(MODEL)
    error = refusal(shelf, tmp_path)
    assert error.reason is Reason.CACHE_FULL
    assert f"needs {TOTAL + (16 << 20)} bytes more" in error.message
    assert "has 1000000 free" in error.message
    assert shelf.asked == []


def test_what_is_there_already_takes_no_room_again(tmp_path: Path) -> None:
    shelf = Shelf(MODEL, failing(of(Reason.SOURCE_NOT_FOUND, 404), path="sub/folder/tokenizer.json"))
    assert missing_bytes(shelf, tmp_path, BRISK) == TOTAL
    refusal(shelf, tmp_path, parallel=1)
    assert missing_bytes(shelf, tmp_path, BRISK) == 3
    brought(Shelf(MODEL), tmp_path)
    assert missing_bytes(shelf, tmp_path, BRISK) == 0


def test_a_disk_that_fills_in_the_middle_is_named_and_what_has_come_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, real = [0], disk.write_at

    def write_at(fd: int, data: memoryview, at: int) -> None:
        written[0] += len(data)
        if written[0] > 500 * KIB:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(fd, data, at)

    monkeypatch.setattr(disk, "write_at", write_at)
    error = refusal(Shelf(MODEL), tmp_path, parallel=1)
    assert (error.reason, error.file) == (Reason.CACHE_FULL, FIRST)
    assert "enlarge the claim" in error.remedy
    monkeypatch.setattr(disk, "write_at", real)
    again = Shelf(MODEL)
    assert contents(brought(again, tmp_path)) == MODEL
    assert again.given < TOTAL - 400 * KIB


@pytest.mark.parametrize(
    ("code", "remedy"), [(errno.EACCES, FOLDER), (errno.EROFS, "for writing"), (errno.EIO, "volume behind the claim")]
)
def test_every_failing_volume_has_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, remedy: str
) -> None:
    def write_at(fd: int, data: memoryview, at: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(disk, "write_at", write_at)
    error = refusal(Shelf(MODEL), tmp_path)
    assert error.reason is Reason.CACHE_UNWRITABLE
    assert remedy in error.remedy
    assert os.strerror(code) in error.message


def test_progress_is_told_as_it_comes(tmp_path: Path) -> None:
    seen: list[Progress] = []

    def slow(asked: Asked) -> Iterator[bytes]:
        for block in blocks(asked.data):
            time.sleep(0.01)
            yield block

    brought(Shelf(MODEL, slow), tmp_path, report=seen.append, parallel=2)
    counts = [one.bytes for one in seen]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, TOTAL)
    assert {one.total for one in seen} == {TOTAL}
    middle = seen[len(seen) // 2]
    assert middle.rate > 0
    assert middle.file in MODEL
    assert middle.seconds_left is not None


def test_a_defect_in_a_source_ends_the_fetch_and_is_not_taken_for_the_network(tmp_path: Path) -> None:
    def fault(_: Asked) -> Iterator[bytes] | None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        brought(Shelf(MODEL, fault), tmp_path)


@dataclass
class Disk:
    """What a disk would hold after the power is cut: of each file of data, what was there when it was last synced."""

    kept: dict[Path, bytes] = field(default_factory=dict)

    def sync(self, fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        self.kept[path] = path.read_bytes()

    def cut(self, folder: Path) -> None:
        """Lose what was not synced; a file of data keeps its size, and has zeros."""
        for path in [path for path in folder.rglob("*") if path.is_file() and "parts" in path.parts]:
            path.write_bytes(self.kept.get(path, b"").ljust(path.stat().st_size, b"\0"))


@pytest.mark.parametrize("summed", [True, False])
@pytest.mark.parametrize("at", [3, 9, 14])
def test_a_power_cut_costs_no_correctness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, summed: bool
) -> None:
    power = Disk()
    monkeypatch.setattr(disk, "sync", power.sync)
    shelf = Shelf(MODEL, summed=summed)
    shelf.fault = lambda asked: raising(of(Reason.SOURCE_NOT_FOUND)) if len(shelf.asked) > at else None
    refusal(shelf, tmp_path, parallel=1)
    power.cut(tmp_path / FOLDER / "partial")
    again = Shelf(MODEL, summed=summed)
    assert contents(brought(again, tmp_path)) == MODEL
    assert again.given < TOTAL, "what was synced is not asked for again"


@pytest.mark.parametrize("tail", [b"1", b"junk\n", b"\0\0\0", b"999\n"])
def test_a_torn_list_of_segments_claims_nothing_that_is_not_there(tmp_path: Path, tail: bytes) -> None:
    shelf = Shelf(MODEL, summed=False)
    shelf.fault = lambda asked: raising(of(Reason.SOURCE_NOT_FOUND)) if asked.start >= 192 * KIB else None
    refusal(shelf, tmp_path, parallel=1)
    (listed,) = (tmp_path / FOLDER / "partial").glob(f"*/segments/{FIRST}")
    listed.write_bytes(listed.read_bytes() + tail)
    again = Shelf(MODEL, summed=False)
    again.fault = lambda asked: raising(of(Reason.SOURCE_NOT_FOUND)) if asked.start >= 512 * KIB else None
    refusal(again, tmp_path, parallel=1)
    assert min(one.start for one in again.asked if one.entry.path == FIRST) == 192 * KIB
    assert contents(brought(Shelf(MODEL, summed=False), tmp_path)) == MODEL
