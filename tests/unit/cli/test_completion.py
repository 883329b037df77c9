"""What completes a command line."""

from __future__ import annotations

import subprocess

import pytest
from tests.unit.cli.test_cluster_commands import FakeCluster, stored

from speculative_operator.cli import completion
from speculative_operator.cli.main import main
from speculative_operator.cli.parsers import COMMANDS


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
