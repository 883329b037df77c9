"""Bring one version of a model into a cache. Called by the command line, once for each side of a pair.

When every file is checked and on the disk (`bring`), one rename publishes the model (`cache`). A kill at any instant
leaves what the next run resumes from. Memory does not depend on the model: a block of at most 1 MiB per stream.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from speculative_operator.weights import disk
from speculative_operator.weights.bring import Crew, Part
from speculative_operator.weights.cache import Cache
from speculative_operator.weights.patience import Limits
from speculative_operator.weights.progress import Meter
from speculative_operator.weights.source import Source, WeightsError


def fetch(
    source: Source,
    cache: Path,
    meter: Meter,
    *,
    user: str,
    expires: bool = False,
    parallel: int = 8,
    limits: Limits = Limits(),  # noqa: B008, immutable
) -> Path:
    """Fetch a version into the cache; returns the folder of the published version, fetched by this call or by another
    process.

    `user` is who wants it, for ever or until its mark `expires`. `meter` counts its bytes and tells of them. Raises
    WeightsError; the segments that have come are kept, whatever ends this.
    """
    place, key, counted = Cache(cache), source.pin.key, 0
    place.prepare()
    place.use(key, user, expires=expires)

    def wait() -> None:
        """Count what another process brings meanwhile."""
        nonlocal counted
        if meter.due:
            with suppress(WeightsError):  # files move while they are looked at
                there = max(total_bytes(source) - missing_bytes(source, cache, limits), counted)
                meter.count_received(there - counted, "")
                counted = there
            meter.tell()

    with place.lock(key, wait):
        missing = missing_bytes(source, cache, limits)
        meter.count_present(total_bytes(source) - missing - counted)
        folder = place.published_folder(key)
        if folder is None:
            _bring(source, place, parallel, meter, limits)
            folder = place.publish(source.pin, source.files)
        place.use(key, user, expires=expires)
    meter.tell()
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


def _bring(source: Source, place: Cache, parallel: int, meter: Meter, limits: Limits) -> None:
    """Bring every file of `source` into `partial/<key>/files`, checked and synced."""
    parts = _parts(source, place, limits)
    disk.require_room(place.root, sum(part.bytes_missing for part in parts), limits.reserve)
    with disk.explain_errors(place.root):
        (place.partial(source.pin.key) / "files").mkdir(parents=True, exist_ok=True)
    meter.tell()

    def beat() -> None:
        if meter.due:
            meter.tell()
        disk.require_reserve(place.root, limits.reserve)

    Crew(source, place.root, meter, limits).work(parts, parallel, beat)
