"""Show what each engine can do with each method: how K is changed, what K = 0 costs, what is refused and why.

ENGINE is vLLM, SGLang or TensorRTLLM; without it, all of them are shown, each with the release that is served when
a spec names none. With --method, every field of the rows for that method is shown, with where it was read or proven.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, NamedTuple

from speculative_operator.cli import terminal
from speculative_operator.cli.commands import FAILED, OK, UsageError, member
from speculative_operator.domain.platform import Vendor
from speculative_operator.domain.spec import DEFAULT_VERSIONS, EngineType, Method
from speculative_operator.engines.matrix.answers import Answer, answers
from speculative_operator.engines.matrix.rows import CELLS, Version, parse_version, show_version

EPILOG = """examples:
  speculative engines
  speculative engines vLLM --version 0.31.0
  speculative engines vLLM --method eagle3 --vendor AMD
  speculative engines SGLang -o json

exit status: 0 served, 1 every row asked for is refused, or nobody has looked at the release yet, 2 wrong use of the
command line"""

_HEADERS = (
    *("engine", "release", "method", "runner", "K changes", "data parallel", "passes at 0", "smaller K", "proven"),
    *("K live", "skips"),
)
"""Column headers; the last two are how each answer was shown, where the engine does it without a rollout."""
ASSUMED = "Assumed"
"""The word in place of a proof, for a release that nobody has looked at."""


class _Row(NamedTuple):
    release: str
    """The release as it was asked for: a release candidate is not the release that it names."""
    alone: Answer
    parallel: Answer
    """The answer for the same method under data parallelism."""
    assumed: bool
    """True for a release that is newer than all known releases: nothing of it is proven."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments; `main` calls it."""
    parser.add_argument("engine", metavar="ENGINE", nargs="?", help=f"one of {', '.join(EngineType)}")
    parser.add_argument("--version", metavar="V", help="release of the engine, such as 0.32.0 (the default one)")
    parser.add_argument("--method", metavar="M", help="show one method only, with every field")
    parser.add_argument(
        "--vendor", metavar="X", default=Vendor.NVIDIA.value, help=f"one of {', '.join(Vendor)} (NVIDIA)"
    )
    terminal.add_format(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the answers that were asked for; returns the exit status. Raises UsageError."""
    engines = (
        [member(EngineType, arguments.engine, "ENGINE")] if arguments.engine else [e for e in EngineType if e in CELLS]
    )
    vendor = member(Vendor, arguments.vendor, "--vendor")
    method = member(Method, arguments.method, "--method") if arguments.method else None
    rows = [row for engine in engines for row in _rows(engine, arguments.version, vendor, method)]
    if not rows:
        raise UsageError(f"--method {method}: none of the engines has it", f"name one of {', '.join(Method)}")
    assumed = _warn_of_assumed(rows)
    if arguments.output != terminal.TEXT:
        for row in rows:
            print(terminal.format_document(_object(row), arguments.output))
    elif method is not None:
        _explain(rows)
    else:
        _list(rows)
    return FAILED if assumed or all(row.alone.refused for row in rows) else OK


def _rows(engine: EngineType, given: str | None, vendor: Vendor, method: Method | None) -> list[_Row]:
    release = given or DEFAULT_VERSIONS[engine]
    version = parse_version(release)
    if version is None:
        raise UsageError(f"--version is {release!r}", "write a release such as 0.32.0")
    both = zip(answers(engine, version, vendor), answers(engine, version, vendor, 2), strict=True)
    assumed = version[:2] > _newest(engine)[:2]
    return [_Row(release, *pair, assumed) for pair in both if method in (None, pair[0].question.method)]


def _newest(engine: EngineType) -> Version:
    """The newest known release of the engine."""
    known = [cell.since for cell in CELLS[engine]] + [cell.before for cell in CELLS[engine] if cell.before]
    return max([*known, *filter(None, [parse_version(DEFAULT_VERSIONS[engine])])])


def _warn_of_assumed(rows: list[_Row]) -> bool:
    """Warn on stderr of each release that is newer than all known ones; True where there was such a release."""
    found = dict.fromkeys((row.alone.question.engine, row.release) for row in rows if row.assumed)
    for engine, release in found:
        sys.stderr.write(
            f"warning: {engine} {release} is newer than {show_version(_newest(engine))}, the newest release that is "
            "known here: the rows say what the operator would assume\n"
        )
    return bool(found)


def _list(rows: list[_Row]) -> None:
    terminal.write_table(sys.stdout, _HEADERS, [_cells(row) for row in rows if not row.alone.refused], frozenset((6,)))
    for release, one, *_ in rows:
        if one.refused:
            print(f"refused: {one.question.engine} {release}: {one.refused}")


def _cells(row: _Row) -> tuple[str, ...]:
    release, one, parallel, assumed = row
    return (
        one.question.engine,
        release,
        one.name,
        one.question.runner or "-",
        one.actuator,
        "refused" if parallel.refused else parallel.actuator,
        one.passes,
        "drafts less" if one.follows_k else "verifies less",
        *((ASSUMED, "-", "-") if assumed else (one.proven, one.live or "-", one.off or "-")),
    )


def _explain(rows: list[_Row]) -> None:
    """Print every field of each answer, one a line."""
    for place, row in enumerate(rows):
        shown = _object(row)
        width = max(map(len, shown))
        print(("\n" if place else "") + f"{shown['engine']} {row.release}, {shown['method']}")
        for key, value in shown.items():
            if key not in ("engine", "version", "method") and value not in (None, "", []):
                print(f"  {key.ljust(width)}  {', '.join(value) if isinstance(value, list) else value}")


def _object(row: _Row) -> dict[str, Any]:
    release, one, parallel, assumed = row
    question, cell = one.question, None if one.refused else one.cell
    served = cell is not None
    return {
        "engine": question.engine.value,
        "version": release,
        "method": one.name,
        "vendor": question.vendor.value,
        "runner": question.runner,
        "refused": one.refused,
        "actuator": one.actuator.value,
        "dataParallel": parallel.actuator.value if served else None,
        "passesAtZero": one.passes if served else None,
        "smallerKDraftsLess": one.follows_k if served else None,
        "metrics": list(cell.metrics) if cell else [],
        "since": show_version(cell.since) if cell else None,
        "before": show_version(cell.before) if cell and cell.before else None,
        "plugin": one.platform.plugin if one.platform else "",
        "note": cell.note if cell else "",
        "proven": ASSUMED if assumed else one.proven.value,
        "liveProven": one.live.value if one.live and not assumed else None,
        "skipProven": one.off.value if one.off and not assumed else None,
        "source": one.source,
    }
