"""What docs/openshift-ai.md shows: its objects, the chart's values and the command that takes them."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "openshift-ai.md").read_text()
_FOUND: list[dict[str, Any]] = [
    one for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) for one in yaml.safe_load_all(block)
]
OBJECTS = [one for one in _FOUND if "kind" in one]
(VALUES,) = (one for one in _FOUND if "kind" not in one)
(HELM,) = re.findall(r"^helm upgrade .*?[^\\]$", PAGE, re.DOTALL | re.MULTILINE)


def shown(kind: str, name: str) -> dict[str, Any]:
    """A copy of an object of the page."""
    (found,) = (one for one in OBJECTS if (one["kind"], one["metadata"]["name"]) == (kind, name))
    return copy.deepcopy(found)
