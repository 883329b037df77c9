"""Objects of every kind as the operator leaves them at rest. Used by the tests of the command line and of harm."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import cache
from typing import Any

import pytest
from tests.unit.reconcile.choosing import Choosing
from tests.unit.reconcile.paired import DRAFT, EAGLE, VERIFIER, Paired, advance
from tests.unit.reconcile.scripted import Tuner, active_table
from tests.unit.reconcile.worlds import Cluster, observed

from speculative_operator.api.convert import to_domain
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.domain.table import KTable
from speculative_operator.reconcile.table import deciding

SMALL: dict[str, Any] = {"verifier": {"model": f"hf://{VERIFIER}", "maxNumSeqs": 64}}
EAGLE3: dict[str, Any] = {"speculator": {"method": "eagle3", "model": f"hf://{EAGLE}"}}
H100: dict[str, Any] = {"accelerator": {"product": "H100-SXM"}}
SUFFIX: dict[str, Any] = {"speculator": {"method": "suffix"}}
SPECS: dict[str, dict[str, Any]] = {
    "eagle3": {**SMALL, **EAGLE3, **H100, "replicas": 2},
    "draft-model-skipped": {
        **SMALL,
        **H100,
        "speculator": {"method": "draft_model", "model": f"hf://{DRAFT}"},
        "speculation": {"offPolicy": "Skip"},
    },
    "cached": {**SMALL, **EAGLE3, **H100, "weights": {"cache": {"claimName": "models", "size": "500Gi"}}},
    "pods-bring-weights": {
        **SMALL,
        "speculator": {"method": "ngram", "promptLookup": {"min": 2, "max": 5}},
        "weights": {"check": "Disabled", "cache": {"nodePath": "/var/models"}},
    },
    "table-in-flags": {
        **SMALL,
        **EAGLE3,
        **H100,
        "engine": {"type": "vLLM", "version": "0.30.0", "args": ["--seed=1"]},
        "template": {"spec": {"priorityClassName": "high"}},
        "replicas": 2,
    },
    "schedule": {
        "verifier": {"model": "hf://meta-llama/Llama-3.3-70B-Instruct", "tensorParallelSize": 2, "maxNumSeqs": 128},
        "speculator": {
            "method": "draft_model",
            "model": "hf://meta-llama/Llama-3.2-1B-Instruct",
            "tensorParallelSize": 2,
        },
        "speculation": {"mode": "Static", "schedule": [[1, 16, 5], [17, 128, 2]]},
        "accelerator": {"perReplica": 2, "product": "H100-SXM"},
        "weights": {"check": "Disabled"},
    },
    "rollout-for-k": {**SMALL, **SUFFIX, **H100},
    "proposal": {**SMALL, **SUFFIX, **H100},
    "without-drafter": {
        **SMALL,
        **EAGLE3,
        **H100,
        "speculation": {"offPolicy": "Remove"},
        "weights": {"check": "Disabled"},
    },
    "sglang": {**SMALL, **EAGLE3, **H100, "engine": {"type": "SGLang"}, "weights": {"check": "Disabled"}},
    "picked": {**SMALL, **H100, "speculator": {"auto": True}},
    "recommended": {**SMALL, **EAGLE3, **H100, "speculation": {"mode": "Recommend"}},
    "off": {**SMALL, "speculation": {"mode": "Disabled"}},
    "tuned": {
        **SMALL,
        **EAGLE3,
        **H100,
        "speculation": {"offPolicy": "KeepRunning"},
        "replicas": 2,
        "weights": {"check": "Disabled"},
    },
}


def spec_of(spec: dict[str, Any]) -> DeploymentSpec:
    metadata = {"name": "demo", "namespace": "models", "uid": "uid-1", "generation": 1}
    return to_domain({"metadata": metadata, "spec": spec})


def at_rest(name: str) -> Paired:
    """The cluster of one object that was made and serves."""
    spec = spec_of(SPECS[name])
    cluster = (Choosing if spec.auto_speculator else Paired)(spec=spec)
    advance(cluster)
    cluster.settle()
    LATER.get(name, leave)(cluster)
    cluster.settle()
    return cluster


def leave(cluster: Cluster) -> None:
    """Nothing else happens."""


def tune(cluster: Cluster) -> None:
    """The load of an hour, by the real tuner."""
    for number in range(60):
        cluster.tick(observed(cluster, batch=50 if number % 20 < 14 else 6, survival=0.55), seconds=60.0)


def script(*, remove: bool = False, undone: bool = False) -> Callable[[Cluster], None]:
    """The tuner wants another table, or no drafter."""

    def happen(cluster: Cluster) -> None:
        with pytest.MonkeyPatch.context() as patch:
            tuner = Tuner()
            patch.setattr(deciding, "decide", tuner)
            cluster.tick(observed(cluster))
            wish = {"table": KTable.constant(1, 64), "reason": Reason.FASTER, "changed": True}
            if remove:
                tuner.remove(active_table(cluster))
            else:
                tuner.wishes.append(wish)
            cluster.tick(observed(cluster))
            if undone:
                cluster.find_no_node()
                cluster.tick()
                cluster.roll()
                tuner.wishes.append(wish)
                cluster.tick(observed(cluster))
            cluster.roll()

    return happen


LATER: dict[str, Callable[[Cluster], None]] = {
    "tuned": tune,
    "rollout-for-k": script(),
    "proposal": script(undone=True),
    "without-drafter": script(remove=True),
}


@cache
def _left(name: str) -> dict[str, Any]:
    cluster = at_rest(name)
    assert cluster.look().actions == (), name
    return {"spec": SPECS[name], "status": cluster.status, "notes": cluster.remembered}


def left(name: str) -> dict[str, Any]:
    """Spec, status and notes of one object."""
    return deepcopy(_left(name))
