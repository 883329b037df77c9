"""The threads that bring a model's bytes: runs of chunks, retries, stalls. Made by `fetch`, once per model.

A thread that waits for a source cannot be interrupted. So a stream that stalls is not ended but given up: its run goes
back to the queue, a new thread takes the old one's place, and the old one finds, whenever it wakes, that it may no
longer write.
"""

from __future__ import annotations

import logging
import threading
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from speculative_operator.domain.reasons import Reason
from speculative_operator.weights import disk
from speculative_operator.weights.part import Part
from speculative_operator.weights.patience import Limits
from speculative_operator.weights.progress import Meter
from speculative_operator.weights.source import Source, WeightsError

_LOG = logging.getLogger(__name__)
_BEAT_SECONDS = 0.25


class Stopped(Exception):  # noqa: N818, an order rather than an error
    """The fetch was asked to end; what has come is kept."""


class _GivenUp(Exception):  # noqa: N818
    """This thread's stream stalled and another has its run."""


@dataclass(eq=False)
class Run:
    """Consecutive chunks of a file, asked for in one request. Changed only by the one who works on it."""

    part: Part
    at: int
    """Next byte to come."""
    end: int
    claimed: bool = False
    """Claimed by a former run: read from the disk first."""
    crc: int = 0
    """CRC-32 of the bytes before `at` in its chunk."""
    failures: int = 0
    """Number of failures in a row."""


@dataclass(eq=False)
class Stream:
    """One request under way."""

    run: Run
    began: int
    marked: int
    """`run.at` when the present window of observation began, at `mark`."""
    mark: float = field(default_factory=monotonic)
    last: float = field(default_factory=monotonic)
    """When the last bytes came."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    over: bool = False
    """True once its thread has ended the run: then nobody gives the stream up."""
    given_up: bool = False


class Crew:
    """Works off runs with `parallel` threads."""

    def __init__(self, source: Source, root: Path, meter: Meter, limits: Limits, stop: threading.Event) -> None:
        self._source = source
        self._root = root
        self._meter = meter
        self._limits = limits
        self._stop = stop
        self._over = threading.Event()
        self._change = threading.Condition()
        self._longest = limits.longest_run
        self._queue: deque[Run] = deque()
        self._active = 0
        self._streams: list[Stream] = []
        self._failure: BaseException | None = None
        self._resume_at = 0.0

    def work(self, parts: Sequence[Part], parallel: int, beat: Callable[[], None]) -> None:
        """Return when all parts are sealed; raise the first failure, or Stopped. `beat` is called often (0.25 s)."""
        self._longest = self._limits.run(self._meter.bytes_left, parallel)
        self._queue.extend(run for part in parts if not part.sealed for run in _runs_of(part, self._longest))
        threads = [self._hire() for _ in range(parallel if self._queue else 0)]
        try:
            while not self._is_finished():
                if self._stop.is_set():
                    raise Stopped
                self._give_up_stalled()
                beat()
        finally:
            self._over.set()
            for stream in tuple(self._streams):
                with stream.lock:
                    stream.given_up = True
            for thread in threads:
                thread.join(_BEAT_SECONDS)
        if self._failure is not None:
            raise self._failure

    def _is_finished(self) -> bool:
        with self._change:
            self._change.wait(_BEAT_SECONDS if self._queue or self._active else 0)
            return self._failure is not None or not (self._queue or self._active)

    def _hire(self) -> threading.Thread:
        thread = threading.Thread(target=self._toil, name="fetch", daemon=True)
        thread.start()
        return thread

    def _toil(self) -> None:
        while (run := self._take()) is not None:
            try:
                self._do(run)
            except _GivenUp:
                return
            except Stopped:
                pass
            except BaseException as error:  # carried to the caller's thread
                self._fail(error)
            with self._change:
                self._active -= 1
                self._change.notify_all()

    def _take(self) -> Run | None:
        with self._change:
            while not self._queue and self._active and not self._over.is_set():
                self._change.wait(_BEAT_SECONDS)
            if self._over.is_set() or not self._queue:
                return None
            self._active += 1
            return self._queue.popleft()

    def _fail(self, error: BaseException) -> None:
        with self._change:
            self._failure = self._failure or error
            self._over.set()
            self._change.notify_all()

    def _do(self, run: Run) -> None:
        with disk.explain_errors(self._root, run.part.entry.path, self._missing):
            if run.claimed:
                self._keep(run)
            else:
                self._fetch(run)
            try:
                run.part.advance()
            except WeightsError as error:
                if run.part.mismatches > 1:
                    raise
                _LOG.warning("%s; fetching it again", error.message)
                self._meter.count_lost(run.part.entry.size)
                self._push(_runs_of(run.part, self._longest))

    def _missing(self) -> int:
        return self._meter.bytes_left

    def _push(self, runs: Iterable[Run]) -> None:
        with self._change:
            self._queue.extendleft(reversed(list(runs)))
            self._change.notify_all()

    def _keep(self, run: Run) -> None:
        for index in range(run.at // run.part.chunk, -(-run.end // run.part.chunk)):
            if self._over.is_set():
                raise Stopped
            at, end = run.part.span(index)
            if run.part.verify_chunk(index):
                self._meter.count_present(end - at)
            else:
                _LOG.warning("%s: bytes %d to %d are damaged; fetching them again", run.part.entry.path, at, end)
                self._push([Run(run.part, at, end)])

    def _fetch(self, run: Run) -> None:
        while run.at < run.end:
            self._pause(max(self._resume_at - monotonic(), 0.0))
            stream = Stream(run, began=run.at, marked=run.at)
            with self._change:
                self._streams.append(stream)
            try:
                error = self._read(stream)
            finally:
                self._retire(stream)  # whatever ended it: a run that is another's by now is not counted here
            if error is not None:
                self._hold_off(run, error, run.at - stream.began)

    def _retire(self, stream: Stream) -> None:
        with self._change:
            self._streams.remove(stream)
        with stream.lock:
            stream.over = True
            if stream.given_up:
                raise _GivenUp

    def _read(self, stream: Stream) -> WeightsError | None:
        """Store the bytes that the stream brings; returns the transient error that ended it, or None."""
        run, path = stream.run, stream.run.part.entry.path
        blocks: Iterator[bytes] | None = None
        try:
            blocks = self._source.read(run.part.entry, run.at, run.end)
            for block in blocks:
                self._store(stream, block)
        except WeightsError as error:
            error.file = error.file or path
            if not error.transient:
                raise
            return error
        except OSError as error:
            return _cut_error(path, str(error) or type(error).__name__)
        finally:
            if isinstance(blocks, Generator):
                blocks.close()  # a connection in the middle of an answer is of no use to anybody
        return _cut_error(path, f"the connection ended {run.end - run.at} bytes early") if run.at < run.end else None

    def _store(self, stream: Stream, block: bytes) -> None:
        run = stream.run
        with stream.lock, disk.explain_errors(self._root, run.part.entry.path, self._missing):
            if stream.given_up:
                raise _GivenUp
            if self._over.is_set():
                raise Stopped
            fd, left = run.part.open(), memoryview(block)[: run.end - run.at]
            while left:
                index = run.at // run.part.chunk
                _, end = run.part.span(index)
                piece = left[: end - run.at]
                disk.write_at(fd, piece, run.at)
                run.crc, run.at, left = zlib.crc32(piece, run.crc), run.at + len(piece), left[len(piece) :]
                self._meter.count_received(len(piece), run.part.entry.path)
                if run.at == end:
                    run.part.had(index, run.crc)
                    run.crc = 0
            stream.last = monotonic()

    def _hold_off(self, run: Run, error: WeightsError, gained: int) -> None:
        """Wait after a failure for as long as the limits say; raise the error when another attempt is worth no more."""
        run.failures = 1 if gained >= self._limits.progress else run.failures + 1
        seconds = self._limits.wait_after(error, run.failures)
        if error.retry_after is not None or error.reason is Reason.SOURCE_THROTTLED:
            self._resume_at = max(self._resume_at, monotonic() + seconds)
        else:
            self._pause(seconds)

    def _pause(self, seconds: float) -> None:
        if self._over.wait(seconds):
            raise Stopped

    def _give_up_stalled(self) -> None:
        for stream in tuple(self._streams):
            if stream.lock.acquire(blocking=False):  # one that is writing does not stall
                try:
                    if not (stream.over or stream.given_up) and self._stalls(stream):
                        stream.given_up = True
                        self._replace(stream)
                finally:
                    stream.lock.release()

    def _stalls(self, stream: Stream) -> bool:
        now, limit = monotonic(), self._limits.stall
        if now - stream.last >= limit:
            return True
        if now - stream.mark < limit:
            return False
        dripped = stream.run.at - stream.marked < self._limits.slowest * (now - stream.mark)
        stream.mark, stream.marked = now, stream.run.at
        return dripped

    def _replace(self, stream: Stream) -> None:
        run = stream.run
        gained = run.at - stream.began >= self._limits.progress
        anew = Run(run.part, run.at, run.end, crc=run.crc, failures=1 if gained else run.failures + 1)
        error = _cut_error(run.part.entry.path, f"the source sent almost nothing for {self._limits.stall:.0f} s")
        if anew.failures >= self._limits.attempts:
            error.message += f", {anew.failures} times in a row"
            self._fail(error)
            return
        _LOG.warning("%s: %s; requesting it again", error.file, error.message)
        with self._change:
            self._active -= 1
        self._push([anew])
        self._hire()


def _runs_of(part: Part, longest: int) -> list[Run]:
    """The runs that a file needs, in the order of its bytes; chunks that a former run claims are checked first of
    all."""
    runs: list[Run] = []
    for index in range(part.chunks):
        at, end = part.span(index)
        claimed = index in part.claimed
        if runs and runs[-1].claimed == claimed and end - runs[-1].at <= max(longest, part.chunk):
            runs[-1].end = end
        else:
            runs.append(Run(part, at, end, claimed))
    return runs or [Run(part, 0, 0)]


def _cut_error(path: str, message: str) -> WeightsError:
    """The error of a connection that ended or went silent while `path` came."""
    return WeightsError(
        Reason.SOURCE_UNREACHABLE, message, file=path, remedy="check the network, the proxy and the state of the source"
    )
