"""The demo's report: one HTML page that opens offline: plots, the figures behind them, and how to repeat them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs
from plotly.subplots import make_subplots

from demo.figures import Phases
from demo.scene import AGAIN, AUTO, BEST, OFF, STATIC
from demo.screen import TITLES
from demo.watch import Sight, Timeline
from speculative_operator.comparing.verdict import Comparison
from speculative_operator.domain.observation import PodWindow

COLOURS = {AUTO: "#0b7a4b", STATIC: "#c2571a", BEST: "#8250df", OFF: "#5b6470", AGAIN: "#a3abb5"}
TEMPLATES = Path(__file__).parent

Figure = Callable[[PodWindow], float | None]
ROWS: tuple[tuple[str, Figure], ...] = (
    ("Requests", lambda w: w.running + w.waiting),
    ("K", lambda w: w.mean_k),
    ("TPOT, ms", lambda w: 1000 * w.tpot if w.tpot else None),
    ("Accepted, %", lambda w: 100 * w.acceptance_rate if w.acceptance_rate is not None else None),
)


def plots(
    timeline: Timeline,
    decisions: Sequence[tuple[float, str]],
    asked: Sequence[tuple[float, int | None]],
    phases: Phases,
) -> go.Figure:
    """Four figures over the same time, one line a variant; dotted lines are the operator's decisions. `asked`: the K
    that the table in force has for the load of the moment."""
    figure = make_subplots(rows=len(ROWS), cols=1, shared_xaxes=True, vertical_spacing=0.045)
    for row, (title, value) in enumerate(ROWS, start=1):
        for role, sights in timeline.sights.items():
            if role in (OFF, AGAIN) and row in (2, 4):
                continue
            figure.add_trace(_line(role, sights, value, legend=row == 1), row=row, col=1)
        figure.update_yaxes(title_text=title, rangemode="tozero", row=row, col=1)
    table = {"dash": "dash", "width": 1.2, "color": COLOURS[AUTO], "shape": "hv"}
    moments, ks = [second for second, _ in asked], [k for _, k in asked]
    figure.add_trace(
        go.Scatter(x=moments, y=ks, name="K of the table at this load", mode="lines", line=table),
        row=2,
        col=1,
    )
    for at, reason in decisions:
        figure.add_vline(x=at, line={"dash": "dot", "width": 1, "color": "#0b7a4b"}, annotation=None)
        figure.add_annotation(x=at, y=1.0, yref="paper", text=reason, showarrow=False, textangle=-90, yanchor="bottom",
                              font={"size": 9, "color": "#0b7a4b"})  # fmt: skip
    for label, span in phases.named().items():
        figure.add_vrect(x0=span[0], x1=span[1], fillcolor="#000", opacity=0.04, line_width=0)
        figure.add_annotation(x=sum(span) / 2, y=1.0, yref="paper", text=label, showarrow=False, yanchor="top")
    figure.update_xaxes(title_text="seconds of the replay", row=len(ROWS), col=1)
    figure.update_layout(
        template="simple_white", height=900, margin={"t": 110, "l": 70, "r": 20, "b": 60},
        legend={"orientation": "h", "y": 1.12, "yanchor": "bottom"}, hovermode="x unified",
        font={"family": "system-ui, sans-serif"},
    )  # fmt: skip
    return figure


def ratios(compared: Mapping[str, Comparison]) -> go.Figure:
    """The tuned model over each other one, measure by measure, with intervals: left of 1 it is less."""
    figure = go.Figure()
    for role, found in compared.items():
        known = [(one, one.ratio) for one in found.measures if one.ratio is not None]
        ends = [(one.low or ratio, ratio, one.high or ratio) for one, ratio in known]
        figure.add_trace(
            go.Scatter(
                x=[ratio for _, ratio, _ in ends], y=[str(one.measure) for one, _ in known], mode="markers",
                name=f"against {TITLES[role]}: {found.verdict}", marker={"size": 10, "color": COLOURS[role]},
                text=[str(one.verdict) for one, _ in known],
                error_x={
                    "symmetric": False, "thickness": 2,
                    "array": [high - ratio for _, ratio, high in ends],
                    "arrayminus": [ratio - low for low, ratio, _ in ends],
                },
            )
        )  # fmt: skip
    figure.add_vline(x=1.0, line={"dash": "dot", "width": 1})
    figure.update_xaxes(
        type="log", title_text="tuned / other", range=[-1.0, 0.5], tickvals=[0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.4, 2, 3]
    )
    figure.update_yaxes(autorange="reversed")
    figure.update_layout(
        template="simple_white", height=360, margin={"t": 40, "l": 70, "r": 20, "b": 60},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"}, font={"family": "system-ui, sans-serif"},
    )  # fmt: skip
    return figure


def write(path: Path, figure: go.Figure, compared: Mapping[str, Comparison], facts: Mapping[str, Any]) -> None:
    """Write the page; `facts` are what report.html.j2 names."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined
    )
    page = environment.get_template("report.html.j2").render(
        plot=_embedded(figure),
        ratios=_embedded(ratios(compared)) if compared else "",
        compared_with={TITLES[role]: found for role, found in compared.items()},
        plotly=get_plotlyjs(),
        titles=TITLES,
        **facts,
    )
    path.write_text(page)


def _embedded(figure: go.Figure) -> str:
    # without buttons, which lie over the legend on a narrow screen: figures zoom by dragging
    html: str = figure.to_html(full_html=False, include_plotlyjs=False, config={"displayModeBar": False})
    return html


def _line(role: str, sights: Sequence[Sight], value: Figure, legend: bool) -> go.Scatter:
    return go.Scatter(
        x=[sight.at for sight in sights],
        y=[value(sight.window) for sight in sights],
        name=TITLES[role],
        legendgroup=role,
        showlegend=legend,
        mode="lines",
        line={"color": COLOURS[role], "width": 2.4 if role == AUTO else 1.6},
        connectgaps=False,
    )
