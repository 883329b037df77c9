"""Bring one version of a model into a cache. Called by the command line, once for each side of a pair.

Streams write their bytes where they belong and journal each chunk (`journal`); a checksum follows behind (`part`);
when every file is checked and on the disk, one rename publishes the model (`cache`). A kill at any instant leaves what
the next run resumes from. Memory does not depend on the model: a block of at most 1 MiB per stream.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from speculative_operator.domain.jobs import progress_of
from speculative_operator.weights import disk, unpack
from speculative_operator.weights.cache import Cache
from speculative_operator.weights.crew import Crew, Stopped
from speculative_operator.weights.layers import PackedSource
from speculative_operator.weights.part import Part
from speculative_operator.weights.patience import Limits
from speculative_operator.weights.progress import Meter, Report, Teller
from speculative_operator.weights.source import Entry, Source
from speculative_operator.weights.unpack import Unpacking


def fetch(
    source: Source,
    cache: Path,
    *,
    user: str,
    expires: bool = False,
    parallel: int = 8,
    report: Report,
    limits: Limits = Limits(),  # noqa: B008, immutable
    stop: threading.Event | None = None,
) -> Path:
    """Fetch a version into the cache; returns the folder of the published version, fetched by this call or by another
    process.

    `user` is who wants it, for ever or until its mark `expires`. `report` hears of progress every `limits.tell` seconds
    and at the end. Raises WeightsError, and Stopped when `stop` is set; the bytes that have come are kept in both
    cases.
    """
    place, key, halt = Cache(cache), source.pin.key, stop or threading.Event()
    place.prepare()
    place.use(key, user, expires=expires)
    with place.lock(key, _waiting(place, key, report, limits, halt)):
        folder = place.published_folder(key)
        if folder is None:
            entries = _bring(source, place, parallel, report, limits, halt)
            folder = place.publish(source.pin, entries)
        place.use(key, user, expires=expires)
    return folder


def missing_bytes(source: Source, cache: Path) -> int:
    """Bytes of disk that fetching `source` still takes; 0 where it is published."""
    place = Cache(cache)
    if place.published_folder(source.pin.key) is not None:
        return 0
    if isinstance(source, PackedSource):
        return unpack.missing(source, place.partial(source.pin.key))
    files = place.partial(source.pin.key) / "files"
    with disk.explain_errors(cache):
        return sum(max(entry.size - disk.allocated_bytes(files / entry.path), 0) for entry in source.files())


def total_bytes(source: Source) -> int:
    """Bytes that have to come in all, as progress counts them: of compressed images in their compressed form."""
    return source.total if isinstance(source, PackedSource) else sum(entry.size for entry in source.files())


def _bring(
    source: Source, place: Cache, parallel: int, report: Report, limits: Limits, stop: threading.Event
) -> tuple[Entry, ...]:
    """Bring every file of `source` into `partial/<key>/files`, checked and synced; returns the files."""
    folder = place.partial(source.pin.key)
    disk.require_room(place.root, missing_bytes(source, place.root), limits.reserve)
    if isinstance(source, PackedSource):
        return _unpack(source, place, parallel, report, limits, stop)
    with disk.explain_errors(place.root):
        parts = [Part(entry, folder, limits.chunk) for entry in source.files()]
    meter = Meter(sum(part.entry.size for part in parts))
    meter.count_present(sum(part.entry.size for part in parts if part.sealed))
    tell = Teller(meter, folder / "progress", report, limits.tell)
    tell.now()
    Crew(source, place.root, meter, limits, stop).work(parts, parallel, _beat(place, tell, limits))
    tell.now()
    return source.files()


def _unpack(
    source: PackedSource, place: Cache, parallel: int, report: Report, limits: Limits, stop: threading.Event
) -> tuple[Entry, ...]:
    folder = place.partial(source.pin.key)
    with disk.explain_errors(place.root):
        folder.mkdir(parents=True, exist_ok=True)
    meter = Meter(source.total)
    meter.count_present(source.total - unpack.missing(source, folder))
    tell = Teller(meter, folder / "progress", report, limits.tell)
    tell.now()
    entries = Unpacking(source, place.root, folder, meter, limits, stop).work(parallel, _beat(place, tell, limits))
    tell.now()
    return entries


def _beat(place: Cache, tell: Teller, limits: Limits) -> Callable[[], None]:
    """The function to call often while bytes come: it reports progress, and raises where the volume may no longer be
    written."""

    def beat() -> None:
        tell.sometimes()
        disk.require_reserve(place.root, limits.reserve)

    return beat


def _waiting(place: Cache, key: str, report: Report, limits: Limits, stop: threading.Event) -> Callable[[], None]:
    """The function to call while another process fetches the same version: it passes on that process's progress."""
    file, after = place.partial(key) / "progress", [0.0]

    def wait() -> None:
        if stop.is_set():
            raise Stopped
        if monotonic() < after[0]:
            return
        after[0] = monotonic() + limits.tell
        try:
            progress = progress_of(file.read_text(encoding="utf-8"))
        except OSError:
            return
        if progress is not None:
            report(progress)

    return wait
