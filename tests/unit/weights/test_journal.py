"""The journal: whatever a kill or a power cut leaves, a resumed fetch gives the exact files."""

from __future__ import annotations

import contextlib
import random
import shutil
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.weights.shelf import Shelf, content, ignored

from speculative_operator.own_folder import FOLDER
from speculative_operator.weights import disk
from speculative_operator.weights.cache import Cache
from speculative_operator.weights.fetch import fetch
from speculative_operator.weights.journal import Journal, header, parse
from speculative_operator.weights.patience import Limits
from speculative_operator.weights.source import Entry, WeightsError

ENTRY = Entry("a/model.safetensors", 1000, "ab" * 32, "etag")
CHUNK = 100
TINY = Limits(chunk=CHUNK, longest_run=3 * CHUNK, runs_per_stream=1, pause=0.0)


def written(*lines: str, entry: Entry = ENTRY) -> bytes:
    return header(entry, CHUNK) + "".join(line + "\n" for line in lines).encode()


def test_a_journal_reads_what_it_wrote(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal", ENTRY, CHUNK)
    journal.claim(3, 0xDEADBEEF)
    journal.claim(9, 1)
    journal.claim(3, 7)
    journal.close()
    again = Journal(tmp_path / "journal", ENTRY, 999)
    assert (again.claims.chunk, again.claims.crcs, again.claims.whole) == (CHUNK, {3: 7, 9: 1}, None)
    again.finish()
    again.close()
    assert (tmp_path / "journal").read_bytes() == written(
        "chunk 3 deadbeef", "chunk 9 00000001", "chunk 3 00000007", f"whole {'ab' * 32}"
    )


def test_claims_after_a_torn_line_count(tmp_path: Path) -> None:
    (tmp_path / "journal").write_bytes(written("chunk 1 0000000a") + b"chunk 2 00")
    journal = Journal(tmp_path / "journal", ENTRY, CHUNK)
    journal.claim(3, 11)
    journal.close()
    assert (tmp_path / "journal").read_bytes() == written("chunk 1 0000000a", "chunk 3 0000000b")


@pytest.mark.parametrize(
    "line",
    [
        "chunk 10 00000000",
        "chunk 1 0000000",
        "chunk -1 00000000",
        "whole -",
        f"whole {'cd' * 32}",
        "",
        "\0\0",
        "chunk 1",
    ],
)
def test_nothing_after_a_line_that_cannot_be_is_believed(line: str) -> None:
    claims, good = parse(written("chunk 1 0000000a", line, "chunk 2 0000000b"), ENTRY)
    assert claims is not None
    assert claims.crcs == {1: 10}
    assert claims.whole is None
    assert good == len(written("chunk 1 0000000a"))


@pytest.mark.parametrize(
    "other",
    [
        Entry("b", 1000, "ab" * 32, "etag"),
        Entry("a/model.safetensors", 1001, "ab" * 32, "etag"),
        Entry("a/model.safetensors", 1000, "cd" * 32, "etag"),
        Entry("a/model.safetensors", 1000, "ab" * 32, "changed"),
    ],
)
def test_a_journal_of_another_version_is_none(other: Entry) -> None:
    assert parse(written("chunk 1 0000000a", entry=other), ENTRY) == (None, 0)


@given(st.integers(0, len(written("chunk 1 0000000a", "chunk 2 0000000b"))))
def test_a_beginning_of_a_journal_claims_a_beginning(length: int) -> None:
    text = written("chunk 1 0000000a", "chunk 2 0000000b")[:length]
    claims, good = parse(text, ENTRY)
    whole = text.count(b"\n")
    assert good == (text.rfind(b"\n") + 1)
    assert (claims and claims.crcs) == (None if whole == 0 else dict([(1, 10), (2, 11)][: whole - 1]))


@given(st.binary(max_size=300))
def test_no_text_breaks_the_reader(text: bytes) -> None:
    for given_text in (text, written() + text):
        _, good = parse(given_text, ENTRY)
        assert 0 <= good <= len(given_text)


class Crash(BaseException):
    """The process ends here."""


@dataclass
class Operation:
    """One change of a file, as the disk was asked for it."""

    path: Path
    kind: str
    at: int = 0
    data: bytes = b""


@dataclass
class Tape:
    """A disk that remembers the order of all changes."""

    operations: list[Operation] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        real = {name: getattr(disk, name) for name in ("write_at", "append", "resize", "sync")}

        def note(kind: str, fd: int, at: int = 0, data: bytes = b"") -> None:
            self.operations.append(Operation(Path(f"/proc/self/fd/{fd}").readlink(), kind, at, data))

        def write_at(fd: int, data: memoryview, at: int) -> None:
            with self.lock:
                note("write", fd, at, bytes(data))
                real["write_at"](fd, data, at)

        def append(fd: int, line: bytes) -> None:
            with self.lock:
                note("write", fd, Path(f"/proc/self/fd/{fd}").stat().st_size, line)
                real["append"](fd, line)

        def resize(fd: int, count: int) -> None:
            with self.lock:
                note("resize", fd, count)
                real["resize"](fd, count)

        def sync(fd: int) -> None:
            with self.lock:
                note("sync", fd)

        with mock.patch.multiple(disk, write_at=write_at, append=append, resize=resize, sync=sync):
            yield


def applied(data: bytearray, operation: Operation, share: float = 1.0) -> None:
    """What the first `share` of a change makes of a file."""
    if operation.kind == "resize":
        data[operation.at :] = bytes(max(operation.at - len(data), 0))
    elif operation.kind == "write":
        piece = operation.data[: round(len(operation.data) * share)]
        data.extend(bytes(max(operation.at + len(piece) - len(data), 0)))
        data[operation.at : operation.at + len(piece)] = piece


MODELS = st.dictionaries(st.sampled_from(["a", "b/c", "d"]), st.integers(0, 900).map(content), min_size=1)


def taped(model: dict[str, bytes], root: Path, parallel: int, summed: bool) -> list[Operation]:
    """Changes of a fetch, up to its publication, relative to `root`."""
    tape = Tape()
    shelf, unpublished = Shelf(model, block=37, summed=summed), mock.patch.object(Cache, "publish", side_effect=Crash)
    with tape.running(), unpublished, contextlib.suppress(Crash):
        fetch(shelf, root, user="x", report=ignored, parallel=parallel, limits=TINY)
    return [Operation(one.path.relative_to(root), one.kind, one.at, one.data) for one in tape.operations]


def resumed(files: dict[Path, bytearray], model: dict[str, bytes], summed: bool) -> tuple[dict[str, bytes], Shelf]:
    """What a fetch publishes that finds `files`, and whom it asked."""
    with tempfile.TemporaryDirectory() as folder, mock.patch("os.fsync"):
        root, shelf = Path(folder), Shelf(model, block=41, summed=summed)
        Cache(root).prepare()
        for path, data in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(data)
        published = fetch(shelf, root, user="x", report=ignored, parallel=2, limits=TINY)
        return {path: (published / path).read_bytes() for path in model}, shelf


# How many changes there are, and in which order, is for threads to settle: nothing that is drawn depends on it.
SHARES = st.floats(0, 1, exclude_max=True)


@settings(max_examples=30, deadline=None)
@given(MODELS, st.integers(1, 3), st.booleans(), SHARES, st.floats(0, 1))
def test_after_a_kill_between_any_two_bytes_the_files_are_exact_and_no_claimed_chunk_comes_again(
    model: dict[str, bytes], parallel: int, summed: bool, before: float, of_last: float
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        operations = taped(model, Path(folder), parallel, summed)
    upto = int(before * len(operations))
    files: dict[Path, bytearray] = {}
    for operation in operations[:upto]:
        applied(files.setdefault(operation.path, bytearray()), operation)
    last = operations[upto]
    applied(files.setdefault(last.path, bytearray()), last, of_last)
    found, shelf = resumed(files, model, summed)
    assert found == model
    entries = {entry.path: entry for entry in shelf.files()}
    for path, text in files.items():
        if "journal" in path.parts:
            entry = entries[path.relative_to(Path(FOLDER, "partial") / shelf.pin.key / "journal").as_posix()]
            claims, _ = parse(bytes(text), entry)
            claimed = set(claims.crcs) if claims else set()
            spans = [range(one.start, one.end) for one in shelf.asked if one.entry.path == entry.path]
            assert not claimed & {at // CHUNK for span in spans for at in span}


@settings(max_examples=30, deadline=None)
@given(MODELS, st.integers(1, 3), st.booleans(), st.floats(0, 1), st.integers(), st.sampled_from([0.0, 0.3, 0.7, 0.95]))
def test_after_a_power_cut_that_loses_any_unsynced_changes_the_files_are_exact(
    model: dict[str, bytes], parallel: int, summed: bool, before: float, seed: int, survival: float
) -> None:
    """`before`: share of the changes that were made; `survival`: chance of an unsynced one to survive."""
    with tempfile.TemporaryDirectory() as folder:
        operations = taped(model, Path(folder), parallel, summed)
    upto, chance = round(before * len(operations)), random.Random(seed)
    synced = {one.path: index for index, one in enumerate(operations[:upto]) if one.kind == "sync"}
    files: dict[Path, bytearray] = {}
    for index, operation in enumerate(operations[:upto]):
        if index <= synced.get(operation.path, -1):
            applied(files.setdefault(operation.path, bytearray()), operation)
        elif chance.random() < survival:
            applied(
                files.setdefault(operation.path, bytearray()), operation, chance.choice([1.0, 1.0, chance.random()])
            )
    found, _ = resumed(files, model, summed)
    assert found == model


@contextlib.contextmanager
def crashing(after: int) -> Iterator[None]:
    """End at the change of the tree with that number."""
    left = [after]

    def counted(real: object) -> object:
        def call(*arguments: object, **options: object) -> object:
            if left[0] == 0:
                raise Crash
            left[0] -= 1
            return real(*arguments, **options)  # type: ignore[operator]

        return call

    with contextlib.ExitStack() as stack:
        for owner, name in ((Path, "rename"), (Path, "chmod"), (Path, "unlink"), (Path, "open"), (shutil, "rmtree")):
            stack.enter_context(mock.patch.object(owner, name, counted(getattr(owner, name))))
        stack.enter_context(mock.patch.object(disk, "sync_folder", counted(disk.sync_folder)))
        yield


@pytest.mark.parametrize("after", range(17))
def test_a_crash_within_publication_leaves_all_or_nothing(tmp_path: Path, after: int) -> None:
    model = {"a": content(150), "b/c": content(99)}
    Cache(tmp_path).prepare()
    with contextlib.suppress(Crash), crashing(after):
        fetch(Shelf(model), tmp_path, user="x", report=ignored, limits=TINY)
    final = tmp_path / FOLDER / "models" / Shelf(model).pin.key
    if final.exists():
        assert {path: (final / path).read_bytes() for path in model} == model
    again = Shelf(model)
    final = fetch(again, tmp_path, user="x", report=ignored, limits=TINY)
    assert {path: (final / path).read_bytes() for path in model} == model
    assert list((tmp_path / FOLDER / "partial").iterdir()) == []
    if after >= 11:
        assert again.asked == []


def test_an_entry_that_leaves_its_folder_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(WeightsError):
        fetch(Shelf({"../../escaped": b"x"}), tmp_path, user="x", report=ignored, limits=TINY)
    assert not list(tmp_path.rglob("escaped"))
