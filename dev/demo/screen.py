"""The demo's live view in the terminal, or one line every few seconds where there is no terminal."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from demo.scene import AGAIN, AUTO, BEST, BEST_K, OFF, STATIC, STATIC_K
from speculative_operator.cli.compare import HEADERS, row
from speculative_operator.comparing.verdict import Comparison, Verdict
from speculative_operator.domain.observation import PodWindow

TITLES = {
    AUTO: "tuned by the operator",
    STATIC: f"Static K={STATIC_K}",
    BEST: f"Static K={BEST_K}, the best one",
    OFF: "no speculation",
    AGAIN: "no speculation again",
}
COLUMNS = ("", "Requests", "K", "Accept", "TPOT", "vs off", "Tokens/s")
BARS = " ▁▂▃▄▅▆▇█"
PLAIN_EVERY_SECONDS = 10.0


@dataclass
class Scene:
    """Everything the view shows; the demo fills it, the screen draws it."""

    elapsed: float = 0.0
    total: float = 0.0
    windows: Mapping[str, PodWindow | None] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)
    decisions: Sequence[Mapping[str, Any]] = ()
    """Oldest first."""
    sent: int = 0
    failed: int = 0
    load: list[float] = field(default_factory=list)
    ks: list[float] = field(default_factory=list)
    compared: Mapping[str, Comparison] = field(default_factory=dict)
    """Role -> the tuned model against it; empty before the end."""


class Screen:
    """Draws scenes. Use as a context manager; on a terminal it keeps one picture up to date."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live = Live(console=console, refresh_per_second=4, transient=False) if console.is_terminal else None
        self._printed = 0.0

    def __enter__(self) -> Screen:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def show(self, scene: Scene) -> None:
        """Draw the scene now (terminal), or print a line of it if the last one is old enough."""
        if self._live:
            self._live.update(picture(scene))
        elif time.monotonic() - self._printed >= PLAIN_EVERY_SECONDS:
            self._printed = time.monotonic()
            self.console.print(plain(scene), highlight=False, soft_wrap=True)


def picture(scene: Scene) -> Group:
    """The whole view: figures side by side, load and K over time, the last decisions."""
    table = Table(*COLUMNS, box=None, pad_edge=False, header_style="bold")
    off = _tpot(scene.windows.get(OFF))
    for role, title in TITLES.items():
        style = "bold green" if role == AUTO else ""
        table.add_row(Text(title, style=style), *_cells(scene.windows.get(role), off))
    curves = Table.grid(padding=(0, 1))
    curves.add_row(
        "load", Text(spark(scene.load), style="cyan"), f"{scene.load[-1]:.0f} requests" if scene.load else ""
    )
    curves.add_row("K", Text(spark(scene.ks), style="green"), f"{scene.ks[-1]:.1f}" if scene.ks else "")
    counts = f"{scene.elapsed:.0f} of {scene.total:.0f} s · {scene.sent} answers · {scene.failed} failed"
    verdicts = (Panel(comparison(role, found), border_style="dim") for role, found in scene.compared.items())
    return Group(
        Panel(table, title="copies of one model, the same requests", subtitle=counts, border_style="dim"),
        Panel(curves, title="tuned by the operator, over time", border_style="dim"),
        Panel(decisions(scene), title="decisions", border_style="dim"),
        *verdicts,
    )


def comparison(role: str, found: Comparison) -> Group:
    """What `speculative compare` says of the tuned model (B) against another (A)."""
    table = Table(*HEADERS, box=None, pad_edge=False, header_style="bold")
    for one in found.measures:
        table.add_row(*row(one)[:-1], str(one.verdict), style="green" if one.verdict is Verdict.BETTER else "")
    told = f"B, {TITLES[AUTO]}, against A, {TITLES[role]}, at {found.basis}: "
    return Group(Text(told).append(str(found.verdict), style="bold"), table, Text(found.why, style="dim"))


def save_picture(scene: Scene, path: Path) -> None:
    """The view as an SVG file."""
    console = Console(record=True, width=112, file=io.StringIO(), force_terminal=True)
    console.print(picture(scene))
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = console.export_svg(title="make demo")
    # a picture in a repository should not fetch fonts from elsewhere
    path.write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL))


def decisions(scene: Scene, last: int = 5) -> Text:
    """The state in force and the newest decisions, newest last."""
    speculation = scene.status.get("speculation") or {}
    text = Text()
    state, table = speculation.get("state", "…"), speculation.get("tableText", "")
    text.append(f"{state}  {table}\n", style="bold")
    if "tries" in speculation:
        text.append(f"tries {speculation['tries']}\n", style="dim")
    for entry in scene.decisions[-last:]:
        text.append(f"{entry['time'][11:19]}  ", style="dim")
        text.append(f"{entry['reason']}: ", style="green")
        text.append(f"{entry['message']}\n")
    return text


def plain(scene: Scene) -> str:
    """The view in one line, for logs."""
    parts = [f"{scene.elapsed:5.0f} s"]
    for role, title in TITLES.items():
        cells = _cells(scene.windows.get(role), None)
        parts.append(f"{title}: {cells[0]} requests, K {cells[1]}, TPOT {cells[3]}")
    return " | ".join([*parts, f"{scene.failed} failed"])


def spark(values: list[float], width: int = 60) -> str:
    """The last `width` values as bars, scaled to the largest of them."""
    shown = values[-width:]
    top = max(shown, default=0.0) or 1.0
    return "".join(BARS[round(value / top * (len(BARS) - 1))] for value in shown)


def _tpot(window: PodWindow | None) -> float | None:
    return window.tpot if window else None


def _cells(window: PodWindow | None, off: float | None) -> tuple[str, ...]:
    if window is None:
        return ("…",) * (len(COLUMNS) - 1)
    rate, tpot, k = window.acceptance_rate, window.tpot, window.mean_k
    return (
        f"{window.running:.0f}" + (f" +{window.waiting:.0f}" if window.waiting else ""),
        f"{k:.1f}" if k is not None else "–",
        f"{100 * rate:.0f}%" if rate is not None else "–",
        f"{1000 * tpot:.1f} ms" if tpot else "–",
        f"{100 * (off / tpot - 1):+.0f}%" if tpot and off else "–",
        f"{window.generated_tokens / window.seconds:,.0f}",
    )
