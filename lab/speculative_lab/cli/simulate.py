"""Run policies over a recorded or made-up load on a simulated deployment, and compare them with the best possible.

Every policy gets the same requests. Ours sees what Prometheus would; the oracle knows the deployment's true costs and
acceptance; rivals inside an engine see its steps. Speed is output tokens per second that a request spends in the
system, waiting included; regret is what is missing to the oracle.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from speculative_operator.cli.commands import OK, UsageError

if TYPE_CHECKING:
    from speculative_lab.cli.arena import Arena, Result
    from speculative_lab.cli.standings import Standings

EPILOG = """examples:
  speculative simulate --trace AzureLLMInferenceTrace_conv.csv --format azure --seconds 10m
  speculative simulate --trace mine.jsonl --format jsonl --verifier Qwen/Qwen3-8B --speculator Qwen/Qwen3-0.6B \\
      --method draft_model --accelerator A100-80GB --max-k 5 --policy ours --policy off --policy static
  speculative simulate --scenario diurnal --perturb --json --report report/

policies: ours, oracle, off (K = 0, which still runs the speculator), never (no speculator), static_K, and the rivals;
the groups static and rivals stand for all of theirs. Default: all of them. The oracle always runs.
Needs numba: pip install . './lab[sim]'.
exit status: 0 simulated, 1 failed, 2 wrong use of the command line"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    load = parser.add_argument_group("load").add_argument
    load("--trace", metavar="FILE", default="", help="file of requests with their times and lengths")
    load("--format", choices=("azure", "jsonl", "csv"), help="format of the trace; default: by its first line")
    load("--scenario", metavar="NAME", default="", help="scenario of the benchmark instead of trace and deployment")
    load("--seconds", metavar="TIME", default="", help="length of the simulated load, such as 10m; default: all of it")
    load("--speed-up", metavar="X", type=float, default=1.0, help="requests arrive X times as fast; default 1")
    load("--seed", metavar="N", type=int, default=0, help="seed of all randomness; default 0")
    pair = parser.add_argument_group("deployment").add_argument
    pair("--spec", metavar="FILE", default="", help="SpeculativeDeployment instead of the options below")
    pair("--facts", metavar="FILE", default="", help="facts of models and hardware")
    pair("--accelerator", metavar="NAME", default="H100-SXM", help="default H100-SXM")
    pair("--accelerators", metavar="N", type=int, default=1, help="number of accelerators of one replica; default 1")
    pair("--verifier", metavar="MODEL", default="meta-llama/Llama-3.1-8B-Instruct", help="default Llama-3.1-8B")
    pair("--speculator", metavar="MODEL", default="", help="default: the EAGLE-3 head of the default verifier")
    pair("--method", default="eagle3", help="eagle3, draft_model, ngram, ...; default eagle3")
    pair("--workload", default="Mixed", help="Code, Structured, Chat, Summarization, Creative or Mixed; default Mixed")
    pair("--max-k", metavar="K", type=int, help="largest K; default 8")
    pair("--replicas", metavar="N", type=int, default=1, help="default 1")
    pair(
        "--perturb",
        action="store_true",
        help="let true costs differ by up to 30 %% from what the tuner expects, with odd shapes",
    )
    output = parser.add_argument_group("policies and output").add_argument
    output("--policy", metavar="NAME", action="append", default=[], help="may be repeated")
    output("--json", action="store_true", help="print one JSON object per policy, then a summary")
    output("--report", metavar="DIR", default="", help="write DIR/index.html, which opens offline")


def run(options: argparse.Namespace) -> int:
    """Simulate, print, report."""
    _check(options)
    from speculative_lab.cli import arena as arenas
    from speculative_lab.cli.standings import standings

    found = arenas.arena(options)
    wanted = arenas.chosen(found, options.policy)
    progress = _Progress(sys.stderr, wanted)
    results = [progress.told(result) for result in arenas.compete(found, wanted)]
    table = standings(results)
    if options.json:
        _print_json(sys.stdout, found, results, table)
    else:
        _print_text(sys.stdout, found, results, table)
    if options.report:
        from speculative_lab.cli.report import write

        path = Path(options.report)
        page = write(path, found, results, table, sys.argv[1:])
        sys.stderr.write(f"report: {page}\n")
    return OK


def _check(options: argparse.Namespace) -> None:
    if not 0 < options.speed_up < 1e6:
        raise UsageError(f"--speed-up is {options.speed_up:g}", "write a number above 0, such as 2")
    if not 1 <= options.replicas <= 64:
        raise UsageError(f"--replicas is {options.replicas}", "write 1 to 64")
    if options.seed < 0:
        raise UsageError(f"--seed is {options.seed}", "write 0 or more")


class _Progress:
    """Which policy runs, on a terminal only."""

    def __init__(self, out: TextIO, names: list[str]) -> None:
        self._out = out if out.isatty() else None
        self._names = names
        self._done = 0
        self._say()

    def told(self, result: Result) -> Result:
        self._done += 1
        self._say()
        return result

    def _say(self) -> None:
        if self._out is None:
            return
        now = self._names[self._done] if self._done < len(self._names) else ""
        self._out.write(f"\r\x1b[K{self._done}/{len(self._names)} {now}" if now else "\r\x1b[K")
        self._out.flush()


def _print_json(out: TextIO, found: Arena, results: list[Result], table: Standings) -> None:
    from speculative_lab.cli.standings import as_object, summary

    for row in table.rows:
        out.write(json.dumps(as_object(row), allow_nan=False) + "\n")
    out.write(json.dumps(summary(found, results, table), allow_nan=False) + "\n")


def _print_text(out: TextIO, found: Arena, results: list[Result], table: Standings) -> None:
    from speculative_lab.cli.standings import HEADERS, as_cells, sentences
    from speculative_operator.cli import terminal

    out.write(f"{found.title}\n\n")
    terminal.write_table(out, HEADERS, [as_cells(row) for row in table.rows], frozenset(range(1, len(HEADERS))))
    out.write("\n" + "\n".join(sentences(found, results, table)) + "\n")
