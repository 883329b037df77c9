"""An object whose weights, of tiny models, come from a hub in the cluster's network through a claim."""

from __future__ import annotations

from typing import Any

from demo import hub
from demo.scene import NAMESPACE
from speculative_operator.domain import names

SPECULATORS = {
    hub.DRAFT: {"method": "draft_model", "model": f"hf://tiny/{hub.DRAFT}"},
    hub.HEAD: {"method": "eagle3", "model": f"hf://tiny/{hub.HEAD}"},
}


def manifest(name: str, verifier: str, speculator: str) -> dict[str, Any]:
    """The object, on the emulator; `speculator` is a key of SPECULATORS."""
    spec = {
        "verifier": {"model": verifier, "servedName": name, "maxModelLen": 2048, "maxNumSeqs": 8},
        "speculator": SPECULATORS[speculator],
        "speculation": {"mode": "Static", "numSpeculativeTokens": 3, "maxSpeculativeTokens": 3},
        "engine": {"version": "0.32.0", "image": "speculative-operator/vllm-emulator:0.32.0"},
        "accelerator": {"product": "H100-SXM"},
        "rollout": {"strategy": "RollingUpdate"},
        "weights": {
            "hubEndpoint": hub.URL,
            "cache": {"size": "1Gi", "accessMode": "ReadWriteOnce"},
        },
    }
    meta = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": meta, "spec": spec}
