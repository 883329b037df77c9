"""What the demo prints where there is no terminal: one line for one thing, however long it is."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from demo.run import Demo, Settings
from demo.scene import AUTO, OFF, STATIC
from demo.screen import Scene, Screen, plain
from speculative_operator.domain.observation import PodWindow


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=80)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_progress_is_one_line_in_a_pipe(console: Console) -> None:
    window = PodWindow(
        start=0.0, end=5.0, steps=200.0, decode_request_steps=24_000.0, step_seconds=600.0, first_tokens=10.0,
        generated_tokens=24_000.0, prompt_tokens=0.0, running=120.0, waiting=80.0,
    )  # fmt: skip
    scene = Scene(elapsed=120.0, windows={AUTO: window, STATIC: window, OFF: window})
    with Screen(console) as screen:
        screen.show(scene)
    assert len(plain(scene)) > 80
    assert printed(console) == plain(scene) + "\n"


def test_a_step_and_a_check_are_one_line_in_a_pipe(console: Console) -> None:
    long = "a message of many words " * 10
    Demo(Settings(), console)._say(long)
    assert printed(console).count("\n") == 1
    assert long.rstrip() in printed(console)
