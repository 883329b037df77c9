"""The table: how many tokens to draft (K) at each number of scheduled requests, and which tables an engine can take.

The one currency between tuner, engines, render and payload. vLLM calls it `num_speculative_tokens_per_batch_size`. An
engine's adapter tells by a `KnobSpace` which tables the tuner may choose and how a new one reaches the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby


class TableError(ValueError):
    """A table that no engine would take. The message names the entry, its value and the remedy."""


@dataclass(frozen=True, slots=True)
class Band:
    """K for `first <= scheduled requests <= last`, both inclusive."""

    first: int
    last: int
    k: int


@dataclass(frozen=True, slots=True)
class KTable:
    """Bands that cover 1..max_batch without gap or overlap, ascending. K = 0 means: verify no drafts."""

    bands: tuple[Band, ...]

    def __post_init__(self) -> None:
        if not self.bands:
            raise TableError("the table is empty; give at least one band such as [1, 256, 3]")
        expected = 1
        for band in self.bands:
            if band.first != expected:
                raise TableError(f"band {_show(band)} must start at {expected}: bands start at 1 and leave no gap")
            if band.last < band.first:
                raise TableError(f"band {_show(band)} ends before it starts; write [first, last, K]")
            if band.k < 0:
                raise TableError(f"band {_show(band)} has a negative K; 0 means no drafts")
            expected = band.last + 1

    @classmethod
    def constant(cls, k: int, max_batch: int) -> KTable:
        """The same K at every load."""
        return cls((Band(1, max_batch, k),))

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[int]]) -> KTable:
        """The table from `[[first, last, K], ...]`, the form of vLLM and of `spec.speculation.schedule`."""
        bands = []
        for row in rows:
            if len(row) != 3 or not all(isinstance(cell, int) and not isinstance(cell, bool) for cell in row):
                raise TableError(f"entry {list(row)!r} must be three whole numbers [first, last, K]")
            bands.append(Band(*row))
        return cls(tuple(bands))

    @classmethod
    def from_dense(cls, ks: Sequence[int]) -> KTable:
        """The table from one K per batch size; `ks[0]` is the K at one request."""
        bands, start = [], 1
        for k, run in groupby(ks):
            length = sum(1 for _ in run)
            bands.append(Band(start, start + length - 1, k))
            start += length
        return cls(tuple(bands))

    def rows(self) -> list[list[int]]:
        """The bands as `[[first, last, K], ...]`."""
        return [[band.first, band.last, band.k] for band in self.bands]

    def dense(self) -> list[int]:
        """One K per batch size, the K at one request first."""
        return [band.k for band in self.bands for _ in range(band.first, band.last + 1)]

    def k_at(self, batch: float) -> int:
        """K at `batch` scheduled requests; below 1 as at 1, above the last band as in it."""
        for band in self.bands:
            if batch < band.last + 1:
                return band.k
        return self.bands[-1].k

    def resize(self, max_batch: int) -> KTable:
        """The same table cut to, or its last band stretched to, `max_batch`."""
        kept = [band for band in self.bands if band.first <= max_batch]
        last = kept[-1]
        return KTable((*kept[:-1], Band(last.first, max_batch, last.k)))

    @property
    def max_batch(self) -> int:
        return self.bands[-1].last

    @property
    def max_k(self) -> int:
        return max(band.k for band in self.bands)

    @property
    def ks(self) -> frozenset[int]:
        """Every K that occurs in the table."""
        return frozenset(band.k for band in self.bands)

    def __iter__(self) -> Iterator[Band]:
        return iter(self.bands)

    def __str__(self) -> str:
        return " ".join(f"{b.first}-{b.last}:{b.k}" for b in self.bands)


BLOCK_STEPS = 8
"""Steps of a block at a K that is tried: short enough that the blocks beside it meet the same requests."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial: K that the engine tries for blocks of steps beside the active K, at some numbers of requests."""

    first: int
    last: int
    """Decoding requests, both inclusive."""
    ks: tuple[int, ...]
    """K to try in turn; none of them is the active K there."""
    share: float
    """Share of tried blocks among the blocks there at first; it falls as blocks are compared."""

    def __str__(self) -> str:
        return f"{self.first}-{self.last}: {' '.join(map(str, self.ks))} ({100.0 * self.share:g} %)"


class Actuator(StrEnum):
    """How a new table reaches the engine."""

    LIVE = "Live"
    """The engine re-reads a mounted file: nothing restarts."""
    TABLE = "Table"
    """The engine has its own per-batch-size table, fixed at start: a rollout changes it."""
    RESTART = "Restart"
    """One constant K, fixed at start: a rollout changes it."""
    NONE = "None"
    """No table can be changed: there is no speculator."""


@dataclass(frozen=True, slots=True)
class KnobSpace:
    """Every table the tuner may choose."""

    actuator: Actuator
    ks: tuple[int, ...]
    """K that may occur in a table, ascending; 0 is among them when soft off works."""
    max_batch: int
    """Requests that the engine schedules at once at most (vLLM `max_num_seqs`)."""
    capture_ceiling_tokens: int | None = None
    """Tokens per step above which no CUDA graph serves; None when unknown or not applicable."""
    capture_sizes: tuple[int, ...] = ()
    """Sizes in tokens of the captured CUDA graphs, ascending: a step is padded to the next one. Empty: unknown."""
    draft_passes_follow_k: bool = True
    """False when the speculator always drafts the largest K and only verification shrinks."""
    passes_at_zero: float = 1.0
    """Draft passes still run per step at K = 0 (they keep the speculator's KV in step); 0 for draft-free methods."""
    drafts_blocks: bool = False
    """True when one draft pass yields all K tokens (dflash, dspark)."""
    draft_free: bool = False
    full_graphs: bool = False
    """True when a table costs no CUDA graphs, because the engine captures full ones for each K (vLLM's V2 runner)."""
    per_request: bool = False
    """True when the pods can withhold the drafts of single requests, should the table file say so."""
    rests: bool = False
    """True when pods can leave the speculator out while K = 0 lasts, without a restart."""
    rests_with: str = ""
    """Entry of `spec.engine.env` that would let pods leave the speculator out; empty where none helps."""
    falling: bool = False
    """True when K may only stay or fall as more requests are scheduled (TensorRT-LLM's `draft_len_schedule`)."""


def _show(band: Band) -> str:
    return f"[{band.first}, {band.last}, {band.k}]"
