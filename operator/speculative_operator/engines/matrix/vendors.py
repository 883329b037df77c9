"""What speculation an engine keeps on each vendor's accelerators: rows of `data/platforms.csv`, asked before those of
the engine.

Some vendors run the engine itself, others a plug-in with a model runner of its own: that one drafts with the K it was
started with, so a change of K is a rollout there. A method that is not in a row was found neither in the plug-in's
source nor in its documentation, and is refused. Images are told in `engines.images`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from speculative_operator.domain.platform import Vendor
from speculative_operator.domain.spec import EngineType, Method
from speculative_operator.domain.table import Actuator
from speculative_operator.engines.matrix.cell import Cell, Variant, Version, parse_version, rows_of


@dataclass(frozen=True, slots=True)
class Platform:
    """One engine on one vendor's accelerators, in a range of the engine's releases."""

    engine: EngineType
    vendor: Vendor
    methods: frozenset[Method]
    source: str
    """Repository, file and release from which the row was read."""
    since: Version
    before: Version | None
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

    def holds(self, version: Version) -> bool:
        """True when the row speaks of the engine's release `version`."""
        return self.since <= version and (self.before is None or version < self.before)


GENTLEST = (Actuator.LIVE, Actuator.TABLE, Actuator.RESTART, Actuator.NONE)


def _platform(row: Mapping[str, str]) -> Platform:
    methods, variants = row["methods"].split(), [one.replace("plain", "") for one in row["variants"].split()]
    return Platform(
        engine=EngineType(row["engine"]),
        vendor=Vendor(row["vendor"]),
        methods=frozenset(Method) if methods == ["all"] else frozenset(map(Method, methods)),
        source=row["source"],
        since=parse_version(row["since"]) or (0, 0, 0),
        before=parse_version(row["before"]),
        plugin=row["plugin"],
        newest=parse_version(row["newest"]),
        actuator=Actuator(row["actuator"]),
        runner=row["runner"],
        variants=frozenset(Variant) if variants == ["all"] else frozenset(map(Variant, variants)),
        pipeline="pipeline" not in row["lacks"],
        lora="lora" not in row["lacks"],
        remedy=row["remedy"],
    )


PLATFORMS: tuple[Platform, ...] = tuple(map(_platform, rows_of("platforms")))
"""At most one row speaks of an engine, a vendor and a release. Where none does, the engine does not run there."""


def platform_of(engine: EngineType, vendor: Vendor, version: Version) -> Platform | None:
    """The row for the engine's release on the vendor's accelerators; None where it does not run."""
    found = (row for row in PLATFORMS if row.engine is engine and row.vendor is vendor and row.holds(version))
    return next(found, None)


def vendors_of(engine: EngineType) -> tuple[Vendor, ...]:
    """Vendors whose accelerators the engine runs on in some release."""
    return tuple(vendor for vendor in Vendor if any(row.engine is engine and row.vendor is vendor for row in PLATFORMS))


def best_actuator(cell: Cell | None, platform: Platform | None) -> Actuator:
    """The gentlest way to change K: Live, else Table, else Restart, which is also the answer where no row serves."""
    if cell is None:
        return Actuator.RESTART
    return max(cell.actuator, platform.actuator if platform is not None else Actuator.RESTART, key=GENTLEST.index)
