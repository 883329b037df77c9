"""What every source of models offers. Implemented by `hub`, `oci`, `s3` and `local`; used by inspector and fetcher."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from speculative_operator.domain.artifact import Pin


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a model."""

    path: str
    """Path relative to the model, with `/`; never absolute, never with `..`: sources raise WeightsError for those."""
    size: int
    sha256: str = ""
    """SHA-256 of the whole file, hexadecimal; empty where the source does not tell (then `etag` decides whether it
    changed)."""
    etag: str = ""


class Source(Protocol):
    """One version of one model. Every method may raise WeightsError; safe to call from several threads."""

    @property
    def pin(self) -> Pin:
        """The version; resolved when the source was opened, and the same ever after."""

    def files(self) -> tuple[Entry, ...]:
        """Every file of the version, sorted by path."""

    def read(self, entry: Entry, start: int, end: int) -> Iterator[bytes]:
        """Yield bytes `start` to `end` (excluded) in blocks as they come, of at most 1 MiB. Ends early only with an
        error."""
