"""What docs/openshift-ai.md shows: objects, the chart's values, the command that takes them; and
OpenShift's definition of a Route, for those that are shown."""

from __future__ import annotations

import copy
import gzip
import json
import re
from pathlib import Path
from typing import Any

import yaml

from devcluster import Cluster

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


def install_routes(cluster: Cluster) -> None:
    """Apply the definition of a Route, and wait until it is served."""
    definition = gzip.decompress((ROOT / "tests" / "fixtures" / "openshift" / "routes.json.gz").read_bytes()).decode()
    cluster.kubectl("apply", "--server-side", "-f", "-", input=definition)
    name = json.loads(definition)["metadata"]["name"]
    cluster.wait_for_kinds(name)
