"""Findings on a terminal of 80 columns, and in a pipe."""

from __future__ import annotations

import io

from rich.console import Console

from speculative_operator.cli import terminal

FOUND = [
    {
        "level": "Error",
        "code": "AuxiliaryLayersBeyond",
        "field": "speculator config.json eagle_config.eagle_aux_hidden_state_layer_ids",
        "verifier": "1 layers",
        "speculator": "2",
        "message": "the head reads the output of layer 2",
        "remedy": "use a speculator that was trained for this verifier",
    },
    {"level": "Info", "code": "[bold]", "field": "f", "message": "no values", "remedy": ""},
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_eighty_columns_hold_codes_and_words_unbroken() -> None:
    out = io.StringIO()
    Console(file=out, width=80).print(terminal.findings_table(FOUND))
    shown = out.getvalue()
    assert max(map(len, shown.splitlines())) <= 80
    for word in ("AuxiliaryLayersBeyond", "speculator: 2", "Use a speculator", "No values.", "[bold]"):
        assert word in shown


def test_a_pipe_gets_a_line_for_each() -> None:
    out = io.StringIO()
    terminal.write_findings(out, FOUND)
    head, *lines = out.getvalue().splitlines()
    assert head.split() == [name.upper() for name in terminal.COLUMNS]
    assert [line.split()[:2] for line in lines] == [["Error", "AuxiliaryLayersBeyond"], ["Info", "[bold]"]]
    assert lines[1].split()[3:5] == ["-", "-"]


def test_a_terminal_gets_the_table() -> None:
    out = Terminal()
    terminal.write_findings(out, FOUND)
    assert "What is wrong, and the remedy" in out.getvalue()
