"""Parses Prometheus' text exposition of one pod to the samples that an adapter wants.

Used by `shell.scraper`, `speculative doctor` and the laboratory.

Of the 43 families of a vLLM exposition a reader wants a dozen, and their label sets in a pod hardly ever change: the
text before the last space of a line is judged once for each distinct text, so that a wanted line costs a look-up.
Everything else goes to `prometheus_client`'s parser, to which a property test holds this one.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

LARGEST_MEMORY = 65_536
"""Distinct texts before a value that are remembered: the lines of 100 pods."""
LONGEST_HEAD = 1024
"""Characters of a text that is remembered: no engine's labels are longer."""


class ExpositionError(ValueError):
    """A wanted line that is no sample, or a series with two values. The message quotes the line."""


class SeriesKey(NamedTuple):
    """Identity of a time series: name, and labels sorted by name."""

    name: str
    labels: tuple[tuple[str, str], ...]


class Exposition:
    """Parses expositions for the series called `names`, and remembers what their lines begin with."""

    def __init__(self, names: Collection[str], most: int = LARGEST_MEMORY) -> None:
        """`names`: the wanted series; `most`: number of beginnings of lines to remember."""
        self._names, self._most = frozenset(names), most
        self._heads: dict[str, SeriesKey] = {}
        """Text before a value -> its series."""

    def parse(self, text: str) -> dict[SeriesKey, float]:
        """Value of every wanted series in `text`; timestamps and exemplars are dropped.

        Values are as written, NaN and infinities included. Lines of other names are not looked at. Raises
        ExpositionError.
        """
        found: dict[SeriesKey, float] = {}
        for line in text.split("\n"):
            head, _, tail = line.rpartition(" ")
            key = self._heads.get(head)
            value = None if key is None else _plain_number(tail)
            if key is None or value is None:
                sample = self._sample(line.strip())
                if sample is None:
                    continue
                key, value = _identity(sample), sample.value
                self._remember(head)
            before = found.setdefault(key, value)
            if before is not value and before != value:
                raise ExpositionError(f"two values of one series: {_excerpt(line)}")
        return found

    def _sample(self, line: str) -> Sample | None:
        """The sample in a line; None for a line without a wanted one. Raises ExpositionError for a broken line of a
        wanted name."""
        if not line or not self._concerns(line):
            return None
        sample = _parse(line)
        if sample is None:
            raise ExpositionError(f"not a sample: {_excerpt(line)}")
        return sample if sample.name in self._names else None

    def _concerns(self, line: str) -> bool:
        """False only when the line can be no sample of a wanted name; a name may also stand within the braces."""
        if line[0] == "#":
            return False
        name, brace, _ = line.partition("{")
        return (bool(brace) and not name.strip()) or name.split(maxsplit=1)[0] in self._names

    def _remember(self, head: str) -> None:
        """Remember the wanted series that the text before a value names, where that text alone tells it."""
        whole = _parse(f"{head.strip()} 0") if 0 < len(head) <= LONGEST_HEAD else None
        if whole is not None and whole.name in self._names and whole.value == 0 and whole.timestamp is None:
            if len(self._heads) >= self._most:
                self._heads.clear()
            self._heads[head] = _identity(whole)


def _identity(sample: Sample) -> SeriesKey:
    return SeriesKey(sample.name, tuple(sorted(sample.labels.items())))


def _parse(line: str) -> Sample | None:
    try:
        families = list(text_string_to_metric_families(line))
        found = next((sample for family in families for sample in family.samples), None)
        return found and found._replace(value=float(found.value))
    except (ValueError, IndexError, OverflowError):
        return None


def _plain_number(text: str) -> float | None:
    """The number in `text`; None for text that the parser has to judge. Python alone would take 1_000."""
    if "_" in text:
        return None
    try:
        return float(text)
    except ValueError:
        return None


def _excerpt(line: str) -> str:
    text = line.strip()
    return text if len(text) <= 120 else f"{text[:117]}..."
