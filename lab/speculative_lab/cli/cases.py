"""Hold the cost model against published speed-ups: a prediction and its error for every row of a CSV file.

FILE has the columns case_id, source, evidence, engine, model, moe, gpu, n_gpu, method, dataset, ctx_or_io, load_kind,
load, K, metric, baseline, value, speedup, accept_len, sign, tol_rel, note; any of them may be missing or empty. What a
row does not say is assumed and told; no row is left out. docs/tuning-mathematics.md explains the model and its errors.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from speculative_lab.cases.prediction import CasePrediction, Summary, predict, summarise
from speculative_operator.cli import commands, terminal
from speculative_operator.cli.commands import OK, CommandError

EPILOG = """examples:
  speculative cases cases.csv
  speculative cases cases.csv -o json | tail -1

exit status: 0 predicted, 1 the file has no rows, 2 it cannot be read, or wrong use of the command line"""

_LARGEST = 64 * 2**20
_KNOWN = frozenset(("model", "gpu", "method", "speedup"))
_WIDEST = 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments; `main` calls it."""
    parser.add_argument("file", metavar="FILE", help="CSV file with one published result per row")
    terminal.add_format(parser)
    parser.add_argument("--worst", type=_count, default=20, metavar="N", help="number of worst rows to print (20)")


def run(arguments: argparse.Namespace) -> int:
    """Predict, print; the exit status. Raises CommandError."""
    predictions = [predict(row) for row in _rows(arguments.file)]
    summary = summarise(predictions, arguments.worst)
    if arguments.output != terminal.TEXT:
        _print_documents(predictions, summary, arguments.output)
    else:
        _print_tables(predictions, summary)
    return OK


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return number


def _rows(path: str) -> list[Mapping[str, str]]:
    reader = csv.DictReader(io.StringIO(commands.read_text(path, "FILE", _LARGEST), newline=""))
    try:
        rows: list[Mapping[str, str]] = list(reader)
    except csv.Error as problem:
        raise CommandError(f"FILE {path}, line {reader.line_num} is not CSV: {problem}", "quote its cells") from None
    if not _KNOWN & {(name or "").strip() for name in reader.fieldnames or ()}:
        raise CommandError(f"FILE {path} has none of the columns {', '.join(sorted(_KNOWN))}", "give it a header row")
    if not rows:
        raise CommandError(f"FILE {path} has no rows", "give at least one")
    return rows


def _print_documents(predictions: Sequence[CasePrediction], summary: Summary, form: str) -> None:
    for one in predictions:
        print(terminal.format_document(_row(one), form))
    last = {
        "rows": summary.rows,
        "balanced_sign_percent": _rounded(summary.balanced_sign_percent, 1),
        "median_abs_log_error": _rounded(summary.median_abs_log_error),
        "median_abs_log_error_by_source": {name: _rounded(error) for name, error in summary.by_source.items()},
        "worst": [_row(one) for one in summary.worst],
    }
    print(terminal.format_document(last, form))


def _row(one: CasePrediction) -> dict[str, Any]:
    case = one.case
    return {
        "case_id": case.name,
        "source": case.source,
        "evidence": case.evidence,
        "measured": one.measured,
        "model": case.verifier.name,
        "accelerator": case.accelerator.name,
        "accelerators": case.accelerators,
        "method": case.method.value,
        "k": case.drafting.k,
        "requests": _rounded(one.batch),
        "accept_length": _rounded(one.accept_length),
        "predicted": _rounded(one.predicted),
        "published": case.speedup,
        "log_error": _rounded(one.log_error),
        "sign_right": one.sign_right,
        "assumed": list(case.assumed),
    }


def _print_tables(predictions: Sequence[CasePrediction], summary: Summary) -> None:
    out = sys.stdout
    headers = ("case", "source", "model", "accelerator", "method", "load", "K", "predicted", "published", "error")
    terminal.write_table(out, headers, [_cells(one) for one in predictions], frozenset(range(5, 10)))
    out.write("\nmedian |log error| by source\n")
    counts = [(name, f"{error:.3f}") for name, error in summary.by_source.items()]
    terminal.write_table(out, ("source", "error"), counts, frozenset((1,)))
    if summary.worst:
        out.write(f"\nworst {len(summary.worst)} rows\n")
        worst = [(*_cells(one), "; ".join(one.case.assumed)) for one in summary.worst]
        terminal.write_table(out, (*headers, "assumed"), worst, frozenset(range(5, 10)))
    _print_summary(summary)


def _print_summary(summary: Summary) -> None:
    (gains, all_gains), (losses, all_losses) = summary.gains, summary.losses
    print(f"\nrows {summary.rows}, of which {summary.assumed_rows} need assumed values")
    print(f"signs: {gains} of {all_gains} gains, {losses} of {all_losses} losses", end="")
    percent = summary.balanced_sign_percent
    print(f"; balanced {percent:.1f} %" if percent is not None else "; none to judge")
    for name, error in (
        ("all rows", summary.median_abs_log_error),
        ("anchor (Llama-3.1-8B on H100, arXiv 2601.11580)", summary.median_abs_log_error_anchor),
        ("sources of measurements, median of their medians", summary.median_of_measured_sources),
    ):
        print(f"median |log error|, {name}: {error:.3f}" if error is not None else f"{name}: none")


def _cells(one: CasePrediction) -> tuple[str, ...]:
    case = one.case
    error = one.log_error
    return (
        case.name,
        case.source[:_WIDEST],
        case.verifier.name.rsplit("/", 1)[-1][:_WIDEST],
        f"{case.accelerators} x {case.accelerator.name}",
        case.method.value,
        f"{case.load:g}",
        str(case.drafting.k),
        f"{one.predicted:.3f}",
        "" if case.speedup is None else f"{case.speedup:.3f}",
        "" if error is None else f"{error:+.3f}",
    )


def _rounded(value: float | None, digits: int = 4) -> float | None:
    """Rounded; what is no number is not known."""
    return round(value, digits) if value is not None and math.isfinite(value) else None
