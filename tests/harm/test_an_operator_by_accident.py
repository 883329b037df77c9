"""The harm: a question about the program starts a second operator against whatever cluster the shell points to."""

from __future__ import annotations

import os

import pytest

from speculative_operator import __version__, app
from speculative_operator.settings import Settings


@pytest.fixture(autouse=True)
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What an operator was started for; none must be."""
    started: list[str] = []

    def serve(_: Settings) -> int:
        started.append("run")
        return 0

    monkeypatch.setattr(app, "_serve", serve)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", "production")
    return started


@pytest.mark.parametrize("asked", ["--help", "--version"])
def test_a_question_starts_nothing(asked: str, runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        app.main([asked])
    assert ended.value.code == 0
    assert runs == []
    assert (__version__ if asked == "--version" else "--kubeconfig") in capsys.readouterr().out


def test_outside_a_pod_it_takes_no_cluster_that_was_not_named(
    runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.main([]) == app.EXIT_SETTINGS
    assert runs == []
    assert "--kubeconfig FILE" in capsys.readouterr().err


@pytest.mark.parametrize("argument", ["--kubecfg", "production", "-n"])
def test_what_it_does_not_understand_starts_nothing(argument: str, runs: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        app.main([argument])
    assert ended.value.code == 2
    assert runs == []


def test_beside_the_one_in_the_cluster_it_takes_no_lease_of_its_own(
    runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.main(["--kubeconfig", "test-cluster"]) == app.EXIT_SETTINGS
    assert runs == []
    assert "SPECULATIVE_LEASE_NAMESPACE is not set" in capsys.readouterr().err


def test_in_a_pod_and_with_a_cluster_that_was_named_it_runs(runs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECULATIVE_LEASE_NAMESPACE", "speculative-system")
    assert app.main(["--kubeconfig", "test-cluster"]) == 0
    assert os.environ["KUBECONFIG"] == "test-cluster"
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert app.main([]) == 0
    assert "KUBECONFIG" not in os.environ
    assert runs == ["run", "run"]
