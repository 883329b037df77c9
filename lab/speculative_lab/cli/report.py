"""The report of a simulation: one HTML page that opens offline. Called by `simulate`.

Course of load, K and time per token for every policy; the decision surface with what was observed on it; the table.
"""

from __future__ import annotations

import html
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speculative_lab.cli.standings import HEADERS, as_cells, sentences
from speculative_operator import __version__
from speculative_operator.cli.commands import CommandError

if TYPE_CHECKING:
    from speculative_lab.cli.arena import Arena, Result
    from speculative_lab.cli.standings import Standings
    from speculative_lab.sim.watched import Sight

SHOWN = ("ours", "oracle", "off")
"""Drawn from the start, beside the best constant; the others by a click on their name."""
COLOURS = {"ours": "#0b7a4b", "oracle": "#1f3a93", "off": "#5b6470"}
_OTHERS = ("#c2571a", "#7a3fa0", "#a16207", "#0e7490", "#be185d", "#4d7c0f", "#1d4ed8", "#92400e", "#475569", "#b91c1c")
"""Colours of further policies, in their order: one for all plots of a policy."""
_FONT = {"family": "system-ui, sans-serif"}
_ROWS: tuple[tuple[str, Callable[[Sight], float | None]], ...] = (
    ("Requests", lambda sight: sight.requests),
    ("K", lambda sight: sight.k),
    ("TPOT, ms", lambda sight: 1e3 * sight.tpot if sight.tpot is not None else None),
)
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; color: #1c2024;
  overflow-wrap: break-word }} .wide {{ overflow-x: auto }}
table {{ border-collapse: collapse; margin: 1em 0 }} td, th {{ padding: .25em .8em; text-align: right }}
td:first-child, th:first-child {{ text-align: left }} tr:nth-child(even) {{ background: #f4f5f6 }}
code {{ background: #f4f5f6; padding: .1em .3em }} h2 {{ margin-top: 2em }}
</style><script>{plotly}</script></head><body>
<h1>{title}</h1>
<p>{said}</p>
{table}
<h2>Load, K and time per token</h2>
<p>Means over 5 s. Click a name to show or hide a policy.</p>
{course}
<h2>Decision surface</h2>
<p>The K that the tuner expects to be fastest at each number of decoding requests and each chance that the first draft
of a step is accepted, with what it had learned at the end of the run. Dots are what was observed, every 5 s.</p>
{surface}
<h2>How to repeat it</h2>
<p><code>{command}</code> (speculative {version})</p>
<p>Speed: output tokens per second that a request spends in the system, waiting included. Regret: what is missing to the
oracle, which knows true costs and acceptance. Unsafe: share of 5-minute windows slower than 98 % of K = 0.</p>
</body></html>
"""


def write(folder: Path, found: Arena, results: list[Result], table: Standings, words: Sequence[str]) -> Path:
    """Write `folder`/index.html and return its path. Raises CommandError."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise CommandError("the report needs plotly", "pip install . './lab[sim]'") from None
    page = _PAGE.format(
        title=html.escape(found.title),
        plotly=get_plotlyjs(),
        said=html.escape(" ".join(sentences(found, results, table))),
        table=_table(table),
        course=_embedded(_course(results, table)),
        surface=_embedded(_surface(found, results)),
        command=html.escape(shlex.join(["speculative", *words])),
        version=__version__,
    )
    path = folder / "index.html"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
    except OSError as problem:
        raise CommandError(f"--report {folder}: {problem.strerror}", "give a writable folder") from None
    return path


def _table(table: Standings) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in HEADERS)
    rows = ["".join(f"<td>{html.escape(cell)}</td>" for cell in as_cells(row)) for row in table.rows]
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(f"<tr>{row}</tr>" for row in rows)}</table></div>'


def _embedded(figure: Any) -> str:
    # without buttons, which lie over the legend on a narrow screen: figures zoom by dragging
    return str(figure.to_html(full_html=False, include_plotlyjs=False, config={"displayModeBar": False}))


def _course(results: list[Result], table: Standings) -> Any:
    """Requests, K and TPOT over time, a line for each policy."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    shown = {*SHOWN, table.best_static.name if table.best_static else ""}
    figure = make_subplots(rows=len(_ROWS), cols=1, shared_xaxes=True, vertical_spacing=0.05)
    others = [result.run.name for result in results if result.run.name not in COLOURS]
    colours = COLOURS | {name: _OTHERS[place % len(_OTHERS)] for place, name in enumerate(others)}
    for result in results:
        name, sights = result.run.name, result.watched.sights
        for row, (title, value) in enumerate(_ROWS, start=1):
            line = go.Scatter(
                x=[sight.at for sight in sights],
                y=[value(sight) for sight in sights],
                name=name,
                legendgroup=name,
                showlegend=row == 1,
                visible=True if name in shown else "legendonly",
                mode="lines",
                line={"width": 2.4 if name == "ours" else 1.4, "color": colours[name]},
            )
            figure.add_trace(line, row=row, col=1)
            figure.update_yaxes(title_text=title, rangemode="tozero", row=row, col=1)
    figure.update_xaxes(title_text="seconds", row=len(_ROWS), col=1)
    figure.update_layout(
        template="simple_white", height=780, hovermode="x unified", font=_FONT, margin={"t": 20},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
    )  # fmt: skip
    return figure


def _surface(found: Arena, results: list[Result]) -> Any:
    """Best K as colour, and on it what our run observed; where ours did not run, the first run that drafted."""
    import plotly.graph_objects as go

    from speculative_lab.sim.surface import surface

    ours = next((result for result in results if result.session is not None), None)
    memory = ours.session.memory if ours is not None and ours.session is not None else None
    grid = surface(found.policy, memory)
    figure = go.Figure(
        go.Heatmap(
            x=grid.concurrency,
            y=grid.acceptance,
            z=grid.ks.tolist(),
            customdata=grid.gain_percent.round(1).tolist(),
            colorscale="Greens",
            colorbar={"title": "K"},
            hovertemplate="%{x} requests, %{y:.0%} accepted<br>K %{z}, %{customdata:+.1f} % gain<extra></extra>",
        )
    )
    sights = next(
        (
            one.watched.sights
            for one in [ours, *results]
            if one and any(s.accepted is not None for s in one.watched.sights)
        ),
        [],
    )
    seen = [sight for sight in sights if sight.accepted is not None and sight.batch >= 0.5]
    figure.add_trace(
        go.Scatter(
            x=[sight.batch for sight in seen],
            y=[sight.accepted for sight in seen],
            text=[f"K {sight.k:.1f}" for sight in seen if sight.k is not None],
            mode="markers",
            name="observed",
            marker={"size": 6, "color": "#c2571a", "line": {"width": 1, "color": "#ffffff"}},
            hovertemplate="%{x:.1f} requests, %{y:.0%} accepted<br>%{text}<extra>observed</extra>",
        )
    )
    figure.update_xaxes(title_text="decoding requests of a replica", type="log")
    figure.update_yaxes(title_text="chance that the first draft is accepted", tickformat=".0%")
    figure.update_layout(template="simple_white", height=520, font=_FONT, margin={"t": 20})
    return figure
