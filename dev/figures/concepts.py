"""Draws docs/images/how-*.svg and demo.svg: `PYTHONPATH=dev .venv/bin/python -m figures.concepts`.

Each drawing is a white card of its own, so that it is legible on light and dark pages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

IMAGES = Path(__file__).parents[2] / "docs" / "images"
INK, FAINT = "#24292f", "#57606a"
BLUE, ORANGE, GREEN, GREY = "#1f6feb", "#c2410c", "#15803d", "#8c959f"
FILLS = {BLUE: "#eff6ff", ORANGE: "#fff7ed", GREEN: "#f0fdf4", GREY: "#f6f8fa"}
SHADES = {1: "#93c5fd", 4: "#2563eb", 3: "#f59e0b", 0: "#e5e7eb"}
LINE = 18
DEMO = {"low load": (10.6, 13.2, 12.9), "peak": (37.8, 177.2, 37.6), "low load again": (10.9, 20.5, 13.3)}
"""Emulated ms of a run of `make demo`: tuned, K = 5, no speculation."""
Point = tuple[float, float]


class Drawing:
    """Collects SVG parts; all positions are pixels."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._width, self._height, self._title = width, height, title
        self._parts: list[str] = []

    def box(self, at: Point, size: Point, title: str, lines: Sequence[str], colour: str) -> None:
        """A rounded box with a bold title above its lines."""
        (left, top), (width, height) = at, size
        self._parts.append(
            f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="8" fill="{FILLS[colour]}" '
            f'stroke="{colour}" stroke-width="1.5"/>'
        )
        self.write((left + 12, top + 23), title, weight="bold")
        for number, line in enumerate(lines, 1):
            self.write((left + 12, top + 24 + number * LINE), line, FAINT)

    def arrow(self, points: Sequence[Point], colour: str = FAINT, *, dashed: bool = False) -> None:
        places = " ".join(f"{x},{y}" for x, y in points)
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="1.8"{dashes} '
            f'marker-end="url(#head{colour[1:]})"/>'
        )

    def bar(self, at: Point, size: Point, colour: str, words: str = "", ink: str = "white") -> None:
        (left, top), (width, height) = at, size
        self._parts.append(
            f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="{colour}" stroke="white"/>'
        )
        if words:
            self.write((left + width / 2, top + height / 2 + 5), words, ink, anchor="middle")

    def write(
        self, at: Point, words: str, colour: str = INK, *, anchor: str = "start", weight: str = "normal", size: int = 13
    ) -> None:
        words = words.replace("&", "&amp;").replace("<", "&lt;")
        self._parts.append(
            f'<text x="{at[0]}" y="{at[1]}" fill="{colour}" text-anchor="{anchor}" font-weight="{weight}" '
            f'font-size="{size}">{words}</text>'
        )

    def svg(self) -> str:
        heads = "".join(
            f'<marker id="head{colour[1:]}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" '
            f'orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="{colour}"/></marker>'
            for colour in (FAINT, BLUE, ORANGE, GREEN)
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self._width} {self._height}" '
            f'font-family="Helvetica, Arial, sans-serif" role="img">\n<title>{self._title}</title>\n'
            f"<defs>{heads}</defs>\n"
            f'<rect x="0.5" y="0.5" width="{self._width - 1}" height="{self._height - 1}" rx="10" fill="white" '
            f'stroke="#d0d7de"/>\n' + "\n".join(self._parts) + "\n</svg>\n"
        )


def how_it_tunes() -> str:
    """The loop from the object to the pods and back, with a table and a trial below."""
    drawing = Drawing(880, 560, "The operator writes a table, pods draft by it, and measurements correct it")
    write = drawing.write
    drawing.box((20, 20), (240, 96), "You: one object", ["SpeculativeDeployment:", "models, mode, limits"], GREY)
    drawing.box(
        (320, 20),
        (240, 96),
        "Operator",
        ["reconcile: create the children", "tuner: decide the table", "every 10 seconds"],
        BLUE,
    )
    drawing.box(
        (620, 20),
        (240, 96),
        "Children",
        ["Deployment, Service,", "ConfigMap with the table,", "NetworkPolicy, ..."],
        BLUE,
    )
    drawing.box(
        (620, 190),
        (240, 114),
        "Pods: vLLM with plug-in",
        ["verifier and speculator", "read the table file,", "choose K in each step,", "run trials in blocks"],
        GREEN,
    )
    drawing.box(
        (320, 190),
        (240, 114),
        "Prometheus",
        ["step times, accepted drafts,", "comparisons, latencies,", "by pod"],
        ORANGE,
    )
    drawing.box(
        (20, 190),
        (240, 114),
        "Status, events",
        ["active table, gain,", "last ten decisions", "with their reasons"],
        GREY,
    )
    drawing.arrow([(260, 68), (318, 68)])
    drawing.arrow([(560, 68), (618, 68)], BLUE)
    drawing.arrow([(740, 116), (740, 188)], BLUE)
    write((730, 150), "table file,", FAINT, anchor="end")
    write((730, 168), "no restart", FAINT, anchor="end")
    drawing.arrow([(620, 247), (562, 247)], GREEN)
    drawing.arrow([(440, 190), (440, 118)], ORANGE)
    write((450, 158), "windows", FAINT)
    drawing.arrow([(350, 116), (350, 152), (140, 152), (140, 188)], BLUE)
    write((150, 144), "what it decided, and why", FAINT)

    write((20, 348), "The active table: K by scheduled requests", weight="bold", size=14)
    widths = {4: (160, "K = 4", "1-16"), 1: (150, "K = 1", "17-96"), 0: (90, "K = 0", "97-256")}
    left = 20.0
    for k, (width, words, load) in widths.items():
        drawing.bar((left, 362), (width, 44), SHADES[k], words, "white" if k == 4 else INK)
        write((left + width / 2, 426), load, FAINT, anchor="middle")
        left += width
    write((430, 390), "The engine looks up K in every step,", FAINT)
    write((430, 408), "so K follows the load without the operator.", FAINT)

    write((20, 470), "A trial: K = 3 for one block, compared with the blocks beside it", weight="bold", size=14)
    for number, k in enumerate((4, 4, 3, 4, 4, 4, 4)):
        drawing.bar((20 + number * 57, 484), (56, 36), SHADES[k], f"K = {k}", "white" if k == 4 else INK)
    drawing.arrow([(105, 540), (105, 524)], FAINT)
    drawing.arrow([(219, 540), (219, 524)], FAINT)
    drawing.arrow([(162, 540), (162, 524)], ORANGE)
    write((234, 545), "before and after, same requests, same machine", FAINT)
    write((438, 498), "Each block has 8 steps. The comparison goes", FAINT)
    write((438, 516), "to Prometheus and becomes evidence.", FAINT)
    return drawing.svg()


def how_a_pair_becomes_pods() -> str:
    """The stages of a pair from left to right, with the outcome of each below."""
    drawing = Drawing(1104, 446, "The operator reads, pins, compares and fetches a pair before it creates pods")
    stages = (
        ("1 Pick", ["only with auto:", "first entry of the", "catalogue that the", "engine can serve"], BLUE),
        ("2 Inspect", ["a Job reads config,", "tokenizer, tensor", "headers; no weights", "are read"], GREEN),
        ("3 Pin", ["branch or tag", "becomes a commit", "or a digest", ""], BLUE),
        ("4 Compare", ["does the pair fit?", "do both fit into", "the accelerator's", "memory?"], BLUE),
        ("5 Fetch", ["only with a cache:", "Job fills the claim,", "or an init container", "fills node or pod"], GREEN),
        ("6 Pods", ["one pod template", "for both models;", "new pods load the", "pinned versions"], GREEN),
    )
    width, gap, top, height = 164.0, 16.0, 20.0, 118.0
    lefts = [20 + number * (width + gap) for number in range(len(stages))]
    for left, (title, lines, colour) in zip(lefts, stages, strict=True):
        drawing.box((left, top), (width, height), title, lines, colour)
    for left in lefts[:-1]:
        drawing.arrow([(left + width, top + 59), (left + width + gap - 2, top + 59)])
    outcomes = (
        (0, 172.0, "NoSpeculatorKnown", ["verifier is served", "alone"], GREY),
        (1, 172.0, "PairUnread", ["no answer: pods are", "created unread"], GREY),
        (1, 272.0, "SourceNotFound ...", ["source refuses:", "no pod is created"], ORANGE),
        (3, 172.0, "PairMismatch", ["no pod is created"], ORANGE),
        (3, 272.0, "MemoryShort", ["a warning: pods are", "created all the same"], GREY),
        (4, 172.0, "CacheFull ...", ["no new pods until", "both are complete"], ORANGE),
        (5, 172.0, "StartTimedOut", ["the engine starts", "again"], GREY),
    )
    for stage, at, title, lines, colour in outcomes:
        drawing.box((lefts[stage], at), (width, 86), title, lines, colour)
        if at < 200:
            drawing.arrow([(lefts[stage] + width / 2, top + height), (lefts[stage] + width / 2, 170)], dashed=True)
    drawing.box(
        (20, 378),
        (1064, 52),
        "Meanwhile",
        ["Pods of the former pair keep serving with their own table until the new pods are ready."],
        BLUE,
    )
    return drawing.svg()


def demo() -> str:
    """Mean TPOT of the three copies of a model in `make demo`; its figures stand in docs/measured.md too."""
    drawing = Drawing(880, 400, "Mean time per output token: tuned, K = 5 and no speculation, at low and peak load")
    write = drawing.write
    write((30, 36), "Mean time per output token in milliseconds: less is better", weight="bold", size=16)
    text = "make demo: copies of one model serve the same requests on an emulated engine; each load to its own scale"
    write((30, 58), text, FAINT)
    base, highest = 330.0, 230.0
    for group, (load, figures) in enumerate(DEMO.items()):
        left, scale = 50 + group * 272.0, highest / max(figures)
        for number, (figure, colour) in enumerate(zip(figures, (GREEN, ORANGE, GREY), strict=True)):
            height = figure * scale
            drawing.bar((left + number * 72, base - height), (70, height), colour)
            write(
                (left + number * 72 + 35, base - height - 8), f"{figure:.1f}", anchor="middle", weight="bold", size=15
            )
        write((left + 108, base + 24), load, anchor="middle", size=14)
    drawing.bar((30, base), (820, 2), FAINT)
    names = ("tuned by the operator", "constant K = 5", "no speculation")
    for number, (name, colour) in enumerate(zip(names, (GREEN, ORANGE, GREY), strict=True)):
        drawing.bar((150 + number * 210, 372), (14, 14), colour)
        write((170 + number * 210, 384), name)
    return drawing.svg()


DRAWINGS: dict[str, Callable[[], str]] = {
    "how-it-tunes": how_it_tunes,
    "how-a-pair-becomes-pods": how_a_pair_becomes_pods,
    "demo": demo,
}


def main() -> int:
    for name, draw in DRAWINGS.items():
        (IMAGES / f"{name}.svg").write_text(draw(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
