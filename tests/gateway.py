"""The Gateway API's definition of HTTPRoute, for tests of `spec.route`. No Gateway works here."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from devcluster import Cluster

NAME = "httproutes.gateway.networking.k8s.io"
DEFINITION = Path(__file__).parent / "fixtures" / "gateway" / "httproutes.json.gz"


def definition() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(DEFINITION.read_bytes()))
    return found


def install(cluster: Cluster) -> None:
    """Apply the definition, and wait until it is served."""
    cluster.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(definition()))
    cluster.wait_for_kinds(NAME)
