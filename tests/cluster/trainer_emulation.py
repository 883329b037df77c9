"""An emulation of the library speculators 0.9.0 for tests without it: takes its commands, prints lines as its log has
them, and leaves files where it leaves them. It learns nothing: every checkpoint is the small EAGLE-3 head of dev/data.

Run in pods as `python3 -m speculators...` by the scripts that `images` writes.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path

from devcluster import Image

ROOT = Path(__file__).resolve().parents[2]
HEAD = ROOT / "dev" / "data" / "models" / "eagle3"
STEP_SECONDS = 0.1
SHARES = ("full_acc_0_epoch", "full_acc_1_epoch")
"""Of drafts that are right on held-out prompts: those that the emulated engine accepts of code."""
STEPS = 30
"""Steps of an epoch."""
_SERVER = """import http.server as h
class Answers(h.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
h.HTTPServer(("127.0.0.1", 8000), Answers).serve_forever()"""


def images(folder: Path) -> dict[str, Image]:
    """The images `operator` and `trainer`: commands in `folder`, which pods must see, in front of all others."""
    scripts = Path(sys.executable).parent
    commands = {
        "operator/speculative-training": f'exec {sys.executable} -m speculative_operator.trainer "$@"',
        "operator/speculative-weights": f'exec {sys.executable} -m speculative_operator.weights "$@"',
        "trainer/vllm": f"exec {sys.executable} -c '{_SERVER}'",
        "trainer/python3": 'case "$2" in speculators*) shift; exec '
        f'{sys.executable} {__file__} "$@";; esac\nexec {sys.executable} "$@"',
    }
    for name, text in commands.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    paths = f"{ROOT}/operator:{ROOT}/dev"
    return {
        name: Image(("/bin/sh",), {"PATH": f"{folder / name}:{scripts}:/usr/bin:/bin", "PYTHONPATH": paths})
        for name in ("operator", "trainer")
    }


def main(module: str, words: list[str]) -> None:
    """One command of the library."""
    command = words.pop(0) if module == "speculators" else "train"
    given = {word: words[place + 1] for place, word in enumerate(words[:-1]) if word.startswith("--")}
    if command == "regenerate-responses":
        Path(given["--outfile"]).write_text(Path(given["--dataset"]).read_text())
        sys.stdout.write("Generating responses: 31sample [00:03, 9.1sample/s, ok=31, err=0]\n")
    elif command == "prepare-data":
        Path(given["--output"]).mkdir()
        (Path(given["--output"]) / "data.arrow").write_text("rows")
    else:
        _train(Path(given["--save-path"]), int(given["--epochs"]), " ".join(words))


def _train(kept: Path, epochs: int, command: str) -> None:
    done = [int(path.name) for path in kept.glob("[0-9]*") if (path / "training_state.json").exists()]
    for epoch in range(max(done, default=-1) + 1, epochs):
        _say(f"Training epoch {epoch + 1}/{epochs} started")
        for step in range(epoch * STEPS, (epoch + 1) * STEPS):
            time.sleep(STEP_SECONDS)
            loss = 7.0 / (1 + step)
            _say(f"train/loss_0={loss:.4f}, train/loss={loss:.4f}, epoch={epoch}, lr=0.002, global_step={step}")
        metrics = {"loss_epoch": 3.0 / (1 + epoch), **dict(zip(SHARES, (0.69, 0.5), strict=True))}
        _say(", ".join(f"val/{name}={value}" for name, value in metrics.items()) + f", epoch={epoch}")
        folder = kept / str(epoch)
        shutil.copytree(HEAD, folder, dirs_exist_ok=True)
        (folder / "val_metrics.json").write_text(json.dumps(metrics))
        (folder / "train_command.txt").write_text(command)
        best = kept / "checkpoint_best"
        best.unlink(missing_ok=True)
        best.symlink_to(str(epoch), target_is_directory=True)
        (folder / "training_state.json").write_text(json.dumps({"epoch": epoch, "global_step": (epoch + 1) * STEPS}))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    os.umask(0o002)
    main(sys.argv[1], sys.argv[2:])
