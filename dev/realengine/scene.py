"""What the harness puts on the cluster: SpeculativeDeployments whose models come from a hub in the cluster's network by
way of a cache, and that the real engine serves.

The operator comes from manifests/install.yaml as in the demo; the image of the engine is mapped to a local program.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo import hub
from demo import scene as demo_scene
from devcluster.options import ClusterOptions, Image
from realengine import paths
from realengine.image import RATES
from realengine.serving import CPU_FLAGS, environment
from speculative_operator.domain import names
from speculative_operator.render.load_job import IMAGE as GENERATOR

NAMESPACE = demo_scene.NAMESPACE
IMAGE = f"vllm/vllm-openai:v{paths.VLLM}"
CACHE = {"claimName": "weights", "size": "1Gi", "accessMode": "ReadWriteOnce"}
DRAFTERS = {"draft_model": hub.DRAFT, "eagle3": hub.HEAD}
"""Methods whose speculator is a model of its own, and which."""
MAX_NUM_SEQS = 16
SCRAPE_SECONDS = 2
_BY_OPERATOR = frozenset({"HF_HOME", "VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT", "VLLM_NO_USAGE_STATS", "HF_HUB_OFFLINE"})
"""Variables that the operator renders itself; the harness must not hide one that it forgets."""
FORK = "REALENGINE_FORK"
"""Has the plug-in start an engine's core with what its server has imported, which halves what a pod's start takes."""
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
                    "model": f"hf://tiny/{hub.TARGET}",
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
                "weights": {"hubEndpoint": hub.URL, "cache": CACHE},
            },
        }

    @property
    def drafts(self) -> str:
        """The method that pods draft by; empty where they do not."""
        return "" if self.mode == "Disabled" else self.method

    def _speculator(self) -> dict[str, Any]:
        model = DRAFTERS.get(self.method)
        return {"method": self.method} | ({"model": f"hf://tiny/{model}"} if model else {})


def options(name: str, python: Path, generator: Image | None = None) -> ClusterOptions:
    """A cluster whose node runs the real engine under the name of its public image, and the load generator of
    `speculative bench` where it is given."""
    program = (str(python), "-P", str(Path(__file__).with_name("image.py")))
    variables = {key: value for key, value in environment(Path("/tmp")).items() if key not in _BY_OPERATOR}  # noqa: S108
    variables[FORK] = "1"
    others = {GENERATOR: generator} if generator is not None else {}
    folders = [str(Path(one.entrypoint[0]).parents[1]) for one in others.values()]
    return ClusterOptions(
        name=name,
        images={**demo_scene.images(), **hub.images(), IMAGE: Image(program, variables), **others},
        accelerators={},
        scrape_interval_seconds=SCRAPE_SECONDS,
        node_settings={"visible": [*prefixes(python), *folders]},
    )


def prefixes(python: Path) -> list[str]:
    """Folders that the interpreter needs to be seen from inside a pod."""
    told = subprocess.run(
        [python, "-I", "-c", "import sys; print(sys.prefix); print(sys.base_prefix)"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return told.stdout.split()
