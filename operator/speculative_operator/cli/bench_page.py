"""The page of `speculative bench`: one picture and the table behind it, in one file that opens offline."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import jinja2

from speculative_operator import __version__
from speculative_operator.cli.commands import CommandError, UsageError
from speculative_operator.comparing.ladder import Measure, Rung, mean

_PANELS = ((Measure.TPOT, Measure.TPOT_P99), (Measure.TTFT, Measure.TTFT_P99), (Measure.THROUGHPUT,))
_COLOURS = {True: "#0b7a4b", False: "#5b6470"}


def write(path: str, name: str, ladder: Sequence[Rung], rows: Sequence[Sequence[str]], said: Sequence[str]) -> None:
    """Write the page. Raises UsageError, and CommandError where plotly is not installed."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("speculative_operator.cli"), autoescape=True, undefined=jinja2.StrictUndefined
    )
    page = environment.get_template("bench.html.j2").render(
        name=name, plot=_plot(ladder), rows=rows, said=said, command=shlex.join(["speculative", *sys.argv[1:]]),
        version=__version__,
    )  # fmt: skip
    try:
        Path(path).write_text(page, encoding="utf-8")
    except OSError as problem:
        raise UsageError(f"--html {path}: {problem.strerror}", "name a file that can be written") from None


def _plot(ladder: Sequence[Rung]) -> str:
    """A panel for each measure over the rate: medians as lines, the 99th percentiles dotted."""
    try:
        import plotly.graph_objects as go
        from plotly.subplots import make_subplots
    except ImportError:
        raise CommandError("--html needs plotly", "pip install 'speculative-operator[cli]', then --show") from None
    titles = ["TPOT, ms", "TTFT, ms", "output tokens/s"]
    figure = make_subplots(rows=1, cols=len(_PANELS), subplot_titles=titles)
    for column, panel in enumerate(_PANELS, 1):
        for place, measure in enumerate(panel):
            for drafts, colour in _COLOURS.items():
                sides = [one.drafted if drafts else one.plain for one in ladder]
                values = [mean(own, measure) for own in sides]
                unit = 1 if measure is Measure.THROUGHPUT else 1000
                title = f"{'with drafts' if drafts else 'without'}{', p99' if place else ''}"
                figure.add_trace(
                    go.Scatter(
                        x=[one.rate for one in ladder], y=[unit * one if one is not None else None for one in values],
                        name=title, legendgroup=title, showlegend=column == 1, mode="lines+markers",
                        line={"color": colour, "dash": "dot" if place else "solid"},
                    ),
                    row=1, col=column,
                )  # fmt: skip
        figure.update_xaxes(title_text="requests/s", row=1, col=column)
        figure.update_yaxes(rangemode="tozero", row=1, col=column)
    figure.update_layout(template="simple_white", height=420, legend={"orientation": "h", "y": -0.25})
    return str(figure.to_html(full_html=False, include_plotlyjs=True, config={"displayModeBar": False}))
