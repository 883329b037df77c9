"""Draws docs/images/status.svg: `PYTHONPATH=dev .venv/bin/python -m figures.status_view`.

What `speculative status` prints of an object of a real run, as a terminal shows it. The object, its pods and the time
lie in status.json beside this module; `make demo ARGS='--alone --record dev/figures/status.json'` records them anew.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from speculative_operator.cli import status, terminal
from speculative_operator.cli.cluster import Cluster
from speculative_operator.domain import names

ROOT = Path(__file__).resolve().parents[2]
RECORD = Path(__file__).with_name("status.json")
IMAGE = ROOT / "docs" / "images" / "status.svg"
COLUMNS = 118
_LOADED_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""rich asks a server of others for its font; the page is to load nothing."""
_COMMENT = "<!-- Generated with Rich https://www.textualize.io -->"


def record(kubeconfig: Path, namespace: str, name: str, to: Path) -> None:
    """Keep what the commands read of an object and its pods now."""
    os.environ["KUBECONFIG"] = str(kubeconfig)
    at = Cluster(argparse.Namespace(context="", namespace=namespace))
    body = at.object_with_notes(name)
    kept = {
        "time": round(time.time(), 1),
        "object": {"metadata": {"name": name, "namespace": namespace}, "spec": body["spec"], "status": body["status"]},
        "pods": [_pod(one) for one in at.pods(name)],
    }
    to.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


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


def sample() -> tuple[dict[str, Any], list[dict[str, Any]], float]:
    """The object that was recorded, its pods, and when that was."""
    found = json.loads(RECORD.read_text(encoding="utf-8"))
    return found["object"], found["pods"], found["time"]


def draw() -> str:
    """The picture."""
    body, pods, now = sample()
    console = Console(file=io.StringIO(), record=True, width=COLUMNS, force_terminal=True, legacy_windows=False)
    for line in status.tree_lines(status.add_time(status.view(body, pods, now), now)):
        console.print(terminal.colour(line))
    command = f"kubectl speculative status {body['metadata']['name']} -n {body['metadata']['namespace']} -w"
    drawn = console.export_svg(title=command, unique_id="status")
    lines = _LOADED_FONT.sub("", drawn).replace("Fira Code,", "").replace(_COMMENT, "").splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


def main() -> int:
    IMAGE.write_text(draw(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
