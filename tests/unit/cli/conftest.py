"""How the tests of commands run one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from speculative_operator.cli.main import main

Run = Callable[..., tuple[int, str, str]]
"""Words of a command line -> (status, stdout, stderr)."""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def ran(*words: str) -> tuple[int, str, str]:
        status = main(words)
        said = capsys.readouterr()
        return status, said.out, said.err

    return ran
