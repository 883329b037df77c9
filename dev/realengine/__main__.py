"""`python -m realengine install|serve`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from devcluster.progress import Reporter
from realengine import paths
from realengine.install import InstallError, installed
from realengine.serving import argv, environment


def install(_options: argparse.Namespace) -> int:
    """Install the engine where it is missing."""
    print(installed(Reporter()))
    return 0


def serve(options: argparse.Namespace) -> int:
    """One engine on loopback with the small models, for looking at it by hand: becomes the engine."""
    python = installed(Reporter())
    home = Path(options.home).resolve()
    home.mkdir(parents=True, exist_ok=True)
    more = [word for word in options.more if word != "--"]
    command = argv(python, paths.models() / "target", options.port, more)
    os.execve(command[0], command, {**os.environ, **environment(home)})  # noqa: S606  (no shell is wanted)


def main() -> int:
    parser = argparse.ArgumentParser(prog="realengine", description="The real vLLM on a CPU.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    commands.add_parser("install", help="install the engine into the cache").set_defaults(act=install)
    serving = commands.add_parser("serve", help="one engine on loopback, with further vLLM flags behind --")
    serving.add_argument("--port", type=int, default=8126)
    serving.add_argument("--home", default="build/real-engine", help="folder of the engine's caches")
    serving.add_argument("more", nargs=argparse.REMAINDER)
    serving.set_defaults(act=serve)
    options = parser.parse_args()
    try:
        code: int = options.act(options)
    except InstallError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
