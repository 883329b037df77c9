"""Parses Prometheus' text exposition of one pod to the samples that an adapter wants.

Used by `shell.scraper`, `speculative doctor` and the laboratory.

Of the 43 families of a vLLM exposition a reader wants a dozen, and the label sets of a pod hardly ever change: the
text before the last space of a line is judged once for each distinct text, so that a scrape costs a look-up a line.
Everything out of the ordinary goes to `prometheus_client`'s parser, to which a property test holds this one.
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
        self._heads: dict[str, SeriesKey | None] = {}
        """Text before a value -> its series; None: no wanted series."""

    def parse(self, text: str) -> dict[SeriesKey, float]:
        """Value of every wanted series in `text`; timestamps and exemplars are dropped.

        Values are as written, NaN and infinities included. Lines of other names are not looked at. Raises
        ExpositionError.
        """
        found: dict[SeriesKey, float] = {}
        heads = self._heads
        for line in text.split("\n"):
            head, _, tail = line.rpartition(" ")
            try:
                key = heads[head]
            except KeyError:
                key = self._learn(head)
            if key is None:
                if head not in heads:
                    self._put_odd(found, line.strip())
                continue
            value = _plain_number(tail)
            if value is None:
                self._put_odd(found, line.strip())
            else:
                self._put(found, key, value, line)
        return found

    def _learn(self, head: str) -> SeriesKey | None:
        """The wanted series that `head` names, or None; remembered where the answer follows from `head` alone."""
        if len(head) > LONGEST_HEAD:
            return None
        if len(self._heads) >= self._most:
            self._heads.clear()
        plain = head.strip()
        if plain and not self._concerns(plain):
            self._heads[head] = None
            return None
        whole = _parse(f"{plain} 0") if plain else None
        if whole is None or whole.value != 0 or whole.timestamp is not None:
            return None
        self._heads[head] = key = _identity(whole) if whole.name in self._names else None
        return key

    def _concerns(self, line: str) -> bool:
        """False only when the line can be no sample of a wanted name; a name may also stand within the braces."""
        if line[0] == "#":
            return False
        name, brace, _ = line.partition("{")
        return (bool(brace) and not name.strip()) or name.split(maxsplit=1)[0] in self._names

    def _put_odd(self, found: dict[SeriesKey, float], line: str) -> None:
        """Adds the sample of a line that its beginning does not explain: with a timestamp, tabs, an exemplar, or
        broken.

        Raises ExpositionError for a broken line of a wanted name.
        """
        if not line or not self._concerns(line):
            return
        sample = _parse(line)
        if sample is None:
            raise ExpositionError(f"not a sample: {_excerpt(line)}")
        if sample.name in self._names:
            self._put(found, _identity(sample), _finite_or_inf(sample.value), line)

    @staticmethod
    def _put(found: dict[SeriesKey, float], key: SeriesKey, value: float, line: str) -> None:
        before = found.setdefault(key, value)
        if before is not value and before != value:
            raise ExpositionError(f"two values of one series: {_excerpt(line)}")


def _identity(sample: Sample) -> SeriesKey:
    return SeriesKey(sample.name, tuple(sorted(sample.labels.items())))


def _parse(line: str) -> Sample | None:
    try:
        families = list(text_string_to_metric_families(line))
    except (ValueError, IndexError):
        return None
    return next((sample for family in families for sample in family.samples), None)


def _plain_number(text: str) -> float | None:
    """The number in `text`; None for text that the parser has to judge. Python alone would take 1_000."""
    if "_" in text:
        return None
    try:
        return float(text)
    except ValueError:
        return None


def _finite_or_inf(value: float) -> float:
    """`value` as a float, infinite where too large: the parser keeps whole numbers of any length."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _excerpt(line: str) -> str:
    text = line.strip()
    return text if len(text) <= 120 else f"{text[:117]}..."
