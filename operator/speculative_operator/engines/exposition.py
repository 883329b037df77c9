"""Parses Prometheus' text exposition of one pod to the samples that an adapter wants.

Used by `shell.scraper`, by commands that ask a pod, and by the laboratory.

Of the 43 families of a vLLM exposition a reader wants a dozen: only their lines go to `prometheus_client`'s parser.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from speculative_operator.domain.observation import Series

LONGEST_LINE = 8192
"""Characters of a wanted line: time and memory of the parser grow faster than the line."""


class ExpositionError(ValueError):
    """A wanted line that is no sample, or a series with two values. The message quotes the line."""


class SeriesKey(NamedTuple):
    """Identity of a time series: name, and labels sorted by name."""

    name: str
    labels: tuple[tuple[str, str], ...]


def parse(text: str, names: Collection[str]) -> dict[SeriesKey, float]:
    """Value of every series in `text` that is called one of `names`; timestamps and exemplars are dropped.

    Values are as written, NaN and infinities included. Lines of other names are not looked at. Raises ExpositionError.
    """
    lines = [line for line in map(str.strip, text.split("\n")) if _concerns(line, names)]
    if long := next((line for line in lines if len(line) > LONGEST_LINE), ""):
        raise ExpositionError(f"longer than {LONGEST_LINE} characters: {_excerpt(long)}")
    samples = _samples(lines)
    if samples is None:
        broken = next((line for line in lines if _samples((line,)) is None), lines[0])
        raise ExpositionError(f"not a sample: {_excerpt(broken)}")
    found: dict[SeriesKey, float] = {}
    for sample in samples:
        if sample.name in names:
            key, value = SeriesKey(sample.name, tuple(sorted(sample.labels.items()))), sample.value
            before = found.setdefault(key, value)
            if before is not value and before != value:
                raise ExpositionError(f"two values of one series: {_excerpt(str(sample))}")
    return found


def series_of(pod: str, scrapes: Iterable[tuple[float, Mapping[SeriesKey, float]]]) -> list[Series]:
    """Scrapes of a pod, each with its unix time, the oldest first, as series with the label `pod`, as Prometheus would
    return them."""
    samples: dict[SeriesKey, list[tuple[float, float]]] = {}
    for time, values in scrapes:
        for key, value in values.items():
            samples.setdefault(key, []).append((time, value))
    return [Series(key.name, {**dict(key.labels), "pod": pod}, tuple(own)) for key, own in samples.items()]


def _concerns(line: str, names: Collection[str]) -> bool:
    """False only when the line can be no sample of a wanted name; a name may also stand within the braces."""
    if not line or line[0] == "#":
        return False
    name, brace, _ = line.partition("{")
    return (bool(brace) and not name.strip()) or name.split(maxsplit=1)[0] in names


def _samples(lines: Iterable[str]) -> list[Sample] | None:
    """The samples in `lines`, one in each; None where a line holds none."""
    text = "\n".join(lines)
    try:
        families = text_string_to_metric_families(text)
        # Whole numbers come as int, of which one may be larger than any float.
        found = [one._replace(value=float(one.value)) for family in families for one in family.samples]
        return found if len(found) == (text.count("\n") + 1 if text else 0) else None
    except (ValueError, IndexError, OverflowError):
        return None


def _excerpt(line: str) -> str:
    return line if len(line) <= 120 else f"{line[:117]}..."
