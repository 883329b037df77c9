"""Bring every file of one version into a cache, by segments of a fixed size and several threads. Called by `fetch`.

A file grows in `parts/`, at its full length from the start. Once a segment is on the disk (fsync), its number is
appended to the file's list in `segments/`; who goes on after a kill believes the list and asks for the rest. A file
without gaps is read once more against the checksum that its source tells, then renamed into `files/`: so what lies
there is whole. The library of the hub does neither: it begins an interrupted file anew, and checks none.

Sources tell the SHA-256 of whatever is large. Of the small files of a hub, which lie in git, they tell the git object
id: the SHA-1 of `blob SIZE NUL` and the content (git-hash-object(1)), as `git:...` in the entry's etag. Without either
there is nothing to hold a file against but its size.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

from speculative_operator.domain.reasons import Reason
from speculative_operator.weights import disk
from speculative_operator.weights.patience import Limits, steadily
from speculative_operator.weights.progress import Meter
from speculative_operator.weights.source import Entry, Source, WeightsError, check_path

FOLDERS = frozenset({"files", "parts", "segments"})
"""Folders in that of a version that grows."""
_LOG = logging.getLogger(__name__)
_BEAT_SECONDS = 0.25
_BLOCK = 1 << 20
_GIT = re.compile(r"git:([0-9a-f]{40})")


class Stopped(BaseException):
    """The program was asked to end; what has come is kept. No `except Exception` on the way takes it for an error."""


class Part:
    """One file of a version. Safe to use from several threads, each with segments of its own."""

    def __init__(self, entry: Entry, folder: Path, segment: int) -> None:
        """Read what a former run left in `folder`, and write nothing. Raises WeightsError and OSError."""
        check_path(entry.path)
        self.entry = entry
        self.wrong = 0
        """How often the checksum was another one."""
        self._segment = segment
        self._whole, self._part, self._list = (folder / name / entry.path for name in ("files", "parts", "segments"))
        self.sealed = _size(self._whole) == entry.size
        """True once the file is finished: checked, and on the disk."""
        self._lock = threading.Lock()
        self._head = f"segments of {segment}"
        self._missing = self._all - self._listed()

    @property
    def _all(self) -> set[int]:
        return set(range(-(-self.entry.size // self._segment)))

    def _listed(self) -> set[int]:
        """Segments that the list calls complete; a last line without its end does not count."""
        if _size(self._part) != self.entry.size:
            return set()
        try:
            text = self._list.read_bytes().decode("utf-8", "replace")
        except FileNotFoundError:  # none yet, or whoever brings the file has just finished it
            return set()
        head, *lines = text.split("\n")[:-1] or [""]
        return {int(line) for line in lines if line.isdecimal()} if head == self._head else set()

    @property
    def bytes_missing(self) -> int:
        """Bytes that are still to come."""
        return 0 if self.sealed else sum(end - at for at, end in map(self.span, self._missing))

    def span(self, number: int) -> tuple[int, int]:
        """First byte of a segment, and the one after its last."""
        return number * self._segment, min((number + 1) * self._segment, self.entry.size)

    def begin(self) -> list[int]:
        """Make file and list, or clear them of what does not count; the segments to bring. A file that needs none may
        be sealed."""
        if self.sealed:
            return []
        done = self._all & self._listed()
        self._missing = self._all - done
        for path in (self._whole, self._part, self._list):
            path.parent.mkdir(parents=True, exist_ok=True)
        with self._list.open("wb") as file:
            file.write("".join(f"{line}\n" for line in (self._head, *sorted(done))).encode())
            file.flush()
            disk.sync(file.fileno())  # first: an older list would speak of a file that is no more
        if not done:
            with self._part.open("wb") as file:
                file.truncate(self.entry.size)
        return sorted(self._missing)

    @contextmanager
    def opened(self) -> Iterator[int]:
        """A descriptor to write the bytes of a segment to; they are on the disk at the end."""
        fd = os.open(self._part, os.O_RDWR | os.O_CLOEXEC)
        try:
            yield fd
            disk.sync(fd)
        finally:
            os.close(fd)

    def note(self, number: int) -> bool:
        """Note that a segment is on the disk; True where it was the last one."""
        with self._lock:
            with self._list.open("ab") as file:
                file.write(b"%d\n" % number)
            self._missing.discard(number)
            return not self._missing

    def seal(self) -> None:
        """Finish the file. Raises WeightsError where it is not what its source announced; all of it is forgotten
        then."""
        kind, wanted = _kind_and_value(self.entry)
        digest = _digest(self._part, self.entry, kind) if kind else ""
        if digest != wanted:
            self.wrong += 1
            self._part.unlink()
            raise WeightsError(
                Reason.CHECKSUM_MISMATCH,
                f"the {kind} is {digest} instead of {wanted}",
                file=self.entry.path,
                remedy="the source, a proxy or a mirror changed the file: compare it at its source",
            )
        self._part.rename(self._whole)
        self._list.unlink()
        self.sealed = True


def _size(path: Path) -> int | None:
    """Bytes of the file at `path`; None where there is none, also when it goes at this moment."""
    try:
        return path.stat().st_size if path.is_file() else None
    except FileNotFoundError:
        return None


def _kind_and_value(entry: Entry) -> tuple[str, str]:
    """Kind (`SHA-256`, `git object id`, or empty) and value of the checksum that the source tells."""
    if entry.sha256:
        return "SHA-256", entry.sha256.lower()
    git = _GIT.fullmatch(entry.etag)
    return ("git object id", git[1]) if git else ("", "")


def _digest(path: Path, entry: Entry, kind: str) -> str:
    begin = hashlib.sha256() if kind == "SHA-256" else hashlib.sha1(b"blob %d\0" % entry.size, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            begin.update(block)
    return begin.hexdigest()


class Crew:
    """Brings parts of one source to the disk of `root` by several threads."""

    def __init__(self, source: Source, root: Path, meter: Meter, limits: Limits) -> None:
        self._source, self._root, self._meter, self._limits = source, root, meter, limits
        self._queue: deque[tuple[Part, int]] = deque()
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._resume_at = 0.0

    def work(self, parts: Iterable[Part], parallel: int, beat: Callable[[], None]) -> None:
        """Return when all parts are sealed; raise the first failure. `beat` is called often (0.25 s)."""
        for part in parts:
            self._push(part)
        threads = [threading.Thread(target=self._toil, name="fetch", daemon=True) for _ in range(parallel)]
        for thread in threads:
            thread.start()
        try:
            while self._failure is None and (alive := [thread for thread in threads if thread.is_alive()]):
                alive[0].join(_BEAT_SECONDS)
                beat()
        finally:
            self._over.set()
            self._join(threads)
        if self._failure is not None:
            raise self._failure

    @staticmethod
    def _join(threads: Sequence[threading.Thread]) -> None:
        """Wait for the threads a moment; one that waits for a source writes nothing when it wakes."""
        until = monotonic() + _BEAT_SECONDS
        for thread in threads:
            thread.join(max(until - monotonic(), 0.0))

    def _push(self, part: Part) -> None:
        """Queue what a part needs; one that needs no byte is sealed here."""
        with self._explained(part):
            numbers = part.begin()
            if not numbers and not part.sealed:
                self._seal(part)
        self._queue.extend((part, number) for number in numbers)

    def _toil(self) -> None:
        try:
            while self._queue and not self._over.is_set():
                try:
                    part, number = self._queue.popleft()
                except IndexError:  # another thread was first
                    return
                self._bring(part, number)
        except Stopped:
            return
        except BaseException as error:  # carried to the caller's thread
            self._failure = self._failure or error
            self._over.set()

    def _bring(self, part: Part, number: int) -> None:
        at, end = part.span(number)
        with self._explained(part), part.opened() as fd:
            self._pause(self._resume_at - monotonic())
            for block in steadily(self._source, part.entry, (at, end), self._limits, self._hold_off):
                at = self._store(part, fd, block, at)
        with self._explained(part):
            if part.note(number):
                self._seal(part)

    def _store(self, part: Part, fd: int, block: bytes, at: int) -> int:
        """Write a block; returns the byte after it."""
        if self._over.is_set():
            raise Stopped
        with self._explained(part):
            disk.write_at(fd, block, at)
        self._meter.count_received(len(block), part.entry.path)
        return at + len(block)

    def _seal(self, part: Part) -> None:
        try:
            part.seal()
        except WeightsError as error:
            if part.wrong > 1:
                raise
            _LOG.warning("%s: %s; fetching it again", part.entry.path, error.message)
            self._meter.count_present(-part.entry.size)
            self._push(part)

    def _hold_off(self, error: WeightsError, seconds: float) -> None:
        """Wait after a failure; where the source wants to be left alone, with every thread."""
        until = monotonic() + seconds
        if error.retry_after is not None or error.reason is Reason.SOURCE_THROTTLED:
            self._resume_at = max(self._resume_at, until)
        self._pause(max(until, self._resume_at) - monotonic())

    def _pause(self, seconds: float) -> None:
        if seconds > 0 and self._over.wait(seconds):
            raise Stopped

    @contextmanager
    def _explained(self, part: Part) -> Iterator[None]:
        with disk.explain_errors(self._root, part.entry.path, lambda: self._meter.bytes_left):
            yield
