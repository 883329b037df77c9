"""Text of the metrics of each object, kept ready so that a scrape of a large fleet only joins it. Part of `telemetry`.

Only a process that reconciles objects, which is the leader, has any. An object that is gone, or whose figures are too
old, has no series.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from speculative_operator.reconcile.series import FAMILIES, Sample
from speculative_operator.shell.cache import Key

DECISIONS = "object_decisions_total"
Lines = Mapping[str, str]
"""Name of a metric family -> its lines for one object."""


@dataclass(slots=True)
class _Object:
    steady: Lines = field(default_factory=dict)
    measured: Lines = field(default_factory=dict)
    until: float = 0.0
    """Unix seconds after which `measured` is too old."""
    counts: Counter[str] = field(default_factory=Counter)
    """Number of decisions by reason."""
    decisions: Lines = field(default_factory=dict)


class ObjectMetrics:
    """The metrics of all objects that one process reconciles. `prefix` begins every name; `clock` gives unix
    seconds."""

    def __init__(self, prefix: str, clock: Callable[[], float]) -> None:
        self._prefix = prefix
        self._clock = clock
        self._objects: defaultdict[Key, _Object] = defaultdict(_Object)

    def put(self, key: Key, steady: Iterable[Sample], measured: Iterable[Sample], until: float) -> None:
        """Replace all gauges of an object; `measured` holds until `until`, unix seconds."""
        one = self._objects[key]
        one.steady, one.measured, one.until = self._lines(key, steady), self._lines(key, measured), until

    def count(self, key: Key, reason: str) -> None:
        """Count one more decision with this reason."""
        one = self._objects[key]
        one.counts[reason] += 1
        samples = ((DECISIONS, (("reason", reason),), float(count)) for reason, count in sorted(one.counts.items()))
        one.decisions = self._lines(key, samples)

    def forget(self, key: Key) -> None:
        """Remove the metrics of an object that is gone."""
        self._objects.pop(key, None)

    def render(self) -> bytes:
        """All metrics of all objects as text exposition, format 0.0.4."""
        now, parts = self._clock(), []
        objects = [self._objects[key] for key in sorted(self._objects)]
        for name, text in FAMILIES.items():
            lines = [one.steady.get(name) or (one.measured.get(name) if now < one.until else None) for one in objects]
            parts += self._family(name, text, "gauge", lines)
        lines = [one.decisions.get(DECISIONS) for one in objects]
        return "".join([*parts, *self._family(DECISIONS, "Decisions of the tuner.", "counter", lines)]).encode()

    def _family(self, name: str, text: str, kind: str, lines: Iterable[str | None]) -> list[str]:
        """The lines of a metric family with their header; empty where there are none."""
        full = [line for line in lines if line]
        head = f"# HELP {self._prefix}_{name} {text}\n# TYPE {self._prefix}_{name} {kind}\n"
        return [head, *full] if full else []

    def _lines(self, key: Key, samples: Iterable[Sample]) -> Lines:
        lines: defaultdict[str, str] = defaultdict(str)
        for name, labels, value in samples:
            pairs = (("namespace", key[0]), ("name", key[1]), *labels)
            told = ",".join(f'{label}="{_escape(text)}"' for label, text in pairs)
            lines[name] += f"{self._prefix}_{name}{{{told}}} {value!r}\n"
        return lines


def _escape(value: str) -> str:
    """A label's value as text exposition wants it: one bad value would spoil the page of all objects."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
