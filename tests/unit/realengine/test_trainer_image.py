"""What stands in for the trainer's image: its commands reach the engine's interpreter, with what a CPU needs."""

from __future__ import annotations

import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from realengine import paths, trainer_image


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Packages that are installed, and an interpreter that says what it is given."""
    engine = tmp_path / "engine"
    engine.write_text('#!/bin/sh\necho "$PYTHONPATH: $*"\n')
    engine.chmod(0o755)
    monkeypatch.setenv("SPECULATIVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(paths.PYTHON_VARIABLE, str(engine))
    trainer_image.folder().mkdir(parents=True)
    image = trainer_image.image()
    assert image is not None
    assert image.env["PATH"].startswith(f"{trainer_image.folder() / 'programs'}:")
    return trainer_image.folder() / "programs"


def said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout


def test_training_runs_with_what_the_library_lacks_on_a_cpu(programs: Path) -> None:
    told = said(str(programs / "python3"), "/states/guard.py", "speculators.train", "--epochs", "2")
    assert "-P" in told, "or the library would be looked for in this project's folder"
    assert "realengine/train.py --epochs 2 " in told
    assert told.rstrip().endswith(" ".join(trainer_image.TRAINER_ARGS))


def test_other_commands_pass_as_they_are(programs: Path) -> None:
    told = said(str(programs / "python3"), "-m", "speculators", "prepare-data")
    assert told == f"{trainer_image.folder()}: -m speculators prepare-data\n"


def test_engines_of_a_training_have_the_plug_in(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = said(str(programs / "vllm"), "serve", "/models/target", "--port", "8000")
    assert "realengine/image.py /models/target --port 8000 " in told
    assert told.rstrip().endswith(" ".join(trainer_image.ENGINE_ARGS))
    monkeypatch.syspath_prepend(str(trainer_image.folder()))
    names = {one.name: one.value for one in metadata.entry_points(group="vllm.general_plugins")}
    assert names["speculative_states"] == "speculative_states:register"


def test_another_lock_file_is_another_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = trainer_image.folder()
    other = tmp_path / "trainer.txt"
    other.write_text("speculators==0.0.0\n")
    monkeypatch.setattr(trainer_image, "LOCK", other)
    assert trainer_image.folder() != first
