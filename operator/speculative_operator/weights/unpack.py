"""Bring an image with compressed layers into a cache: streams that are unpacked as they come. Called by `fetch`.

Each layer grows in a folder of its own, `partial/KEY/layers/.DIGEST-…`, and gets its name by one rename when it was
checked and all its files are on the disk. A connection that breaks is taken up again where it broke; a process that
is killed leaves whole layers, and begins the others anew: the state of a decompression cannot be kept. When all layers
are there, the files of the model move to `partial/KEY/files`.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from pathlib import Path

from speculative_operator.domain.reasons import Reason
from speculative_operator.weights import disk
from speculative_operator.weights.crew import Stopped
from speculative_operator.weights.layers import Layer, PackedSource, Read, choose_model, walk
from speculative_operator.weights.patience import Limits
from speculative_operator.weights.progress import Meter
from speculative_operator.weights.source import Entry, WeightsError

_LOG = logging.getLogger(__name__)
_BEAT_SECONDS = 0.25
_AT_ONCE = 4
"""Number of layers at once; each takes a core for its decompression."""
_BLOCK = 1 << 20
_RATIO, _LEAST = 10, 256 << 20
"""Most bytes that a layer may unpack to: so many times its size, and at least so many bytes. Weights become smaller by
a third in gzip or zstd, tokenizers by nine tenths; more is no model, and would fill the disk."""
_LISTING = "listing.json"


def missing(source: PackedSource, folder: Path) -> int:
    """Bytes of layers that have still to come: the least that they take on the disk."""
    whole = {layer.digest: layer for layer in source.layers if not (_place(folder, layer) / _LISTING).exists()}
    return sum(layer.size for layer in whole.values())


def most_unpacked(layer: Layer) -> int:
    """Most bytes that a layer may unpack to."""
    return max(layer.size * _RATIO, _LEAST)


def _place(folder: Path, layer: Layer) -> Path:
    return folder / "layers" / layer.digest.replace(":", "-")


class Unpacking:
    """Works off the layers of `source` into `folder`, which is `partial/KEY` of the cache at `root`."""

    def __init__(
        self, source: PackedSource, root: Path, folder: Path, meter: Meter, limits: Limits, stop: threading.Event
    ) -> None:
        self._source, self._root, self._folder = source, root, folder
        self._meter, self._limits, self._stop = meter, limits, stop
        self._over = threading.Event()
        self._queue: deque[Layer] = deque()
        self._failure: BaseException | None = None
        self._came: dict[str, int] = {}

    def work(self, parallel: int, beat: Callable[[], None]) -> tuple[Entry, ...]:
        """Unpack all layers; returns the files of the model, all in `files`. Raises the first failure, or Stopped.
        `beat` is called often."""
        for again in (False, True):
            self._all_layers(parallel, beat)
            with disk.explain_errors(self._root):
                entries = self._move(last=again)
            if entries is not None:
                return entries
        raise AssertionError("the last try returns or raises")

    def _all_layers(self, parallel: int, beat: Callable[[], None]) -> None:
        with disk.explain_errors(self._root):
            (self._folder / "layers").mkdir(parents=True, exist_ok=True)
            for rest in (self._folder / "layers").glob(".*"):
                shutil.rmtree(rest, ignore_errors=True)
            left = {one.digest: one for one in self._source.layers if not (self._at(one) / _LISTING).exists()}
        self._queue.extend(left.values())
        count = min(parallel, _AT_ONCE, len(self._queue))
        threads = [threading.Thread(target=self._toil, name="unpack", daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        try:
            while (busy := next((one for one in threads if one.is_alive()), None)) and self._failure is None:
                if self._stop.is_set():
                    raise Stopped
                beat()
                busy.join(_BEAT_SECONDS)
        except BaseException:
            self._over.set()
            raise
        finally:
            for thread in threads:
                thread.join(_BEAT_SECONDS)
        if self._failure is not None:
            raise self._failure

    def _at(self, layer: Layer) -> Path:
        return _place(self._folder, layer)

    def _toil(self) -> None:
        try:
            while not self._over.is_set():
                self._bring(self._queue.popleft())
        except (IndexError, Stopped):
            return
        except BaseException as error:  # carried to the caller's thread
            self._failure = self._failure or error
            self._over.set()

    def _bring(self, layer: Layer) -> None:
        try:
            self._unpack(layer)
        except WeightsError as error:
            if error.reason is not Reason.CHECKSUM_MISMATCH:
                raise
            _LOG.warning("%s; fetching it again", error.message)
            self._unpack(layer)

    def _unpack(self, layer: Layer) -> None:
        growing = self._folder / "layers" / f".{self._at(layer).name}-{time.time_ns()}"
        listing: dict[str, int] = {}

        def visit(path: str, size: int, read: Read) -> None:
            if self._over.is_set():
                raise Stopped
            disk.require_room(self._root, size, self._limits.reserve)
            self._write(growing / "files" / path, size, read)
            listing[path] = size

        blocks = self._blocks(layer)
        try:
            with disk.explain_errors(self._root, "", lambda: self._meter.bytes_left):
                (growing / "files").mkdir(parents=True)
                walk(self._source.pin, layer, blocks, visit, most_unpacked(layer))
                with (growing / _LISTING).open("w", encoding="utf-8") as file:
                    json.dump(listing, file)
                    file.flush()
                    disk.sync(file.fileno())
                for below, _, _ in os.walk(growing):
                    disk.sync_folder(Path(below))
                growing.rename(self._at(layer))
                disk.sync_folder(growing.parent)
        except BaseException:
            self._meter.count_lost(self._came.pop(layer.digest, 0))
            raise
        finally:
            blocks.close()
            shutil.rmtree(growing, ignore_errors=True)  # what is begun anew only takes room

    def _write(self, target: Path, size: int, read: Read) -> None:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o664)
        except (NotADirectoryError, IsADirectoryError, FileExistsError) as error:
            raise ValueError(f"{target.name} is a file and a folder") from error
        try:
            at = 0
            while at < size:
                block = read(min(_BLOCK, size - at))
                if not block:
                    raise EOFError(f"{target.name} ends too early")
                if self._over.is_set():
                    raise Stopped
                disk.write_at(fd, block, at)
                at += len(block)
            disk.sync(fd)
        finally:
            os.close(fd)

    def _blocks(self, layer: Layer) -> Generator[bytes, None, None]:
        """Yield the layer from its first byte to its last; a connection that breaks is taken up again."""
        at, failures, name = 0, 0, f"layer {layer.digest[:19]}"
        while at < layer.size:
            began = at
            try:
                for block in self._source.read(layer.entry, at, layer.size):
                    if self._over.is_set():
                        raise Stopped
                    at += len(block)
                    self._came[layer.digest] = at
                    self._meter.count_received(len(block), name)
                    yield block
            except WeightsError as error:
                error.file = error.file or name
                if not error.transient:
                    raise
                failures = 1 if at - began >= self._limits.progress else failures + 1
                if self._over.wait(self._limits.wait_after(error, failures)):
                    raise Stopped from None

    def _move(self, *, last: bool) -> tuple[Entry, ...] | None:
        """Move the model's files into `files`; None where some did not survive a crash, and their layer is
        forgotten."""
        files: dict[str, tuple[int, Layer]] = {}
        for layer in self._source.layers:
            listing = json.loads((self._at(layer) / _LISTING).read_text(encoding="utf-8"))
            files |= {path: (size, layer) for path, size in listing.items()}
        home, entries = choose_model(self._source.pin, {path: size for path, (size, _) in files.items()})
        lost = False
        for entry in entries:
            layer = files[home + entry.path][1]
            there, here = self._at(layer) / "files" / (home + entry.path), self._folder / "files" / entry.path
            if _size(there) == entry.size:
                here.parent.mkdir(parents=True, exist_ok=True)
                there.replace(here)
            elif _size(here) != entry.size:
                lost = True
                _LOG.warning("%s on the disk is damaged; fetching its layer again", entry.path)
                if last:
                    raise OSError(f"{entry.path} is missing after it was written")
                shutil.rmtree(self._at(layer))
                break
        return None if lost else entries


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
