"""Prompts for the small verifier, and what an engine accepts of its drafts when it answers those that were held out.

python -m realengine.prompts URL    counters of the engine there, after it has answered; inside a cluster's network
"""

from __future__ import annotations

import json
import random
import sys
import sysconfig
import urllib.request
from dataclasses import asdict
from pathlib import Path

from realengine import counters
from realengine.counters import Counters

HELD_OUT = 24
TOKENS = 64
LINES = 6


def prompts() -> list[str]:
    """Pieces of Python's own library, which the small verifier has learned to go on with; the same in each run. The
    first HELD_OUT are not to be trained on."""
    pieces = []
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        lines = path.read_text(errors="replace").splitlines()
        every = ("\n".join(lines[at : at + LINES]).strip() for at in range(0, len(lines), 40))
        pieces += [text for text in every if 60 < len(text) < 300]
    random.Random(0).shuffle(pieces)  # noqa: S311  (the same in each run)
    return pieces


def write(path: Path, count: int) -> None:
    """A file of `count` prompts to train on."""
    rows = prompts()[HELD_OUT : HELD_OUT + count]
    path.write_text("".join(f"{json.dumps({'prompt': text})}\n" for text in rows))


def accepted(url: str) -> Counters:
    """What the engine at `url` counts while it answers the prompts that were held out, greedily."""
    before = _counters(url)
    for prompt in prompts()[:HELD_OUT]:
        messages = [{"role": "user", "content": prompt}]
        asked = {"model": "tiny", "messages": messages, "max_tokens": TOKENS, "temperature": 0}
        kind = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(asked).encode(), kind)  # noqa: S310
        urllib.request.urlopen(request, timeout=120).close()  # noqa: S310
    return _counters(url).since(before)


def _counters(url: str) -> Counters:
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:  # noqa: S310
        return counters.read(answer.read().decode())


if __name__ == "__main__":
    print(json.dumps(asdict(accepted(sys.argv[1]))))
