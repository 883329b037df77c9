"""The commands of `speculative` and the parser of their arguments. Used by `main`, and by `completion`, which tells
what can follow the words typed so far."""

from __future__ import annotations

import argparse
import difflib
import importlib
from types import ModuleType
from typing import NoReturn

from speculative_operator import __version__
from speculative_operator.cli.commands import FAILED, USAGE, CommandError, UsageError

COMMANDS = {
    "get": "list the SpeculativeDeployments of a cluster",
    "status": "show one: pair, pods, table, load, decisions, and what it waits for",
    "explain": "explain one: why K is what it is, and what to do next",
    "compare": "compare two objects by what they served in the same hours, with a verdict",
    "bench": "load an object with a ladder of request rates, with drafts and without, and show both",
    "doctor": "look for what keeps objects of the cluster from being tuned",
    "pause": "have the operator change nothing of an object",
    "resume": "have it go on",
    "approve": "have the rollout made that the operator proposes, or the canary promoted that waits",
    "adopt": "have pods created as the installed release of the operator creates them",
    "repin": "have branches and tags of an object's models resolved again",
    "plan": "tell before anything is deployed whether speculation is worth it: memory, K, gain, cost",
    "render": "print the manifests that the operator would create",
    "simulate": "run policies over a trace and compare them with the best table in hindsight",
    "cases": "compare the model of step times with published measurements",
    "pairs": "list the publicly known speculators for a verifier, and pick one",
    "check": "check by their files whether a speculator fits its verifier; with exit statuses for pipelines",
    "verify": "compare the output with drafts and without, on the pods that serve; with exit statuses for pipelines",
    "completion": "print the completion of a shell",
}
"""Command -> what it does. Each is the module of that name beside this one, but for those of the laboratory."""
ANNOTATES = frozenset(("pause", "resume", "approve", "adopt", "repin"))
"""Commands of the module `annotate`."""
LABORATORY = frozenset(("simulate", "cases"))
"""Commands of the package `speculative_lab`, which the operator's image does not hold."""

_EPILOG = """exit status: 0 all is well, 1 failed or found something, 2 wrong use of the command line, 130 interrupted
`speculative COMMAND --help` explains a command with examples; docs/cli.md shows the output of each."""


class _Parser(argparse.ArgumentParser):
    """A parser that writes errors in one line, as every command does."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"error: {message}; see {self.prog} --help\n")


def parser(name: str = "", module: ModuleType | None = None) -> argparse.ArgumentParser:
    """The parser of all commands, with the arguments of `module`, which is the command called `name`."""
    formatter = argparse.RawDescriptionHelpFormatter
    root = _Parser(
        prog="speculative",
        formatter_class=formatter,
        epilog=_EPILOG,
        description="Speculative decoding on Kubernetes: look at a cluster; plan, render, check, simulate offline.",
    )
    root.add_argument("--version", action="version", version=f"speculative {__version__}")
    commands = root.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    for known, does in COMMANDS.items():
        own = commands.add_parser(known, help=does, formatter_class=formatter)
        own.set_defaults(command=known)
        if known == name and module is not None:
            own.description = (module.__doc__ or does).strip()
            own.epilog = getattr(module, "EPILOG", None)
            module.add_arguments(own)
    return root


def command(name: str) -> ModuleType:
    """The module of the command called `name`. Raises CommandError where there is none, or this installation lacks
    it."""
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        remedy = f"did you mean {near[0]}?" if near else "speculative --help lists all"
        raise UsageError(f"there is no command {name!r}", remedy)
    package = "speculative_lab" if name in LABORATORY else "speculative_operator"
    path = f"{package}.cli.{'annotate' if name in ANNOTATES else name}"
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as missing:
        if missing.name == package:
            remedy = "install it from a checkout with: pip install . './lab[sim]'"
            raise UsageError(f"the command {name} needs the laboratory, which is not installed", remedy) from None
        if missing.name == path:
            raise CommandError(f"this installation has no command {name}", "update it", FAILED) from None
        raise
