"""Draws docs/images/status.svg: `PYTHONPATH=dev .venv/bin/python -m figures.status_view`.

What `speculative status` prints for the object `tuned` of tests/golden/stored, which a release of the operator has
left there, as a terminal shows it.
"""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from speculative_operator.cli import status
from speculative_operator.cli.colours import coloured

ROOT = Path(__file__).resolve().parents[2]
STORED = ROOT / "tests" / "golden" / "stored" / "0.1.0" / "tuned.json"
IMAGE = ROOT / "docs" / "images" / "status.svg"
NAME = "qwen3-8b"
COLUMNS = 118
_LOADED_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""rich asks a server of others for its font; the page is to load nothing."""
_COMMENT = "<!-- Generated with Rich https://www.textualize.io -->"


def sample() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The object and its pods, under the name of the pages, with the time without speculation as it is told now: for
    the prompts that came."""
    found = json.loads(STORED.read_text(encoding="utf-8"))
    pods = json.loads(json.dumps(found["pods"]).replace('"demo-', f'"{NAME}-'))
    told = found["status"]["speculation"]
    told["tpotOff"] = f"{float(told['tpot'].removesuffix('ms')) * (1 + float(told['gain'].rstrip('%')) / 100):.1f}ms"
    return {"metadata": {"name": NAME, "namespace": "models"}, "spec": found["spec"], "status": found["status"]}, pods


def draw() -> str:
    """The picture."""
    console = Console(file=io.StringIO(), record=True, width=COLUMNS, force_terminal=True, legacy_windows=False)
    for line in status.view(*sample()):
        console.print(coloured(line), soft_wrap=True)
    drawn = console.export_svg(title=f"kubectl speculative status {NAME} -n models -w", unique_id="status")
    lines = _LOADED_FONT.sub("", drawn).replace("Fira Code,", "").replace(_COMMENT, "").splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


def main() -> int:
    IMAGE.write_text(draw(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
