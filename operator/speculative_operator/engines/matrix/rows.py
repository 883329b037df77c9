"""The capability matrix: what an engine does with a method (`data/cells.csv`), and what accelerators leave of that
(`data/platforms.csv`). `find` answers from both.

Rows say only what works: where none answers a question, the engine refuses it. Some vendors run the engine itself,
others a plug-in with a model runner of its own: that one drafts with the K it was started with, so a change of K is a
rollout there. A method that is not in a platform's row was found neither in the plug-in's source nor in its
documentation. Images are told in `engines.images`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from importlib import resources
from types import MappingProxyType
from typing import Any

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What every row has: an engine, a range of its releases, and a source. Of the rows of one table that could answer
    a question at most one speaks of a release."""

    engine: EngineType
    since: Version
    """First release that the row speaks of."""
    before: Version | None
    """First release that the row no longer speaks of; None: no later one is known to differ."""
    source: str
    """Where the row was read or shown: release and file, issue, or make target."""

    def holds(self, version: Version) -> bool:
        """True when the row speaks of a release."""
        return self.since <= version and (self.before is None or version < self.before)


def row_fields(row: Mapping[str, str]) -> dict[str, Any]:
    """The fields of `Row`, from the columns of a table."""
    return {
        "engine": EngineType(row["engine"]),
        "since": parse_version(row["since"]) or (0, 0, 0),
        "before": parse_version(row["before"]),
        "source": row["source"],
    }


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell(Row):
    """What an engine does with a method under stated circumstances."""

    method: Method
    actuator: Actuator
    """The gentlest way to change K: Live, else Table, else Restart."""
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
    skips: bool
    """True when the plug-in can leave the speculator out at K = 0, so that no part of it runs."""
    note: str
    """What else a user should know, one sentence: it becomes a footnote."""

    def pipelined(self, version: Version) -> bool:
        """True when the row holds under pipeline parallelism in a release."""
        return self.pipelined_since is not None and self.pipelined_since <= version

    def matches(self, question: Question) -> bool:
        """True when the row speaks of `question`, accelerators aside."""
        return (
            self.engine is question.engine
            and self.method is question.method
            and self.holds(question.version)
            and self.runner in ("", question.runner)
            and self.variant is question.variant
            and self.data.holds(question.data_parallel_size)
            and self.pipeline.holds(question.pipeline_parallel_size)
            and (question.pipeline_parallel_size == 1 or self.pipelined(question.version))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform(Row):
    """One engine on one vendor's accelerators."""

    vendor: Vendor
    methods: frozenset[Method]
    plugin: str
    """Plug-in that runs the engine on these accelerators; empty where the engine needs none."""
    newest: Version | None
    """Newest release of the engine that the plug-in is known to exist for."""
    actuator: Actuator
    """The gentlest actuator on these accelerators, whatever the engine has elsewhere."""
    runner: str
    """The only model runner; empty where the engine's rows tell."""
    variants: frozenset[Variant]
    pipeline: bool
    """True when pipeline parallelism works."""
    lora: bool
    remedy: str
    """What to do for a method that is not in `methods`, a clause."""

    def has(self, question: Question) -> bool:
        """True when the method and its form were found on these accelerators."""
        return question.method in self.methods and question.variant in self.variants


def _cell(row: Mapping[str, str]) -> Cell:
    pipelined_since = row["pipelined_since"]
    return Cell(
        **row_fields(row),
        method=Method(row["method"]),
        actuator=Actuator(row["actuator"]),
        runner=row["runner"],
        variant=Variant(row["variant"]),
        data=Extent(row["data"]),
        pipeline=Extent(row["pipeline"]),
        pipelined_since=None if pipelined_since == "never" else parse_version(pipelined_since) or (0, 0, 0),
        passes_at_zero=float(row["passes_at_zero"]),
        follows_k=row["follows_k"] == "yes",
        drafts_blocks=row["drafts_blocks"] == "yes",
        skips=row["skips"] == "yes",
        note=row["note"],
    )


def _platform(row: Mapping[str, str]) -> Platform:
    methods, variants = row["methods"].split(), [one.replace("plain", "") for one in row["variants"].split()]
    return Platform(
        **row_fields(row),
        vendor=Vendor(row["vendor"]),
        methods=frozenset(Method) if methods == ["all"] else frozenset(map(Method, methods)),
        plugin=row["plugin"],
        newest=parse_version(row["newest"]),
        actuator=Actuator(row["actuator"]),
        runner=row["runner"],
        variants=frozenset(Variant) if variants == ["all"] else frozenset(map(Variant, variants)),
        pipeline="pipeline" not in row["lacks"],
        lora="lora" not in row["lacks"],
        remedy=row["remedy"],
    )


_CELLS = tuple(map(_cell, rows_of("cells")))
CELLS: Mapping[EngineType, tuple[Cell, ...]] = MappingProxyType(
    {engine: tuple(cell for cell in _CELLS if cell.engine is engine) for engine in EngineType}
)
"""Every row of `data/cells.csv`, by engine."""
PLATFORMS: tuple[Platform, ...] = tuple(map(_platform, rows_of("platforms")))
"""Where none speaks of an engine, a vendor and a release, the engine does not run there."""
GENTLEST = (Actuator.LIVE, Actuator.TABLE, Actuator.RESTART, Actuator.NONE)


def platform_of(engine: EngineType, vendor: Vendor, version: Version) -> Platform | None:
    """The row for the engine's release on the vendor's accelerators; None where it does not run."""
    found = (row for row in PLATFORMS if row.engine is engine and row.vendor is vendor and row.holds(version))
    return next(found, None)


def vendors_of(engine: EngineType) -> tuple[Vendor, ...]:
    """Vendors whose accelerators the engine runs on in some release."""
    return tuple(vendor for vendor in Vendor if any(row.engine is engine and row.vendor is vendor for row in PLATFORMS))


@lru_cache(1024)
def find(question: Question) -> Cell | None:
    """The row that answers `question`, with the gentlest actuator on its accelerators; None, which is a refusal, where
    the matrix is silent. Kept: each reconcile asks a dozen times for the same ones."""
    platform = platform_of(question.engine, question.vendor, question.version)
    if platform is None or not platform.has(question):
        return None
    # A pipeline where accelerators have none at all is refused for itself.
    asked = question if platform.pipeline else replace(question, pipeline_parallel_size=1)
    cell = next((cell for cell in CELLS[question.engine] if cell.matches(asked)), None)
    if cell is None:
        return None
    actuator = max(cell.actuator, platform.actuator, key=GENTLEST.index)
    return cell if actuator is cell.actuator else replace(cell, actuator=actuator)
