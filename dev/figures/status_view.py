"""Draws docs/images/status.svg and watch.svg: `PYTHONPATH=dev .venv/bin/python -m figures.status_view`.

What `speculative status` prints of an object of a real run, as a terminal shows it: at one moment, and as it changes
while the load climbs and falls. What the command read lies in status.json beside this module;
`make demo ARGS='--alone --record dev/figures/status.json'` records it anew.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from speculative_operator.cli import status, terminal
from speculative_operator.cli.cluster import Cluster
from speculative_operator.domain import names

ROOT = Path(__file__).resolve().parents[2]
RECORD = Path(__file__).with_name("status.json")
IMAGE = ROOT / "docs" / "images" / "status.svg"
MOVING = ROOT / "docs" / "images" / "watch.svg"
COLUMNS = 118
CHOSEN = 0.8
"""Which of the recorded moments the page of the command line shows, as a share of the run: the load falls."""
SHOWN_SECONDS = 1.6
"""For which each moment stands in the moving picture."""
ALL = 10
"""Decisions that a status keeps."""
_LOADED_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""rich asks a server of others for its font; the page is to load nothing."""
_COMMENT = "<!-- Generated with Rich https://www.textualize.io -->"
_NEEDLESS = re.compile(r' clip-path="url\([^)]*\)"|<text [^>]*>\n</text>')
"""Of a frame: lines end on their own, and nothing reaches beyond the picture."""
_FRAME = "<style>{styles}</style>{backgrounds}{matrix}"
_CHARACTER, _LINE = 12.2, 24.4
"""Width and height of a character in rich's drawings."""

Moment = dict[str, Any]
"""time, status and pods, as the commands read them."""


class Recording:
    """Keeps what the commands read of an object, each time it is told to look."""

    def __init__(self, kubeconfig: Path, namespace: str, name: str) -> None:
        os.environ["KUBECONFIG"] = str(kubeconfig)
        self._at = Cluster(argparse.Namespace(context="", namespace=namespace))
        self._name = name
        self._object: dict[str, Any] = {}
        self._moments: list[Moment] = []

    def look(self) -> None:
        """Keep what is read now."""
        body = self._at.object_with_notes(self._name)
        meta = {key: body["metadata"][key] for key in ("name", "namespace")}
        self._object = {"metadata": meta, "spec": body["spec"]}
        pods = [_pod(one) for one in self._at.pods(self._name)]
        self._moments.append({"time": round(time.time(), 1), "status": body["status"], "pods": pods})

    def save(self, to: Path) -> None:
        """Write all moments, a line each; only the one that is shown by itself with the tuner's memory."""
        chosen = _chosen(self._moments)
        for one in self._moments:
            if one is not chosen:
                one["status"].pop("memory", None)
        lines = ",\n".join(json.dumps(one) for one in self._moments)
        to.write_text(f'{{"object": {json.dumps(self._object)},\n"moments": [\n{lines}\n]}}\n', encoding="utf-8")


def _pod(pod: Any) -> dict[str, Any]:
    """What the commands read of a pod."""
    meta = pod["metadata"]
    poked = (meta.get("annotations") or {}).get(names.ANNOTATION_POKE)
    return {
        "metadata": {
            "name": meta["name"],
            "creationTimestamp": meta["creationTimestamp"],
            "annotations": {names.ANNOTATION_POKE: poked} if poked else {},
        },
        "status": {key: pod["status"][key] for key in ("phase", "conditions") if key in pod["status"]},
    }


def _recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def _chosen(moments: Sequence[Moment]) -> Moment:
    return moments[min(int(CHOSEN * len(moments)), len(moments) - 1)]


def sample() -> tuple[dict[str, Any], list[dict[str, Any]], float]:
    """The object that was recorded, its pods, and when that was."""
    found = _recorded()
    moment = _chosen(found["moments"])
    return {**found["object"], "status": moment["status"]}, moment["pods"], moment["time"]


def _printed(body: dict[str, Any], pods: list[dict[str, Any]], now: float, decisions: int) -> Console:
    """A console that has printed the status, with no more than the newest `decisions`."""
    kept = {**body["status"], "decisions": (body["status"].get("decisions") or [])[:decisions]}
    console = Console(file=io.StringIO(), record=True, width=COLUMNS, force_terminal=True, legacy_windows=False)
    for line in status.add_time(status.view({**body, "status": kept}, pods, now), now):
        console.print(terminal.colour(line))
    return console


def _command(body: dict[str, Any]) -> str:
    return f"kubectl speculative status {body['metadata']['name']} -n {body['metadata']['namespace']} -w"


def draw() -> str:
    """The picture of one moment."""
    body, pods, now = sample()
    drawn = _printed(body, pods, now, ALL).export_svg(title=_command(body), unique_id="status")
    lines = _LOADED_FONT.sub("", drawn).replace("Fira Code,", "").replace(_COMMENT, "").splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


def draw_moving() -> str:
    """The picture of all moments, one after the other, for ever; readers who want no motion see the last."""
    found = _recorded()
    frames, most = [], 0
    for number, one in enumerate(found["moments"]):
        console = _printed({**found["object"], "status": one["status"]}, one["pods"], one["time"], 1)
        most = max(most, console.export_text(clear=False).count("\n"))
        drawn = _NEEDLESS.sub("", console.export_svg(unique_id=f"at{number}", code_format=_FRAME))
        frames.append(f'<g class="frame" style="animation-delay:{number * SHOWN_SECONDS:g}s">{drawn}</g>')
    width, height = COLUMNS * _CHARACTER + 40, most * _LINE + 70
    share = 100 / len(frames)
    style = (
        "text{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:20px}"
        f".frame{{visibility:hidden;animation:turn {len(frames) * SHOWN_SECONDS:g}s step-end infinite}}"
        f"@keyframes turn{{0%{{visibility:visible}}{share:.4f}%{{visibility:hidden}}}}"
        "@media(prefers-reduced-motion:reduce){.frame{animation:none}.frame:last-child{visibility:visible}}"
    )
    shell = (
        f'<rect width="{width:g}" height="{height:g}" rx="8" fill="#292929"/>'
        f'<text x="20" y="32" fill="#98a84b">$ {_command(found["object"])}</text>'
    )
    shown = "\n".join(frames)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}">\n<style>{style}</style>\n'
        f'{shell}\n<g transform="translate(20,45)" fill="#c5c8c6">\n{shown}\n</g>\n</svg>\n'
    )


def main() -> int:
    IMAGE.write_text(draw(), encoding="utf-8")
    MOVING.write_text(draw_moving(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
