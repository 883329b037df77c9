"""What vLLM's releases can turn for each method on each model runner: rows of the capability matrix.

`CELLS` is the product of `forms.FORMS` and `forms.RELEASES`. Asked by `plan` and `checks`; `speculative engines` and
docs/engines.md show it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from speculative_operator.domain.platform import Vendor
from speculative_operator.domain.spec import EngineType, Method
from speculative_operator.domain.table import Actuator
from speculative_operator.engines.matrix.cell import (
    ALL_VENDORS,
    Cell,
    Extent,
    Figure,
    Proven,
    Question,
    Variant,
    Version,
    find,
)
from speculative_operator.engines.matrix.vendors import GENTLEST, platform_of
from speculative_operator.engines.vllm.forms import (
    FORMS,
    RELEASES,
    V2_SCHEDULE_SINCE,
    Form,
    Release,
    Runner,
)

LIVE_PROVEN = tuple(
    (0, minor)
    for one in RELEASES
    if one.actuator is Actuator.LIVE and one.runner is Runner.V1 and one.before is not None
    for minor in range(one.since[1], one.before[1])
)
"""Release lines on which the plug-in was run. The payload holds the same list, for its label `proven`."""
SKIPPED = frozenset(
    {Method.DRAFT_MODEL, Method.NGRAM, Method.EAGLE, Method.EAGLE3, Method.MTP, Method.DFLASH, Method.DSPARK}
)
"""Methods whose speculator the plug-in's worker on the V2 runner can skip, and makes follow K where vLLM does not. The
payload holds the same list."""
EMULATED: Version = (0, 32, 0)
"""The release that the emulator imitates; a test holds the rows of this release to it."""

_TRUSTED = frozenset({Figure.ACCEPTED, Figure.PER_POSITION, Figure.DRAFTED, Figure.STEP_TIME})
_REAL = frozenset({Method.DRAFT_MODEL, Method.NGRAM, Method.EAGLE3})
"""Methods whose live changes of K the end-to-end run on the real engine asserts (CPU, V1 runner, one process), and
whose K changes and is skipped in tests/vllm on the V2 runner of each release that it has been run with."""
_MATRIX = frozenset({Method.DRAFT_MODEL, Method.EAGLE3})
"""Methods whose K changed in the real engine of every release that has a build."""
_RAN_ONCE = frozenset({Method.MTP})
"""Methods that tests/vllm run with live K, on 0.32 alone."""
_IN_CLASSES = frozenset({Method.DRAFT_MODEL})
_REAL_SOURCE = "make e2e-vllm: vLLM 0.32.0 on a CPU, V1 runner, one process"
_DEADLOCK = "Under data parallelism the engine drops a schedule; 0.24 to 0.27 take it and may deadlock."


def _cells() -> Iterator[Cell]:
    for form in FORMS:
        for cell in _of_form(form):
            yield from _split_by_proof(cell)


def _of_form(form: Form) -> Iterator[Cell]:
    base = Cell(
        engine=EngineType.VLLM,
        method=form.method,
        since=form.since,
        actuator=Actuator.RESTART,
        source=form.source,
        runner=form.runner,
        variant=form.variant,
        passes_at_zero=0.0,
        drafts_blocks=form.block,
        pipelined_since=form.pipelined_since,
        metrics=_TRUSTED - ({Figure.DRAFTED} if form.diluted else set()),
        note=form.note,
    )
    if not form.scheduled:
        yield base
        return
    for release in RELEASES:
        since = max(release.since, form.since)
        if release.runner is form.runner and (release.before is None or since < release.before):
            yield from _of_release(replace(base, since=since, before=release.before), form, release)


def _of_release(cell: Cell, form: Form, release: Release) -> Iterator[Cell]:
    if release.actuator is Actuator.RESTART:
        yield cell
        return
    live = release.actuator is Actuator.LIVE
    yield replace(
        cell,
        actuator=release.actuator,
        data=Extent.ONE,
        passes_at_zero=form.passes_at_zero,
        follows_k=form.follows,
        metrics=cell.metrics | ({Figure.ACTIVE_K} if live else set()),
        live=_live(cell, release) if live else None,
        off=_off(cell, release) if live else None,
    )
    yield replace(cell, data=Extent.MANY, note=_DEADLOCK, source="vLLM 0.32.0 config/vllm.py; vllm#44185, vllm#45963")


def _live(cell: Cell, release: Release) -> Proven:
    """How live changes of K were shown to work for the row in the release."""
    ran = _IN_CLASSES if release.proven is Proven.CLASSES else _REAL if release.runner is Runner.V2 else _MATRIX
    if release.since == EMULATED:
        ran = _REAL | _RAN_ONCE
    return release.proven if cell.method in ran and cell.variant is Variant.PLAIN else Proven.SOURCE


def _off(cell: Cell, release: Release) -> Proven | None:
    """How it was shown that workers skip the speculator at K = 0; None where they run it."""
    if cell.method not in SKIPPED or release.runner is Runner.V1 or cell.variant is not Variant.PLAIN:
        return None
    return _live(cell, release)  # one run asserts both


def _split_by_proof(cell: Cell) -> tuple[Cell, ...]:
    """The row with how it was shown to be true; two rows where the proof is stronger on one vendor's accelerators."""
    if not cell.since <= EMULATED or (cell.before is not None and cell.before <= EMULATED):
        return (cell,)
    if cell.variant is Variant.PARALLEL:
        return (cell,)
    emulated = replace(cell, proven=Proven.EMULATED)
    live_on_v1 = cell.actuator is Actuator.LIVE and cell.runner == Runner.V1 and cell.variant is Variant.PLAIN
    if not live_on_v1 or cell.method not in _REAL:
        return (emulated,)
    on_cpu = frozenset({Vendor.CPU})
    return (
        replace(cell, vendors=on_cpu, proven=Proven.REAL_ENGINE, source=_REAL_SOURCE),
        replace(emulated, vendors=ALL_VENDORS - on_cpu),
    )


CELLS: tuple[Cell, ...] = tuple(_cells())
"""Every row of vLLM."""


SERVED = frozenset(form.method for form in FORMS)
"""Methods that some model runner has."""
BLOCK_METHODS = frozenset(form.method for form in FORMS if form.block and form.variant is Variant.PLAIN)
"""Methods whose plain form drafts all K tokens in one pass."""


@lru_cache(1024)
def row_of(asked: Question) -> Cell | None:
    """The row of `CELLS` that answers the question, kept: each reconcile asks a dozen times for the same ones."""
    return find(CELLS, asked)


def runner_under_schedule(asked: Question) -> Runner:
    """The runner that serves the method best when K may change, whatever runner and parallelism are asked for.

    The gentlest actuator counts first, then that a smaller K drafts less (a block is one pass at every K), then what
    the release takes by itself: V2 from 0.32 on, V1 before.
    """
    platform = platform_of(asked.engine, asked.vendor, asked.version)
    order = (Runner.V2, Runner.V1) if asked.version >= V2_SCHEDULE_SINCE else (Runner.V1, Runner.V2)
    served: list[tuple[int, bool, Runner]] = []
    for runner in order:
        cell = row_of(replace(asked, runner=runner, data_parallel_size=1))
        if cell is not None and (platform is None or platform.runner in ("", runner)):
            served.append((GENTLEST.index(cell.actuator), not (cell.follows_k or cell.drafts_blocks), runner))
    return min(served, key=lambda one: one[:2])[2] if served else Runner.V1
