"""The decision surface of the report: the best K by concurrency and acceptance, and where the replay's windows lay.

As the tuner prices it after the replay, from what the operator left in the object's status. Called by `run`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log2
from typing import Any

import plotly.graph_objects as go

from demo.watch import Sight
from figures.surface import Surface, first_accepted, surface
from speculative_operator.api.convert import to_domain
from speculative_operator.domain.decision import Policy
from speculative_operator.engines.pairs import pair_facts
from speculative_operator.engines.registry import engine_for
from speculative_operator.reconcile.table.deciding import policy_of
from speculative_operator.tuner.persistence import from_status

COLOURS = ("#5b6470", "#f3e3a3", "#b9d98c", "#6fbf8b", "#2f9e8f", "#1f6f8b", "#264b7d", "#2a2a66", "#1a1440")
"""By K from 0; the last one for all above."""


def policy(manifest: Mapping[str, Any]) -> Policy:
    """What the operator asks the tuner with for this object."""
    spec = to_domain(manifest)
    return policy_of(spec, knobs=engine_for(spec).knobs(spec), facts=pair_facts(spec))


def learned(manifest: Mapping[str, Any], status: Mapping[str, Any]) -> Surface:
    """The surface as the tuner sees it, with the memory that `status` holds."""
    asked = policy(manifest)
    stored = status.get("memory")
    return surface(asked, from_status(stored, asked) if stored else None)


def points(sights: Sequence[Sight]) -> list[tuple[float, float, float, float]]:
    """(scheduled requests, acceptance of the first draft, mean K, second of the replay) of windows that drafted."""
    found = ((sight, first_accepted(sight.window)) for sight in sights)
    return [
        (sight.window.load, accepted, sight.window.mean_k or 0.0, sight.at)
        for sight, accepted in found
        if accepted is not None and sight.window.load > 0
    ]


def plot(known: Surface, sights: Sequence[Sight]) -> go.Figure:
    """Fields of one best K each; circles are windows, filled with the colour of the K that ran."""
    top = max(1, int(known.ks.max()))
    seen = points(sights)
    figure = go.Figure()
    figure.add_trace(
        go.Heatmap(
            x=[log2(size) for size in known.concurrency], y=known.acceptance, z=known.ks, zmin=-0.5, zmax=top + 0.5,
            colorscale=_steps(top), customdata=known.gain_percent, text=[list(known.concurrency)] * len(known.ks),
            colorbar={"title": "K", "tickvals": list(range(top + 1)), "len": 0.9},
            hovertemplate="%{text} requests, acceptance %{y:.0%}<br>best K %{z}, %{customdata:+.0f} % over no "
            "speculation<extra></extra>",
        )
    )  # fmt: skip
    figure.add_trace(
        go.Scatter(
            x=[log2(max(size, 1.0)) for size, *_ in seen], y=[accepted for _, accepted, *_ in seen], mode="markers",
            marker={"color": [k for _, _, k, _ in seen], "cmin": -0.5, "cmax": top + 0.5, "colorscale": _steps(top),
                    "size": 9, "line": {"color": "#1b1f23", "width": 1.3}},
            customdata=[[size, k, at] for size, _, k, at in seen], showlegend=False,
            hovertemplate="at %{customdata[2]:.0f} s: %{customdata[0]:.0f} requests, acceptance %{y:.0%}, "
            "K %{customdata[1]:.1f}<extra></extra>",
        )
    )  # fmt: skip
    sizes = [2**power for power in range(20) if 2**power <= known.concurrency[-1]]
    figure.update_xaxes(title_text="requests at once", tickvals=[log2(size) for size in sizes], ticktext=sizes)
    figure.update_yaxes(title_text="first draft accepted", tickformat=".0%", range=[0, 1])
    figure.update_layout(
        template="simple_white", height=460, margin={"t": 20, "l": 70, "r": 20, "b": 60},
        font={"family": "system-ui, sans-serif"},
    )  # fmt: skip
    return figure


def _steps(top: int) -> list[tuple[float, str]]:
    """A colour scale of plain steps, one a K from 0 to `top`."""
    edges = [k / (top + 1) for k in range(top + 2)]
    colours = [COLOURS[min(k, len(COLOURS) - 1)] for k in range(top + 1)]
    return [(edge, colour) for k, colour in enumerate(colours) for edge in (edges[k], edges[k + 1])]
