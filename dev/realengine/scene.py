"""What the harness puts on the cluster: models as a volume, SpeculativeDeployments that the real engine serves.

The operator comes from manifests/install.yaml as in the demo; the image of the engine is mapped to a local program.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo import scene as demo_scene
from devcluster.options import ClusterOptions, Image
from realengine import paths
from realengine.image import RATES
from realengine.serving import CPU_FLAGS, environment
from speculative_operator.domain import names

NAMESPACE = "models"
IMAGE = f"vllm/vllm-openai:v{paths.VLLM}"
CLAIM = "tiny-models"
MAX_NUM_SEQS = 16
SCRAPE_SECONDS = 2
_BY_OPERATOR = frozenset({"HF_HOME", "VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT", "VLLM_NO_USAGE_STATS", "HF_HUB_OFFLINE"})
"""Variables that the operator renders itself; the harness must not hide one that it forgets."""
Rows = Sequence[tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class Wish:
    """One SpeculativeDeployment of the harness. `schedule` makes it Static; without, `mode` says what it is."""

    method: str
    name: str = "tiny"
    mode: str = "Static"
    schedule: Rows = ()
    max_k: int = 4
    start_k: int | None = None
    rates: Sequence[float] = ()
    """Synthetic acceptance by position; empty: what the models really accept."""
    speculation: Mapping[str, Any] = field(default_factory=dict)

    def manifest(self) -> dict[str, Any]:
        """The object as a user would write it."""
        speculation: dict[str, Any] = {"mode": self.mode, "maxSpeculativeTokens": self.max_k, **self.speculation}
        if self.schedule:
            speculation["schedule"] = [list(row) for row in self.schedule]
        if self.start_k is not None:
            speculation["numSpeculativeTokens"] = self.start_k
        env = [{"name": RATES, "value": json.dumps(list(self.rates))}] if self.rates else []
        return {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {"name": self.name, "namespace": NAMESPACE},
            "spec": {
                "verifier": {
                    "model": f"pvc://{CLAIM}/target",
                    "servedName": "tiny",
                    "maxModelLen": 1024,
                    "maxNumSeqs": MAX_NUM_SEQS,
                    "dtype": "float32",
                },
                "speculator": self._speculator(),
                "speculation": speculation,
                "engine": {"version": paths.VLLM, "image": IMAGE, "args": list(CPU_FLAGS), "env": env},
                "accelerator": {"perReplica": 0},
                "rollout": {"strategy": "RollingUpdate"},
            },
        }

    def _speculator(self) -> dict[str, Any]:
        folder = {"draft_model": "draft", "eagle3": "eagle3"}.get(self.method)
        return {"method": self.method} | ({"model": f"pvc://{CLAIM}/{folder}"} if folder else {})


def options(name: str, python: Path) -> ClusterOptions:
    """A cluster whose node runs the real engine under the name of its public image."""
    program = (str(python), "-P", str(Path(__file__).with_name("image.py")))
    variables = {key: value for key, value in environment(Path("/tmp")).items() if key not in _BY_OPERATOR}  # noqa: S108
    return ClusterOptions(
        name=name,
        images={**demo_scene.images(), IMAGE: Image(program, variables)},
        accelerators={},
        scrape_interval_seconds=SCRAPE_SECONDS,
        node_settings={"visible": _prefixes(python)},
    )


def _prefixes(python: Path) -> list[str]:
    """Folders that the interpreter needs to be seen from inside a pod."""
    told = subprocess.run(
        [python, "-I", "-c", "import sys; print(sys.prefix); print(sys.base_prefix)"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return told.stdout.split()


def volume(models: Path) -> list[dict[str, Any]]:
    """The models as a claim: a volume that points to the folder that holds them."""
    capacity = {"storage": "1Gi"}
    common = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": CLAIM},
            "spec": {
                **common,
                "capacity": capacity,
                "hostPath": {"path": str(models.resolve())},
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"namespace": NAMESPACE, "name": CLAIM},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM, "namespace": NAMESPACE},
            "spec": {**common, "resources": {"requests": capacity}, "volumeName": CLAIM},
        },
    ]
