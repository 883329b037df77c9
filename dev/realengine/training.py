"""`python -m realengine.training`: speculators are trained for the small verifier as a training's pod would do it,
without a cluster: the scripts of `speculative_operator.training.scripts`, one after the other, in a folder.

    python -m realengine.training [--methods eagle3 peagle dflash] [--kills 2] [--out build/training]

It ends with one line of JSON: for each method what validation let expect with K = 1, 2 and so on, and what the real
engine then accepted of the trained head and of an untrained one, on prompts that neither has seen. `--kills`: kill
everything that runs, as the loss of a node would, while the verifier answers, then after the first and second epoch.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from devcluster.options import Image
from devcluster.progress import Reporter
from realengine import paths, prompts, trainer_image
from realengine.install import installed
from realengine.serving import argv, environment
from speculative_operator.domain.training import Trained
from speculative_operator.trainer.finish import ACCOUNT, MODEL
from speculative_operator.training import scripts
from speculative_operator.training.jobs import hidden_layers

LAYERS = 3
"""Of the small verifier."""
TOKENS = 384
DRAFTS = 3
START_SECONDS = 240.0
PORT = 8341
LEAST_TIMES = 3
"""How often more drafts must be accepted of a trained head than of an untrained one, counted as 1 % at least."""


@dataclass
class Chain:
    """One training in the folder `output`."""

    image: Image
    output: Path
    prompts: Path
    method: Trained = Trained.EAGLE3
    variables: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        """What the containers of the pod are given."""
        home = self.output.parent / "home"
        home.mkdir(parents=True, exist_ok=True)
        own = {
            "OUTPUT": self.output, "VERIFIER": paths.models() / "target", "PROMPTS": self.prompts,
            "METHOD": self.method, "ANSWERS": "Regenerate", "SEQUENCE_TOKENS": TOKENS, "ANSWER_TOKENS": TOKENS // 2,
            "SAMPLES": "", "EPOCHS": 3, "SEED": 1, "LAYERS": " ".join(map(str, hidden_layers(LAYERS))),
            "STATES": self.states, "ACCELERATORS": 0,
        }  # fmt: skip
        given = {**scripts.ENVIRONMENT, **self.image.env, **{name: str(value) for name, value in own.items()}}
        return {**given, "HOME": str(home), **environment(home), **self.variables}

    @property
    def states(self) -> Path:
        return self.output.parent / "states"

    def answers(self) -> subprocess.Popen[bytes]:
        return self._start("answers", ["/bin/sh", "-c", scripts.ANSWERS, "answers"])

    def engine(self) -> subprocess.Popen[bytes]:
        """The one that hands out hidden states."""
        layers = [*hidden_layers(LAYERS), LAYERS]
        given = scripts.states_arguments(str(paths.models() / "target"), layers, TOKENS, str(self.states))
        return self._start("states", ["/bin/sh", "-c", scripts.STATES, "states", *given])

    def train(self, *more: str) -> subprocess.Popen[bytes]:
        return self._start(
            "train", ["/bin/sh", "-c", scripts.TRAIN, "train", *scripts.drafts_arguments(self.method, DRAFTS), *more]
        )

    def finish(self) -> subprocess.Popen[bytes]:
        program = [sys.executable, "-m", "speculative_operator.trainer", "finish", "--output", str(self.output)]
        of = ["--verifier", str(paths.models() / "target"), "--base", "hf://tiny/target", "--method", self.method]
        return self._start("check", [*program, *of], {"PYTHONPATH": str(paths.ROOT / "operator")})

    def _start(self, name: str, command: Sequence[str], more: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """A process group of its own, with a log beside the output."""
        env = {**self.environment(), **(more or {})}
        with (self.output.parent / f"{name}.log").open("ab") as log:
            return subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)


def end(process: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> None:
    """End the whole process group."""
    with suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, number)
        process.wait(30)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait_healthy(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
            return
        except OSError:
            time.sleep(1)
    raise RuntimeError(f"the engine on port {port} did not become healthy")


def run_pod(chain: Chain, lost: Callable[[], bool]) -> bool:
    """What one pod does; True when it came to its end. `lost`: whether its node is lost by now."""

    def comes_to_its_end(process: subprocess.Popen[bytes]) -> bool:
        while process.poll() is None:
            if lost():
                end(process, signal.SIGKILL)
                return False
            time.sleep(0.5)
        if process.returncode:
            raise RuntimeError(f"exit status {process.returncode}; see the logs in {chain.output.parent}")
        return True

    if not comes_to_its_end(chain.answers()):
        return False
    shutil.rmtree(chain.states, ignore_errors=True)
    chain.states.mkdir()
    engine = chain.engine()
    try:
        wait_healthy(scripts.PORT, engine)
        if not comes_to_its_end(chain.train()):
            return False
    finally:
        end(engine, signal.SIGKILL)
    return comes_to_its_end(chain.finish())


def train(chain: Chain, kills: int) -> dict[str, Any]:
    """Pods, one after the other, until one comes to its end; what is known of the result."""
    answers = chain.output / scripts.RESPONSES
    first, second = (chain.output / scripts.CHECKPOINTS / str(epoch) / "training_state.json" for epoch in (0, 1))
    ends = [lambda: answers.is_file() and answers.stat().st_size > 100_000, first.is_file, second.is_file]
    for lost in [*ends[:kills], lambda: False]:
        if run_pod(chain, lost):
            return dict(json.loads((chain.output / MODEL / ACCOUNT).read_text()))
    raise RuntimeError("no pod came to its end")


@contextmanager
def serving(method: Trained, head: Path, home: Path, port: int) -> Iterator[None]:
    """The engine with `head` as its speculator. vLLM's cache manager wants to split layers with a window into groups of
    three, the verifier's layers, and its V1 runner wants those of a speculator in one group."""
    told = method.served_by
    drafts = {"method": told["method"], "model": str(head), "num_speculative_tokens": DRAFTS}
    drafts |= {"parallel_drafting": True} if told.get("parallelDrafting") else {}
    python = paths.python()
    assert python is not None
    more = ["--disable-hybrid-kv-cache-manager", "--speculative-config", json.dumps(drafts)]
    command = argv(python, paths.models() / "target", port, more)
    with (home / f"serving-{port}.log").open("wb") as log:
        env = {**os.environ, **environment(home / "serving")}
        process = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        wait_healthy(port, process)
        yield
    finally:
        end(process)


def prove(chain: Chain, kills: int) -> dict[str, Any]:
    """Train, then serve the trained and an untrained head, and tell what was accepted of their drafts."""
    place, started = chain.output.parent, time.monotonic()
    account = train(chain, kills)
    seconds = round(time.monotonic() - started)
    untrained = replace(chain, output=place / "untrained", variables={"EPOCHS": "1"})
    shutil.copytree(chain.output / scripts.PREPARED, untrained.output / scripts.PREPARED)
    untrained.train("--dry-run").wait()
    heads = {"trained": chain.output / MODEL, "untrained": untrained.output / scripts.CHECKPOINTS}
    found = {}
    for number, (name, head) in enumerate(heads.items()):
        with serving(chain.method, head, place, PORT + number):
            found[name] = prompts.accepted(f"http://127.0.0.1:{PORT + number}")
    shares = {name: one.accepted / one.draft_tokens for name, one in found.items()}
    length = 1 + found["trained"].accepted / found["trained"].drafts
    ok = shares["trained"] >= LEAST_TIMES * max(shares["untrained"], 0.01)
    told = {"seconds": seconds, "kills": kills, "expected": account["acceptanceLengths"], "length": length}
    return {"ok": ok, **told, "accepted": shares}


def main() -> int:
    parser = argparse.ArgumentParser(prog="realengine.training", description="Train speculators as a pod would.")
    parser.add_argument("--out", type=Path, default=paths.ROOT / "build" / "training")
    parser.add_argument("--methods", type=Trained, choices=list(Trained), nargs="+", default=[Trained.EAGLE3])
    parser.add_argument("--prompts", type=int, default=500, metavar="N")
    parser.add_argument("--kills", type=int, default=0, choices=range(4), help="times that everything is killed")
    given = parser.parse_args()
    report = Reporter()
    installed(report)
    image = trainer_image.image()
    assert image is not None
    shutil.rmtree(given.out, ignore_errors=True)
    given.out.mkdir(parents=True)
    prompts.write(given.out / "prompts.jsonl", given.prompts)
    chains = [Chain(image, given.out / one / "output", given.out / "prompts.jsonl", one) for one in given.methods]
    found = {}
    for chain in chains:
        if chain is not chains[0]:  # what the verifier answers is the same for all
            shutil.copytree(chains[0].output / scripts.PREPARED, chain.output / scripts.PREPARED)
        found[chain.method.value] = told = prove(chain, given.kills)
        report(f"{chain.method}: {json.dumps(told)}")
    ok = all(told["ok"] for told in found.values())
    print(json.dumps({"ok": ok, "methods": found}))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
