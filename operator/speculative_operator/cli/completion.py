"""Print the completion of a shell: commands, options, their choices, names of objects, and files.

`kubectl speculative` is completed by kubectl itself, which asks the program kubectl_complete-speculative.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise

from speculative_operator.cli.commands import OK, CommandError
from speculative_operator.cli.parsers import COMMANDS, command, parser

EPILOG = """examples:
  source <(speculative completion bash)
  speculative completion zsh > "${fpath[1]}/_speculative"
  speculative completion fish > ~/.config/fish/completions/speculative.fish

exit status: 0 printed, 2 wrong use of the command line"""

_SCRIPTS = {
    "bash": """_speculative() {
  local IFS=$'\\n'
  COMPREPLY=($(compgen -W "$(speculative __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)" -- "$2"))
}
complete -o default -F _speculative speculative
""",
    "zsh": """#compdef speculative
_speculative() {
  local -a found
  found=("${(@f)$(speculative __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  [[ -n "$found" ]] && compadd -- "${found[@]}" || _files
}
if [ "$funcstack[1]" = _speculative ]; then _speculative "$@"; else compdef _speculative speculative; fi
""",
    "fish": """complete -c speculative \\
  -a '(speculative __complete (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
""",
}
_OF_OBJECTS = frozenset(("status", "explain", "pause", "resume", "approve", "adopt", "repin", "verify", "bench"))
"""Commands whose first argument is the name of an object."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments; `main` calls it."""
    parser.add_argument("shell", choices=tuple(_SCRIPTS), help="the shell")


def run(arguments: argparse.Namespace) -> int:
    """Print the script; the exit status."""
    sys.stdout.write(_SCRIPTS[arguments.shell])
    return OK


def candidates(words: Sequence[str]) -> list[str]:
    """The words that can stand in place of the last of `words`, the arguments typed so far."""
    *before, last = words or [""]
    name = next((word for word in before if word in COMMANDS), "")
    if not name:
        return [one for one in (*COMMANDS, "--help", "--version") if one.startswith(last)]
    try:
        root = parser(name, command(name))
    except CommandError:
        return []
    (of_commands,) = (one for one in root._actions if isinstance(one, argparse._SubParsersAction))
    own = of_commands.choices[name]
    return [one for one in _following(own, name, before[before.index(name) + 1 :], last) if one.startswith(last)]


def _following(own: argparse.ArgumentParser, name: str, before: Sequence[str], last: str) -> Iterator[str]:
    """Yield choices of the option before; else options after a dash; else choices and names of the first argument."""
    options = {option: action for action in own._actions for option in action.option_strings}
    takes = {option for option, action in options.items() if action.nargs != 0}
    if before and before[-1] in takes:
        yield from (str(one) for one in options[before[-1]].choices or ())
        return
    if last.startswith("-"):
        yield from options
        return
    for action in own._actions:
        if not action.option_strings:
            yield from (str(one) for one in action.choices or ())
    given = [word for left, word in pairwise(("", *before)) if not word.startswith("-") and left not in takes]
    if name in _OF_OBJECTS and not given:
        yield from _names(before)


def _names(before: Sequence[str]) -> Iterator[str]:
    """Yield names of the cluster's objects; none where it does not answer."""
    from speculative_operator.cli.cluster import Cluster

    given = argparse.Namespace(namespace="", context="")
    for option, value in pairwise(before):
        if option in ("-n", "--namespace"):
            given.namespace = value
        elif option == "--context":
            given.context = value
    try:
        yield from (str(one["metadata"]["name"]) for one in Cluster(given).objects())
    except CommandError:
        return


def complete(words: Sequence[str] | None = None) -> int:
    """Print for `kubectl_complete-speculative` what can follow: one word a line and `:0`, as kubectl reads it."""
    found = candidates(list(sys.argv[1:] if words is None else words))
    sys.stdout.writelines(f"{one}\n" for one in (*found, ":0"))
    return OK
