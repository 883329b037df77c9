"""One row of the capability matrix: what an engine does with a method under stated circumstances.

Rows are those of `data/cells.csv`, and say only what works: where none matches a question, the engine refuses it. What
an accelerator takes away is told apart from that, in `matrix.vendors`. Adapters ask the rows of their engine;
`matrix.answers` answers from all of them, for `speculative engines` and docs/engines.md.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from types import MappingProxyType

from speculative_operator.domain.platform import Vendor
from speculative_operator.domain.spec import EngineType, Method
from speculative_operator.domain.table import Actuator

Version = tuple[int, int, int]

_FORM = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?(?:[.+-]?[a-zA-Z][\w.+-]*|\+[\w.-]+)?")


def parse_version(text: str) -> Version | None:
    """`0.32.0`, `v0.32`, `0.11.0+rhai5`, `0.33.0rc1` -> the release they are built from; None for anything else.

    Vendors' suffixes and release candidates count as the release they name.
    """
    match = _FORM.fullmatch(text.strip())
    if match is None:
        return None
    major, minor, patch = match.groups(default="0")
    return (int(major), int(minor), int(patch))


def show_version(version: Version) -> str:
    return ".".join(map(str, version))


def rows_of(table: str) -> list[dict[str, str]]:
    """Rows of `engines/data/<table>.csv` as column -> text."""
    file = resources.files("speculative_operator.engines").joinpath("data", f"{table}.csv")
    return list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))


class Proven(StrEnum):
    """How a row was shown to be true, strongest first."""

    REAL_ENGINE = "RealEngine"
    """An end-to-end run on the real engine asserts it; the source names the make target."""
    CLASSES = "Classes"
    """What the operator mounts ran in the release's own scheduler classes; no model did."""
    EMULATED = "Emulated"
    """The whole loop runs so against the emulator, whose behaviour was read from the engine's source."""
    SOURCE = "Source"
    """Read from the engine's source or documentation of the release."""


class Extent(StrEnum):
    """Sizes of one kind of parallelism that a row speaks of."""

    ANY = "any"
    ONE = "1"
    MANY = "> 1"

    def holds(self, size: int) -> bool:
        return self is Extent.ANY or (size > 1) is (self is Extent.MANY)


class Variant(StrEnum):
    """Forms of a method that behave unlike its plain one."""

    PLAIN = ""
    PARALLEL = "parallelDrafting"
    """One pass drafts all K tokens: P-EAGLE with eagle or eagle3, PARD with draft_model."""
    HETEROGENEOUS = "heterogeneousVocabulary"
    """A draft_model whose vocabulary differs from the verifier's."""


class Figure(StrEnum):
    """A figure that the operator may believe in an engine's metrics."""

    ACCEPTED = "accepted"
    """Drafts accepted, hence the acceptance length."""
    PER_POSITION = "per position"
    """Drafts accepted, by position of the draft token."""
    DRAFTED = "drafted"
    """Drafts verified, none of them filler, hence the acceptance rate."""
    STEP_TIME = "step time"
    """Time between tokens of a request."""
    ACTIVE_K = "active K"
    """The K of a step, as the engine or the payload tells it."""


@dataclass(frozen=True, slots=True)
class Question:
    """Circumstances that rows are asked about."""

    engine: EngineType
    version: Version
    method: Method
    runner: str = ""
    variant: Variant = Variant.PLAIN
    vendor: Vendor = Vendor.NVIDIA
    data_parallel_size: int = 1
    pipeline_parallel_size: int = 1


@dataclass(frozen=True, slots=True)
class Cell:
    """One row. Rows of one engine do not overlap: at most one matches a question."""

    engine: EngineType
    method: Method
    since: Version
    """First release that the row speaks of."""
    actuator: Actuator
    """The gentlest way to change K: Live, else Table, else Restart."""
    source: str
    """Where the row was read or shown: release and file, issue, or make target."""
    before: Version | None
    """First release that the row no longer speaks of; None: no later one is known to differ."""
    runner: str
    """The engine's name of the model runner; empty where there is one only."""
    variant: Variant
    data: Extent
    """Data parallelism (attention data parallelism where the engine has that)."""
    pipeline: Extent
    pipelined_since: Version | None
    """First release in which the row holds under pipeline parallelism, too; None: no release is known."""
    passes_at_zero: float
    """Draft passes that a step still runs at K = 0; infinity: as many as at the largest K."""
    follows_k: bool
    """False when a smaller K saves verification only: the speculator drafts as ever."""
    drafts_blocks: bool
    """True when one draft pass yields all K tokens."""
    metrics: frozenset[Figure]
    """Figures that are right. A figure that is missing here is absent, diluted or counted otherwise."""
    skips: bool
    """True when the plug-in can leave the speculator out at K = 0, so that no part of it runs."""
    note: str
    """What else a user should know, one sentence: it becomes a footnote."""

    def pipelined(self, version: Version) -> bool:
        """True when the row holds under pipeline parallelism in a release."""
        return self.pipelined_since is not None and self.pipelined_since <= version

    def matches(self, question: Question) -> bool:
        """True when the row speaks of `question`."""
        return (
            self.engine is question.engine
            and self.method is question.method
            and self.since <= question.version
            and (self.before is None or question.version < self.before)
            and self.runner in ("", question.runner)
            and self.variant is question.variant
            and self.data.holds(question.data_parallel_size)
            and self.pipeline.holds(question.pipeline_parallel_size)
            and (question.pipeline_parallel_size == 1 or self.pipelined(question.version))
        )


def find(cells: Collection[Cell], question: Question) -> Cell | None:
    """The row that answers `question`; None when the matrix is silent, which is a refusal."""
    return next((cell for cell in cells if cell.matches(question)), None)


def _cell(row: Mapping[str, str]) -> Cell:
    pipelined_since = row["pipelined_since"]
    return Cell(
        engine=EngineType(row["engine"]),
        method=Method(row["method"]),
        since=parse_version(row["since"]) or (0, 0, 0),
        actuator=Actuator(row["actuator"]),
        source=row["source"],
        before=parse_version(row["before"]),
        runner=row["runner"],
        variant=Variant(row["variant"]),
        data=Extent(row["data"]),
        pipeline=Extent(row["pipeline"]),
        pipelined_since=None if pipelined_since == "never" else parse_version(pipelined_since) or (0, 0, 0),
        passes_at_zero=float(row["passes_at_zero"]),
        follows_k=row["follows_k"] == "yes",
        drafts_blocks=row["drafts_blocks"] == "yes",
        metrics=frozenset(Figure(word.replace("-", " ")) for word in row["metrics"].split()),
        skips=row["skips"] == "yes",
        note=row["note"],
    )


_ROWS = tuple(map(_cell, rows_of("cells")))
CELLS: Mapping[EngineType, tuple[Cell, ...]] = MappingProxyType(
    {engine: tuple(cell for cell in _ROWS if cell.engine is engine) for engine in EngineType}
)
"""Every row of `data/cells.csv`, by engine."""
