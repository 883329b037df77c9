"""What docs/cli.md shows of commands is what they print: for the object of a real run, and for examples."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.unit.cli.test_cluster_commands import FakeCluster

from figures import status_view
from speculative_operator.cli import explain, get, main

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "cli.md"
BLOCK = re.compile(r"^```\n\$ speculative ((?:get|explain|plan|render)\b[^\n]*)\n(.*?)^```$", re.M | re.S)
BLOCKS = BLOCK.findall(PAGE.read_text(encoding="utf-8"))


def sample() -> FakeCluster:
    """The object of the page and its pods, as its picture shows them."""
    body, pods, _ = status_view.sample()
    made = FakeCluster(body)
    made.serving = pods
    return made


@pytest.mark.parametrize(("command", "printed"), BLOCKS, ids=lambda text: text.split("\n")[0].split()[0])
def test_the_page_shows_what_is_printed(
    command: str, printed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    for module in (get, explain):
        monkeypatch.setattr(module, "Cluster", sample())
    now = status_view.sample()[2]
    for module in (get, explain):
        monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: now, monotonic=lambda: now))
    assert main.main(shlex.split(command)) == 0
    out, err = capsys.readouterr()
    assert out + err == printed


def test_each_of_these_commands_is_shown() -> None:
    assert {command.split()[0] for command, _ in BLOCKS} == {"get", "explain", "plan", "render"}
