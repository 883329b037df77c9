"""What `speculative-weights` does: read or fetch both sides of a pair, or hold versions in use. Called by `__main__`
alone.

The operator's Jobs run it with the arguments of docs/weights.md; people and pipelines may run it by hand.
"""

from __future__ import annotations

import logging
import time
from argparse import Namespace
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from speculative_operator.domain.models import Pin
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import SOURCES, ModelSource, Scheme
from speculative_operator.weights import disk
from speculative_operator.weights.cache import Cache, collect
from speculative_operator.weights.fetch import fetch, missing_bytes, total_bytes
from speculative_operator.weights.inspect import inspect
from speculative_operator.weights.patience import Limits
from speculative_operator.weights.progress import Meter, Report
from speculative_operator.weights.source import Source, WeightsError
from speculative_operator.weights.sources import open_source

SIDES = ("verifier", "speculator", "prompts")
"""What the arguments may name. Prompts are one file, which is fetched and never inspected."""
LIST_HOLDS_SECONDS = 3600.0
"""How long a list of what is in use is believed: a queue may suspend a Job for days, and objects come meanwhile."""
RENEW_SECONDS = 3600.0
"""Seconds between two marks of `hold`: a small part of the grace after which a version may be taken away."""
_LOG = logging.getLogger(__name__)


def inspect_pair(options: Namespace) -> dict[str, Any]:
    """Facts of both sides: `{"verifier": ..., "speculator": ...}`, as ModelFacts in JSON. Raises WeightsError."""
    found: dict[str, Any] = {}
    for side, wanted in _sources(options).items():
        with _of(side):
            found[side] = inspect(open_source(wanted, options.claims_at)).to_json()
    return found


def fetch_pair(options: Namespace, report: Report) -> dict[str, Any]:
    """Fetch both sides into the cache; returns per side `pin`, `key` and `bytes`; `removed`: keys that collection took
    away. Raises WeightsError and Stopped."""
    place, limits = Cache(options.cache), Limits(reserve=options.reserve / 100)
    with disk.explain_errors(options.cache):
        options.cache.mkdir(parents=True, exist_ok=True)
    place.prepare()
    known, sources = _sort_out(options, place)
    pins = {**known, **{side: source.pin for side, source in sources.items()}}
    keep = {*options.keep, *(pin.key for pin in pins.values())}
    removed = _make_room(options, sources, keep)
    held = sum(_bytes(place, pin.key) for pin in known.values())
    meter = Meter(held + sum(map(total_bytes, sources.values())), report, limits.tell)
    meter.count_present(held)
    for side, source in sources.items():
        with _of(side):
            fetch(source, options.cache, meter, user=options.object, expires=options.collect, limits=limits)
    removed += _collect(options, keep)
    told = {side: _describe(pins[side], place) for side in SIDES if side in pins}
    return {**told, "removed": list(removed)}


def copy_result(options: Namespace) -> dict[str, Any]:
    """Copy what a training made to a bucket; returns its `bytes`. Raises WeightsError."""
    from speculative_operator.weights.s3 import copy_to_bucket

    target = _source(options.to, "")
    return {"bytes": copy_to_bucket(options.training, options.claim, target, options.owner, begin=options.begin)}


def hold(cache: Path, keys: Collection[str], user: str, *, expires: bool = False) -> NoReturn:
    """Renew the marks of `user` on the versions `keys` until a signal ends it. A volume that cannot be written for a
    while does not: the marks that are there hold for the grace.

    Run beside an engine that loaded them from a folder of its node. Whoever tidies up goes by marks of use
    (`cache.collect`), and a pod leaves its own when it starts. Pods of other objects and other namespaces share the
    folder, so nobody but the pod itself can say after weeks that it may still need its version: an engine that is
    restarted loads it again.
    """
    place = Cache(cache)
    while True:
        for key in keys:
            try:
                place.use(key, user, expires=expires)
            except WeightsError as error:
                _LOG.warning("cannot mark version %s as used: %s", key, error)
        time.sleep(RENEW_SECONDS)


def _sources(options: Namespace) -> dict[str, ModelSource]:
    given: Mapping[str, Any] = vars(options)
    return {side: _source(given[side], given[f"{side}_revision"] or "") for side in SIDES if given.get(side)}


def _source(uri: str, revision: str) -> ModelSource:
    """The source of a model; `hf://organisation/model@revision` is the same as URI and revision apart. Raises
    WeightsError."""
    scheme, _, location = uri.rstrip("/").partition("://")
    if scheme not in SOURCES or not location:
        raise WeightsError(
            Reason.UNSUPPORTED_SOURCE,
            f"{uri} is not a model source",
            remedy="write hf://ORGANISATION/MODEL, oci://REGISTRY/REPOSITORY, s3://BUCKET/PREFIX or pvc://CLAIM/PATH",
        )
    if not revision and scheme == Scheme.HF:
        location, _, revision = location.partition("@")
    return ModelSource(Scheme(scheme), location, revision)


def _sort_out(options: Namespace, place: Cache) -> tuple[dict[str, Pin], dict[str, Source]]:
    """Pins of the sides that the cache holds already, and sources of the others. A side that is cached and asked for at
    its commit needs no network: so a cluster without a way out starts pods as long as its cache holds."""
    known: dict[str, Pin] = {}
    sources: dict[str, Source] = {}
    for side, wanted in _sources(options).items():
        with _of(side):
            pin = Pin(wanted.scheme, wanted.location, wanted.revision, wanted.revision)
            if _take(place, pin, options):
                known[side] = pin
            else:
                sources[side] = open_source(wanted, options.claims_at)
    return known, sources


def _take(place: Cache, pin: Pin, options: Namespace) -> bool:
    """Marks a published version as used, under its lock so that collection sees the mark; False where it is not
    published."""
    if place.published_folder(pin.key) is None:
        return False
    place.use(pin.key, options.object, expires=options.collect)
    with place.lock(pin.key, lambda: None):
        return place.published_folder(pin.key) is not None


def _make_room(options: Namespace, sources: Mapping[str, Source], keep: set[str]) -> tuple[str, ...]:
    """Check the room for all sides at once, before the first byte; collect where there is too little. Returns removed
    keys."""

    def require_room() -> None:
        missing = sum(missing_bytes(source, options.cache) for source in sources.values())
        disk.require_room(options.cache, missing, options.reserve / 100)

    try:
        require_room()
    except WeightsError as error:
        if not options.collect:
            error.remedy += "; the operator removes none unless spec.weights.cache.collect is true"
            raise
        removed = _collect(options, keep)
        require_room()
        return removed
    return ()


def _collect(options: Namespace, keep: set[str]) -> tuple[str, ...]:
    """Remove unused versions where that is asked for; returns their keys. A failure does not fail the fetch: models are
    there."""
    if not options.collect:
        return ()
    if options.listed_at is not None and abs(time.time() - options.listed_at) > LIST_HOLDS_SECONDS:
        _LOG.warning("removing nothing: the list of used versions is older than an hour")
        return ()
    try:
        return collect(options.cache, keep=keep, grace=options.grace)
    except WeightsError as error:
        _LOG.warning("removing nothing: %s", error)
        return ()


def _bytes(place: Cache, key: str) -> int:
    return int((place.manifest(key) or {}).get("bytes", 0))


def _describe(pin: Pin, place: Cache) -> dict[str, Any]:
    pin_block = {"scheme": pin.scheme.value, "location": pin.location, "asked": pin.asked, "resolved": pin.resolved}
    return {"pin": pin_block, "key": pin.key, "bytes": _bytes(place, pin.key)}


@contextmanager
def _of(side: str) -> Iterator[None]:
    """Add the side to errors that the block raises."""
    try:
        yield
    except WeightsError as error:
        error.side = error.side or side
        raise
