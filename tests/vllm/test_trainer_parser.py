"""What the container `train` runs is read by the library's own parser of arguments, for each method that is offered.

The script is the real one; `python3` is a stand-in that notes what it is given. Skipped where the engine or the library
is not installed: `make e2e-training` installs both.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.training.seen import TRAINING

from realengine import paths, trainer_image
from realengine.serving import environment
from speculative_operator.domain.training import USUAL_K, Trained
from speculative_operator.training.jobs import Known, Means, train_job

ENGINE = paths.python()
INSTALLED = ENGINE is not None and trainer_image.folder().exists()
pytestmark = pytest.mark.skipif(not INSTALLED, reason="the trainer's image is not laid out: make e2e-training")
PARSER = """\
import json, sys
from speculators.model import SpeculatorModel
from speculators.train.cli import TrainConfig
read = {name: TrainConfig.resolve(given).flatten() for name, given in json.load(sys.stdin).items()}
print(json.dumps({"read": read, "known": list(SpeculatorModel.registry)}, default=str))
"""
K = {"eagle3": "ttt_steps", "peagle": "num_depths", "dflash": "block_size"}


def arguments_of(method: Trained, folder: Path) -> list[str]:
    """What the trainer is given by the container that trains K = 7 on a verifier of 36 layers, on one accelerator."""
    job = train_job(replace(TRAINING, method=method, k=7), Known("c", 36), 60, Means("o"))
    (train,) = (one for one in job["spec"]["template"]["spec"]["initContainers"] if one["name"] == "train")
    program = folder / "python3"
    program.write_text('#!/bin/sh\nfor one in "$@"; do echo "$one" >> "$SAID"; done\n')
    program.chmod(0o755)
    env = {one["name"]: one["value"] for one in train["env"]}
    env |= {"PATH": f"{folder}:/usr/bin:/bin", "OUTPUT": str(folder / "output"), "SAID": str(folder / "said")}
    subprocess.run(train["command"], env=env, check=False, timeout=30)
    words = (folder / "said").read_text().splitlines()
    return words[words.index("speculators.train") + 1 :]


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    lines = {method.value: arguments_of(method, tmp_path_factory.mktemp(method.value)) for method in Trained}
    env = environment(tmp_path_factory.mktemp("home")) | {"PATH": "/usr/bin:/bin"}
    env["PYTHONPATH"] = str(trainer_image.folder())
    command = [str(ENGINE), "-P", "-c", PARSER]
    done = subprocess.run(
        command, input=json.dumps(lines), env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_the_library_knows_every_method_that_is_offered(parsed: dict[str, Any]) -> None:
    assert set(Trained) <= set(parsed["known"])
    assert set(USUAL_K) == set(Trained)


@pytest.mark.parametrize("method", Trained)
def test_it_reads_what_was_meant(parsed: dict[str, Any], method: Trained) -> None:
    read = parsed["read"][method]
    assert read["speculator_type"] == method
    assert read["target_layer_ids"] == [2, 18, 33]
    assert read[K[method]] == (8 if method is Trained.DFLASH else 7), "the first of a block is known"
    layers = {"eagle3": 1, "peagle": 4, "dflash": 5}
    assert (read["num_layers"], read["norm_before_residual"]) == (layers[method], method is not Trained.PEAGLE)
