"""The command as a whole: help, version, statuses, what it loads."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from speculative_operator import __version__
from speculative_operator.cli import commands, terminal
from speculative_operator.cli.commands import UsageError
from speculative_operator.cli.main import main
from speculative_operator.cli.parsers import ANNOTATES, COMMANDS, LABORATORY, command

ROOT = Path(__file__).resolve().parents[3]
HEAVY = ("numba", "kopf", "kubernetes", "pydantic", "numpy", "requests", "plotly")
MOST_MODULES = 140


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """(status, stdout, stderr) of a command that ends by itself."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "--version") == (0, f"speculative {__version__}\n", "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["status"], "the following arguments are required: NAME"),
        (["get", "--fast"], "unrecognized arguments: --fast"),
    ],
)
def test_wrong_use_is_one_line_and_status_2(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    status, out, errors = shown(capsys, *words)
    assert (status, out) == (2, "")
    assert errors.startswith("error: ")
    assert said in errors
    assert errors.count("\n") == 1


def test_a_slip_in_a_command_gets_the_one_that_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["statsu"]) == 2
    assert capsys.readouterr().err == "error: there is no command 'statsu'; did you mean status?\n"
    assert main(["tuna"]) == 2
    assert "speculative --help lists all" in capsys.readouterr().err


def test_no_words_are_a_question_for_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys)[:2] == shown(capsys, "--help")[:2]


def test_help_loads_nothing_heavy() -> None:
    """So that it is there at once: time goes into modules, of which Python itself has loaded some dozens."""
    code = (
        "import sys\nfrom speculative_operator.cli.main import main\n"
        f"try:\n    main(['render', '--help'])\nfinally:\n    assert not set({HEAVY}) & set(sys.modules)\n"
        f"    assert len(sys.modules) < {MOST_MODULES}, len(sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "operator")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--only" in done.stdout


def alone(*words: str) -> tuple[int, str, str]:
    """(status, stdout, stderr) of a command where nothing but the operator's package is installed."""
    code = "import sys; from speculative_operator.cli.main import main; sys.exit(main(sys.argv[1:]))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "operator")}
    without_site_packages = [sys.executable, "-S", "-c", code, *words]
    done = subprocess.run(without_site_packages, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("words", [["simulate"], ["simulate", "--help"], ["cases", "cases.csv"]])
def test_commands_of_the_laboratory_say_how_to_install_it(words: list[str]) -> None:
    assert words[0] in LABORATORY
    said = f"the command {words[0]} needs the laboratory, which is not installed"
    remedy = "install it from a checkout with: pip install . './lab[sim]'"
    assert alone(*words) == (2, "", f"error: {said}; {remedy}\n")


def test_help_names_every_command_wherever_it_is_installed() -> None:
    status, out, _ = alone("--help")
    assert status == 0
    assert not [known for known in COMMANDS if f"\n    {known}" not in out]
    assert "exit status: 0 all is well, 1 failed" in out


def test_every_command_is_found_where_the_laboratory_is_installed() -> None:
    for name in COMMANDS:
        package = "speculative_lab" if name in LABORATORY else "speculative_operator"
        assert command(name).__name__ == f"{package}.cli.{'annotate' if name in ANNOTATES else name}"


def test_a_library_that_the_laboratory_lacks_is_no_missing_laboratory(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("speculative_lab.cli.cases", "speculative_lab.cases.prediction"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "speculative_lab.cases.prediction", None)
    with pytest.raises(ModuleNotFoundError, match=r"speculative_lab\.cases\.prediction"):
        command("cases")


def test_moments() -> None:
    now = 1_700_000_000.0
    assert commands.parse_moment("now", "--start", now) == now
    assert commands.parse_moment("2h", "--start", now) == commands.parse_moment("-2h", "--start", now) == now - 7200
    assert commands.parse_moment("1.5d", "--start", now) == now - 129_600
    assert commands.parse_moment("1699999999", "--start", now) == now - 1
    assert commands.parse_moment("2023-11-14T22:13:20Z", "--start", now) == now
    assert commands.parse_moment("2023-11-14 22:13:20", "--start", now) == now
    assert commands.format_time(now) == "2023-11-14 22:13:20"
    assert [commands.parse_duration(text, "-x") for text in ("90", "90s", "1.5m", "2h")] == [90, 90, 90, 7200]
    for text in ("", "0", "-5s", "5 parsecs", "1e9d", "inf"):
        with pytest.raises(UsageError, match="-x is"):
            commands.parse_duration(text, "-x")


def test_tables_line_up_in_a_pipe_and_print_what_they_hold() -> None:
    out = io.StringIO()
    terminal.write_table(out, ("NAME", "N"), [("a", "10"), ("[b]bold[/b]", "7")], frozenset({1}))
    assert out.getvalue() == "NAME          N\na            10\n[b]bold[/b]   7\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_too_narrow_for_a_word_gets_it_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a name or an address can be copied."""
    monkeypatch.setenv("COLUMNS", "40")
    out, address = Terminal(), "https://huggingface.co/RedHatAI/Qwen3-8B-speculator.eagle3/blob/main/README.md"
    rows = [("RedHatAI/Qwen3-8B-speculator.eagle3", "7", address), ("a/b", "12", "-")]
    terminal.write_table(out, ("SPECULATOR", "K", "SOURCE"), rows, frozenset({1}))
    assert out.getvalue().splitlines() == [
        "SPECULATOR                            K",
        "RedHatAI/Qwen3-8B-speculator.eagle3   7",
        f"    SOURCE: {address}",
        "a/b                                  12",
    ]
