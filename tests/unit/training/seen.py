"""A training, its Jobs and their pods as the API server would have them."""

from __future__ import annotations

from typing import Any

from speculative_operator.api.training import to_training
from speculative_operator.domain import names
from speculative_operator.domain.formats import timestamp

NOW = 1_795_866_000.0
IMAGE = "trainer:1"
BODY: dict[str, Any] = {
    "apiVersion": names.API_VERSION,
    "kind": names.TRAINING_KIND,
    "metadata": {"name": "support", "namespace": "models", "uid": "u-1", "generation": 1},
    "spec": {
        "verifier": {"model": "hf://Qwen/Qwen3-8B"},
        "data": {"prompts": "pvc://prompts/support.jsonl"},
        "output": "pvc://models/support",
        "budget": {"accelerators": 2, "hours": 12},
        "accelerator": {"product": "H100-SXM", "hourlyCost": "5.00"},
    },
}
TRAINING = to_training(BODY, IMAGE)
FACTS: dict[str, Any] = {
    "verifier": {
        "pin": {"scheme": "hf", "location": "Qwen/Qwen3-8B", "asked": "", "resolved": "c" * 40},
        "config": {"num_hidden_layers": 36},
        "weights": {"bytes": 16_400_000_000},
    }
}
DAY = 86_400.0
DONE: dict[str, Any] = {
    "stage": "Done", "speculator": "pvc://models/support/model", "endedAt": timestamp(NOW - 30 * DAY),
    "expectedAcceptance": "1.90", "expectedAcceptanceByK": ["1.50", "1.75", "1.90"],
    "conditions": [
        {"type": "Trained", "status": "True", "reason": "Trained", "message": "m", "lastTransitionTime": timestamp(NOW)}
    ],
}  # fmt: skip


def condition(status: dict[str, Any]) -> tuple[str, str]:
    (one,) = status["conditions"]
    return one["status"], one["reason"]


def job(**status: Any) -> dict[str, Any]:
    owner = {"uid": TRAINING.uid, "controller": True}
    return {"metadata": {"name": "support-train", "uid": "j-1", "ownerReferences": [owner]}, "status": status}


def pod(phase: str, init: Any = (), main: Any = (), **status: Any) -> dict[str, Any]:
    """`init` and `main`: (container, exit code, termination message, reason) of containers that have ended."""

    def ended(name: str, code: int, message: str, reason: str = "Error") -> dict[str, Any]:
        return {"name": name, "state": {"terminated": {"exitCode": code, "message": message, "reason": reason}}}

    statuses = {
        "initContainerStatuses": [ended(*one) for one in init],
        "containerStatuses": [ended(*one) for one in main],
    }
    return {"metadata": {"name": "p", "uid": "p-1"}, "status": {"phase": phase, **statuses, **status}}


def serving(length: str, rate: str, name: str = "demo", **figures: Any) -> dict[str, Any]:
    """A SpeculativeDeployment with the speculator of DONE and figures of the moment."""
    told = {"state": "On", "acceptanceLength": length, "acceptanceRate": rate, "observedAt": timestamp(NOW)} | figures
    pair = {"speculator": "pvc://models/support/model@sha256:1"}
    model = {"model": "pvc://models/support/model/"}
    return {"metadata": {"name": name}, "spec": {"speculator": model}, "status": {"pair": pair, "speculation": told}}
