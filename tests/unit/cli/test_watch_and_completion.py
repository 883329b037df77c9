"""`speculative watch` over objects that change, and what completes a command line."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from tests.unit.cli.test_cluster_commands import FakeCluster, stored

from speculative_operator.cli import completion, watch
from speculative_operator.cli.main import main
from speculative_operator.cli.parsers import COMMANDS


class Clock:
    """Time that passes when somebody sleeps; then the object changes."""

    def __init__(self, body: dict[str, Any], news: list[dict[str, Any]]) -> None:
        self.now, self.body, self.news = 1_800_001_680.0, body, news

    def monotonic(self) -> float:
        return self.now

    time = monotonic

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.news:
            self.body["status"]["decisions"] = [self.news.pop(0), *self.body["status"]["decisions"]]


def decision(minute: int, **more: str) -> dict[str, Any]:
    return {"time": f"2027-01-15T08:{minute:02}:30.1Z", "to": f"t{minute}", "reason": "FasterTable", **more}


def watched(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str, news: list[dict[str, Any]]
) -> list[str]:
    body = stored("tuned")
    body["status"]["decisions"] = [decision(25, reason="LowAcceptance"), decision(23, reason="HighConcurrency")]
    clock = Clock(body, news)
    monkeypatch.setattr(watch, "time", clock)
    monkeypatch.setattr(watch, "Cluster", FakeCluster(body))
    assert main(["watch", *words, "--for", "1m"]) == 0
    return capsys.readouterr().out.splitlines()


def test_new_decisions_are_printed_once_and_in_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    news = [decision(30, message="b\x1b[2J"), decision(31)]
    lines = watched(monkeypatch, capsys, "demo", news=news)
    assert lines == [
        "2027-01-15T08:30:30  models/demo  FasterTable  t30: b?[2J",
        "2027-01-15T08:31:30  models/demo  FasterTable  t31",
    ]


def test_earlier_decisions_come_first_where_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = watched(monkeypatch, capsys, "-A", "--since", "2027-01-15T08:22:00Z", "-o", "json", news=[decision(30)])
    found = [json.loads(line) for line in lines]
    assert [one["reason"] for one in found] == ["HighConcurrency", "LowAcceptance", "FasterTable"]
    assert {one["name"] for one in found} == {"demo"}


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ([""], set(COMMANDS)),
        (["sta"], {"status"}),
        (["get", "-o", ""], {"text", "wide", "json", "yaml"}),
        (["status", "--w"], {"--watch"}),
        (["completion", ""], {"bash", "zsh", "fish"}),
        (["status", "d"], {"demo"}),
        (["explain", "-n", "models", ""], {"demo"}),
        (["status", "demo", ""], set()),
        (["tune", "-n"], set()),
    ],
)
def test_what_can_follow(typed: list[str], offered: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("speculative_operator.cli.cluster.Cluster", FakeCluster(stored("tuned")))
    found = set(completion.candidates(typed))
    assert found - {"--help", "--version"} == offered


def test_kubectl_is_answered_as_it_asks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert completion.complete(["sta"]) == 0
    assert capsys.readouterr().out == "status\n:0\n"


def test_bash_completes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    asked = f"""
speculative() {{ printf '%s\\n' status simulate; }}
{script}
COMP_WORDS=(speculative st) COMP_CWORD=1
_speculative speculative st
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("status\n", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_script_asks_the_command_itself(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "speculative __complete" in capsys.readouterr().out
