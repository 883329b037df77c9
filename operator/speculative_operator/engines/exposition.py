"""Prometheus' text exposition of one pod -> the samples that an adapter wants. Called by `sim.session`.

Of the 43 families of a vLLM exposition a reader wants a dozen, and the label sets of a pod hardly ever change: lines
of other names are passed over, and what stands before the value is parsed once for each distinct text. Everything out
of the ordinary on a line goes to `prometheus_client`'s parser, to which a property test holds this one.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

_HEADS = 16_384
"""Distinct texts before a value that are kept parsed: 30 series of 500 pods."""


class ExpositionError(ValueError):
    """A wanted line that is no sample, or a series with two values. The message quotes the line."""


class SeriesKey(NamedTuple):
    """Identity of a time series: name, and labels sorted by name."""

    name: str
    labels: tuple[tuple[str, str], ...]


def parse(text: str, names: Collection[str]) -> dict[SeriesKey, float]:
    """Value of every series in `text` whose name is in `names`; timestamps and exemplars are dropped.

    Values are as written, NaN and infinities included. Lines of other names are not looked at. Raises ExpositionError.
    """
    wanted = frozenset(names)
    found: dict[SeriesKey, float] = {}
    for raw in text.split("\n"):
        line = raw.strip()
        if not line or line[0] == "#" or not _concerns(line, wanted):
            continue
        key, value = _sample(line)
        if key.name not in wanted:
            continue
        before = found.setdefault(key, value)
        if before is not value and before != value:
            raise ExpositionError(f"two values of one series: {_shown(line)}")
    return found


def _concerns(line: str, wanted: frozenset[str]) -> bool:
    """False only when the line can be no sample of a wanted name; a name may also stand within the braces."""
    name, brace, _ = line.partition("{")
    if name in wanted or (brace and not name.strip()):
        return True
    return (" " in name or "\t" in name) and name.split(maxsplit=1)[0] in wanted


def _sample(line: str) -> tuple[SeriesKey, float]:
    end = line.rfind("}") + 1
    rest = line[end:].split()
    if end and len(rest) == 1 and "_" not in rest[0]:
        key = _key(line[:end])
        if key is not None:
            return key, _number(rest[0], line)
    found = _parsed(line)
    if found is None:
        raise ExpositionError(f"not a sample: {_shown(line)}")
    return _identity(found), _number(found.value, line)


@lru_cache(maxsize=_HEADS)
def _key(head: str) -> SeriesKey | None:
    """Name and labels of `name{labels}`; None when that is not all that `head` holds."""
    found = _parsed(f"{head} 0")
    if found is None or found.value != 0 or found.timestamp is not None:
        return None
    return _identity(found)


def _identity(sample: Sample) -> SeriesKey:
    return SeriesKey(sample.name, tuple(sorted(sample.labels.items())))


def _parsed(line: str) -> Sample | None:
    try:
        families = list(text_string_to_metric_families(line))
    except (ValueError, IndexError):
        return None
    return next((sample for family in families for sample in family.samples), None)


def _number(value: str | float, line: str) -> float:
    try:
        return float(value)
    except (ValueError, OverflowError):
        raise ExpositionError(f"not a number: {_shown(line)}") from None


def _shown(line: str) -> str:
    return line if len(line) <= 120 else f"{line[:117]}..."
