"""One fetch in a process of its own: seconds and peak memory as JSON. Started by the measurement.

`--plain` takes the checksums out of the listing: what is left is what curl does, and publication.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from speculative_operator.domain.models import Pin
from speculative_operator.domain.spec import ModelSource, Scheme
from speculative_operator.weights.fetch import fetch
from speculative_operator.weights.source import Entry, Source
from speculative_operator.weights.sources import open_source


@dataclass
class Plain:
    """A source that tells no checksums."""

    inner: Source

    @property
    def pin(self) -> Pin:
        return self.inner.pin

    def files(self) -> tuple[Entry, ...]:
        return tuple(replace(entry, sha256="", etag="") for entry in self.inner.files())

    def read(self, entry: Entry, start: int, end: int) -> Iterator[bytes]:
        return self.inner.read(entry, start, end)


def main() -> None:
    """Prints one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m weightsbench.client")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--parallel", type=int, default=8)
    parser.add_argument("--plain", action="store_true")
    given = parser.parse_args()
    began = time.monotonic()
    source = open_source(ModelSource(Scheme.HF, given.model))
    opened = time.monotonic()
    fetch(
        Plain(source) if given.plain else source,
        given.cache,
        user="bench/bench",
        report=lambda _: None,
        parallel=given.parallel,
    )
    ended = time.monotonic()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    told = {"seconds": ended - opened, "open_seconds": opened - began, "rss_mib": usage.ru_maxrss / 1024}
    print(json.dumps({**told, "cpu_seconds": usage.ru_utime + usage.ru_stime}))


if __name__ == "__main__":
    main()
