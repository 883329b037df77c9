"""The end of the demo: the same verifier on the other engines, and objects that no engine can serve.

Called by `run` after the replay. Their images are mapped to the emulators of those engines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo.scene import NAMESPACE, UNREAD, condition, pods_of, until, wait_ready
from demo.sender import Sender, evenly, models
from devcluster.cluster import Cluster
from devcluster.options import Image
from speculative_lab.emulator.commands import lay
from speculative_operator.domain import names

REQUESTS_EACH, RATE = 20, 5.0
PATIENCE = 60.0
"""Seconds for the operator's word on an object: it takes one, and many where the machine does much else."""
_HEAD = {"method": "eagle3", "model": "hf://example/qwen3-8b-eagle3"}
_SCHEDULE = {"mode": "Static", "schedule": [[1, 8, 4], [9, 64, 2]]}


@dataclass(frozen=True, slots=True)
class Ask:
    """One object beside the demo's own."""

    name: str
    spec: Mapping[str, Any]

    def manifest(self) -> dict[str, Any]:
        spec: dict[str, Any] = {
            "verifier": {"model": "hf://Qwen/Qwen3-8B", "servedName": self.name, "maxModelLen": 8192, "maxNumSeqs": 64},
            "accelerator": {"product": "H100-SXM"},
        }
        metadata = {"name": self.name, "namespace": NAMESPACE}
        return {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": metadata,
            "spec": {**spec, **UNREAD, **self.spec},
        }


SERVED = (
    Ask("sglang", {"engine": {"type": "SGLang"}, "speculator": _HEAD, "speculation": _SCHEDULE}),
    Ask("tensorrt-llm", {"engine": {"type": "TensorRTLLM"}, "speculator": _HEAD, "speculation": _SCHEDULE}),
)
REFUSED = (
    Ask("medusa-on-sglang", {"engine": {"type": "SGLang"}, "speculator": {"method": "medusa", "model": "hf://example/heads"}}),
    Ask(
        "trt-on-amd",
        {
            "engine": {"type": "TensorRTLLM"},
            "speculator": _HEAD,
            "accelerator": {"resource": "amd.com/gpu", "product": "MI300X"},
        },
    ),
    Ask("oldest-vllm", {"engine": {"version": "0.10.2"}, "speculator": {"method": "ngram"}}),
    Ask("rising-on-trt", {
        "engine": {"type": "TensorRTLLM"},
        "speculator": _HEAD,
        "speculation": {"mode": "Static", "schedule": [[1, 8, 2], [9, 64, 4]]},
    }),
)  # fmt: skip


@dataclass(slots=True)
class Seen:
    """What became of the objects."""

    served: list[dict[str, str]] = field(default_factory=list)
    refused: list[dict[str, str]] = field(default_factory=list)
    pods_of_refused: int = 0
    failed_requests: int = 0

    @property
    def all_serve(self) -> bool:
        return len(self.served) == len(SERVED) and self.failed_requests == 0

    @property
    def none_crashes(self) -> bool:
        """True when every object that cannot be served got a reason and no pod."""
        return self.pods_of_refused == 0 and all(one["reason"] and one["message"] for one in self.refused)


def images(folder: Path) -> dict[str, Image]:
    """The public images of the other engines, each a program of this environment laid into `folder`."""
    found = lay(folder)
    commands = folder / "bin"
    return {
        "lmsysorg/sglang:*": Image((str(commands / "python3"), "-m", "sglang.launch_server"), found),
        "nvcr.io/nvidia/tensorrt-llm/release:*": Image((str(commands / "trtllm-serve"),), found),
    }


def play(cluster: Cluster, out: Path, say: Callable[[str], None]) -> Seen:
    """Apply all, serve some requests on each engine, and look."""
    seen = Seen()
    say(f"kubectl apply: the same verifier on {len(SERVED)} other engines, and {len(REFUSED)} that none can serve")
    cluster.kubectl("apply", "-f", "-", input=_list(SERVED))
    seen.refused = [_refused(cluster, one) for one in REFUSED]
    for one in SERVED:
        wait_ready(cluster, one.name, 180)
    seen.failed_requests = _requests(cluster, out)
    seen.served = [_served(cluster.objects.get("specdep", one.name, NAMESPACE)) for one in SERVED]
    seen.pods_of_refused = sum(len(pods_of(cluster, one.name)) for one in REFUSED)
    return seen


def _list(asks: tuple[Ask, ...]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [one.manifest() for one in asks]})


def _refused(cluster: Cluster, one: Ask) -> dict[str, str]:
    """By whom an object was refused, and why. Raises SceneError when nobody did."""
    applied = cluster.kubectl("apply", "-f", "-", input=json.dumps(one.manifest()), check=False)
    if applied.returncode:
        return {"name": one.name, "by": "API server", "reason": "Invalid", "message": applied.stderr.strip()}
    ready = until(
        f"{one.name} is refused",
        lambda: condition(cluster.objects.get("specdep", one.name, NAMESPACE), "Ready"),
        PATIENCE,
    )
    return {"name": one.name, "by": "operator", "reason": ready["reason"], "message": ready["message"]}


def _served(found: Mapping[str, Any]) -> dict[str, str]:
    status = found["status"]
    speculation, engine = status.get("speculation") or {}, found["spec"]["engine"]
    warnings = [warning["message"] for warning in status.get("warnings", ())]
    return {
        "name": found["metadata"]["name"],
        "engine": engine["type"],
        "actuator": speculation.get("actuator", ""),
        "table": speculation.get("tableText", ""),
        "warnings": "; ".join(warnings),
    }


def _requests(cluster: Cluster, out: Path) -> int:
    """Send requests to all of them; how many failed."""
    arrivals = evenly(REQUESTS_EACH / RATE, RATE, 200, 50)
    served = models(*(one.name for one in SERVED))
    with Sender(cluster, out / "engines-requests.jsonl", served, arrivals, timeout=30.0) as sender:
        answered = sender.wait(60)
    return len(SERVED) * REQUESTS_EACH - sum(not one["failed"] for one in answered)
