"""List the speculators that are publicly known for a verifier: method, K, published acceptance, and where it is said.

VERIFIER is organisation/model, as in `spec.verifier.model`; quantizations are found by their names (Qwen3-8B-FP8). With
it, the first line says which one `auto` would pick and why, with vLLM's default release on one H100, and rows are in
that order; without it every row is listed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from speculative_operator.cli import cluster, measured, terminal
from speculative_operator.cli.commands import FAILED, OK, UsageError, read_text
from speculative_operator.domain.models import ModelFacts
from speculative_operator.domain.spec import AcceleratorRequest as Accelerator
from speculative_operator.domain.spec import DeploymentSpec, Method, ModelSource, Scheme, Verifier
from speculative_operator.engines.pairs import choose, key_of, with_entry
from speculative_operator.pairing import catalogue
from speculative_operator.pairing.catalogue import REMEDY, Catalogue, Match
from speculative_operator.pairing.catalogue_rows import CatalogueError, Entry
from speculative_operator.pairing.ranking import STAND_INS
from speculative_operator.pairing.verdict import Verdict
from speculative_operator.weights.source import WeightsError

Read = Callable[[ModelSource, str], ModelFacts]
"""(source, side) -> facts. Raises WeightsError."""
Judge = Callable[[DeploymentSpec, Mapping[str, ModelFacts]], Verdict]


@dataclass(frozen=True, slots=True)
class Auto:
    """The pick for a spec, and the entries of the catalogue that were passed over."""

    spec: DeploymentSpec
    """The spec with the picked speculator; without a speculator where none was picked."""
    sides: dict[str, ModelFacts]
    entry: Entry | None
    reason: str
    passed_over: tuple[tuple[Entry, str], ...] = ()
    """Entries of the catalogue that do not fit or cannot be read, each with the reason."""

    @property
    def lines(self) -> list[str]:
        """The message for people: each entry that was passed over, with why, and the reason of the pick."""
        over = [f"{'passed over':<12}{entry.title} ({entry.method}): {why}" for entry, why in self.passed_over]
        return [*over, f"{'auto':<12}{self.reason}"]

    def to_json(self) -> dict[str, Any]:
        """The pick under the key `picked`, for the JSON object that `check` prints."""
        over = [
            {"speculator": one.uri or None, "method": one.method.value, "why": why} for one, why in self.passed_over
        ]
        known: dict[str, Any] = dict.fromkeys(("speculator", "method", "k", "source"))
        if (one := self.entry) is not None:
            known = {"speculator": one.uri or None, "method": one.method.value, "k": one.k, "source": one.source}
        return {"picked": {**known, "reason": self.reason, "passedOver": over}}


def pick_and_read(spec: DeploymentSpec, rows: Catalogue, read: Read, judge: Judge) -> Auto:
    """The pick: the first entry that fits, with the facts of both models. Raises WeightsError where the verifier cannot
    be read."""
    verifier = read(spec.verifier.source, "verifier")
    alone = {"verifier": verifier}
    blame = judge(spec, alone).compatible
    over: list[tuple[Entry, str]] = []
    while True:
        choice = choose(spec, rows, verifier.base_models, without=frozenset(key_of(one) for one, _ in over))
        if choice.entry is None:
            reason = f"no known speculator works: {REMEDY}" if over else choice.reason
            return Auto(spec, alone, None, f"{reason}. The verifier is served alone", tuple(over))
        told, sides, why = with_entry(spec, choice.entry), dict(alone), ""
        source = told.speculator.source if told.speculator is not None else None
        try:
            if source is not None:
                sides["speculator"] = read(source, "speculator")
        except WeightsError as problem:
            why = str(problem)
        if not why and (not blame or judge(told, sides).compatible):
            return Auto(told, sides, choice.entry, choice.reason, tuple(over))
        over.append((choice.entry, why or "; ".join(one.message for one in judge(told, sides).errors)))


EPILOG = """examples:
  speculative pairs
  speculative pairs Qwen/Qwen3-8B
  speculative pairs RedHatAI/Qwen3-32B-FP8-dynamic --method eagle3 -o json
  speculative pairs --measured -n models > our-pairs.csv
  speculative pairs my-org/my-model --base Qwen/Qwen3-14B --catalogue our-pairs.csv

docs/pairs.md explains the columns of --catalogue and the order of rows.

exit status: 0 listed, 1 no speculator is known for VERIFIER, 2 wrong use of the command line or of --catalogue"""

_LARGEST = 4 * 2**20
_HEADERS = ("verifier", "speculator", "method", "K", "accepted", "for", "date", "source")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments; `main` calls it."""
    parser.add_argument("verifier", metavar="VERIFIER", nargs="?", help="organisation/model; default: all rows")
    base = "model from which VERIFIER is derived; may be repeated"
    parser.add_argument("--base", metavar="MODEL", action="append", default=[], help=base)
    parser.add_argument("--method", metavar="M", help="show rows of one method only")
    add_catalogue(parser)
    measured_help = "print as CSV, for --catalogue and for the operator's catalogue, what speculator.measure found"
    parser.add_argument("--measured", action="store_true", help=measured_help)
    cluster.add_arguments(parser)
    terminal.add_format(parser, "the page of each source")


def run(arguments: argparse.Namespace) -> int:
    """Print the rows that were asked for; returns the exit status. Raises UsageError, and CommandError of a cluster."""
    if arguments.measured:
        print(measured.csv_of(cluster.Cluster(arguments).objects()), end="")
        return OK
    rows = rows_of(arguments)
    if arguments.method:
        method = next((one for one in Method if one.value == arguments.method.lower()), None)
        if method is None:
            raise UsageError(f"--method is {arguments.method!r}", f"name one of {', '.join(Method)}")
        rows = Catalogue(tuple(one for one in rows.entries if one.method is method))
    if arguments.verifier is None:
        _print([(None, one) for one in rows.entries], arguments.output)
        return OK
    found = rows.entries_for(arguments.verifier, tuple(arguments.base))
    choice = choose(_alone(arguments.verifier), rows, tuple(arguments.base))
    order = {key_of(one): place for place, one in enumerate(choice.ranked)}
    found = tuple(sorted(found, key=lambda row: order.get(key_of(row[1]), len(found))))
    if arguments.output in (terminal.TEXT, terminal.WIDE):
        print(choice.reason)
    if found:
        _print(list(found), arguments.output)
    return OK if found else FAILED


def _alone(verifier: str) -> DeploymentSpec:
    """A spec with this verifier and nothing else, on the accelerator that orders speculators where none is named."""
    source = ModelSource(Scheme.HF, verifier.split("://", 1)[-1])
    device = Accelerator(product=STAND_INS[1])
    return DeploymentSpec("pairs", "default", "", 1, Verifier(source, "pairs"), accelerator=device)


def add_catalogue(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names a file with the user's own rows; `check` has it, too."""
    parser.add_argument("--catalogue", metavar="FILE", help="CSV file with your own rows, which go first")


def rows_of(arguments: argparse.Namespace) -> Catalogue:
    """The rows of the package, with those of --catalogue first. Raises UsageError."""
    if arguments.catalogue is None:
        return catalogue.load_packaged()
    try:
        return catalogue.catalogue_of(read_text(arguments.catalogue, "--catalogue", _LARGEST), arguments.catalogue)
    except CatalogueError as problem:
        raise UsageError(f"--catalogue {problem}") from None


def _print(rows: list[tuple[Match | None, Entry]], form: str) -> None:
    if form in (terminal.JSON, terminal.YAML):
        for match, one in rows:
            print(terminal.format_document(_object(match, one), form))
    else:
        cells = [_cells(one, wide=form == terminal.WIDE) for _, one in rows]
        terminal.write_table(sys.stdout, _HEADERS, cells, frozenset((3,)))


def _cells(one: Entry, *, wide: bool) -> tuple[str, ...]:
    at = f" at K = {one.acceptance_k}" if one.acceptance_k else ""
    accepted = f"{one.acceptance_length:.2f}{at}" if one.acceptance_length is not None else "-"
    method = one.method.value + (", one pass" if one.one_pass else "")
    own = one.speculator or "(part of the verifier)"
    source = one.source if wide else "/".join(one.source.split("/")[2:5])
    return one.verifier, own, method, str(one.k or "-"), accepted, one.trained_for or "-", one.date, source


def _object(match: Match | None, one: Entry) -> dict[str, Any]:
    return {
        "verifier": one.verifier,
        "speculator": one.speculator or None,
        "method": one.method.value,
        "parallelDrafting": one.one_pass,
        "trainedFor": one.trained_for or None,
        "k": one.k,
        "acceptanceLength": one.acceptance_length,
        "acceptanceK": one.acceptance_k,
        "acceptanceOn": one.acceptance_on or None,
        "acceptanceSource": one.acceptance_source or None,
        "source": one.source,
        "date": one.date,
        "added": one.added,
        "match": match.name.capitalize() if match is not None else None,
    }
