"""Bring one version of a model into a cache. Called by the command line, once for each side of a pair.

When every file is checked and on the disk (`bring`), one rename publishes the model (`cache`). A kill at any instant
leaves what the next run resumes from. Memory does not depend on the model: a block of at most 1 MiB per stream.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic

from speculative_operator.domain.jobs import progress_of
from speculative_operator.weights import disk
from speculative_operator.weights.bring import Crew, Part
from speculative_operator.weights.cache import Cache
from speculative_operator.weights.patience import Limits
from speculative_operator.weights.progress import Meter, Report, Teller
from speculative_operator.weights.source import Source


def fetch(
    source: Source,
    cache: Path,
    *,
    user: str,
    expires: bool = False,
    parallel: int = 8,
    report: Report,
    limits: Limits = Limits(),  # noqa: B008, immutable
) -> Path:
    """Fetch a version into the cache; returns the folder of the published version, fetched by this call or by another
    process.

    `user` is who wants it, for ever or until its mark `expires`. `report` hears of progress every `limits.tell` seconds
    and at the end. Raises WeightsError; the segments that have come are kept, whatever ends this.
    """
    place, key = Cache(cache), source.pin.key
    place.prepare()
    place.use(key, user, expires=expires)
    with place.lock(key, _waiting(place, key, report, limits)):
        folder = place.published_folder(key)
        if folder is None:
            _bring(source, place, parallel, report, limits)
            folder = place.publish(source.pin, source.files)
        place.use(key, user, expires=expires)
    return folder


def missing_bytes(source: Source, cache: Path, limits: Limits = Limits()) -> int:  # noqa: B008, immutable
    """Bytes of disk that fetching `source` still takes; 0 where it is published."""
    place = Cache(cache)
    if place.published_folder(source.pin.key) is not None:
        return 0
    return sum(part.bytes_missing for part in _parts(source, place, limits))


def total_bytes(source: Source) -> int:
    """Bytes of all files."""
    return sum(entry.size for entry in source.files)


def _parts(source: Source, place: Cache, limits: Limits) -> list[Part]:
    folder = place.partial(source.pin.key)
    with disk.explain_errors(place.root):
        return [Part(entry, folder, limits.segment) for entry in source.files]


def _bring(source: Source, place: Cache, parallel: int, report: Report, limits: Limits) -> None:
    """Bring every file of `source` into `partial/<key>/files`, checked and synced."""
    parts = _parts(source, place, limits)
    missing = sum(part.bytes_missing for part in parts)
    disk.require_room(place.root, missing, limits.reserve)
    folder = place.partial(source.pin.key)
    with disk.explain_errors(place.root):
        (folder / "files").mkdir(parents=True, exist_ok=True)
    meter = Meter(total_bytes(source))
    meter.count_present(meter.bytes_left - missing)
    tell = Teller(meter, folder / "progress", report, limits.tell)
    tell.now()

    def beat() -> None:
        tell.sometimes()
        disk.require_reserve(place.root, limits.reserve)

    Crew(source, place.root, meter, limits).work(parts, parallel, beat)
    tell.now()


def _waiting(place: Cache, key: str, report: Report, limits: Limits) -> Callable[[], None]:
    """The function to call while another process fetches the same version: it passes on that process's progress."""
    file, after = place.partial(key) / "progress", [0.0]

    def wait() -> None:
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
