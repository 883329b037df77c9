"""Refused objects: a speculator to be picked, beside what only a given method has. Gathered by `refused`."""

from __future__ import annotations

from typing import Any

from tests.contract.objects import DRAFT, Bad, broken, wrong

BESIDE: tuple[tuple[str, Any, str], ...] = (
    ("model", DRAFT, f'is "{DRAFT}"'),
    ("revision", "main", 'is "main"'),
    ("tensorParallelSize", 1, "is 1"),
    ("quantization", "fp8", 'is "fp8"'),
    ("parallelDrafting", False, "is set"),
    ("heterogeneousVocabulary", True, "is set"),
    ("promptLookup", {"max": 4}, "is set"),
    ("options", {"attention_backend": "TRITON_ATTN"}, "is set"),
)

MEASURED = {"speculator": {"auto": True, "measure": {}}}
AUTO: tuple[Bad, ...] = (
    broken("method-or-auto", {"speculator": {}}, "method is not set"),
    broken("method-or-auto", {"speculator": {"auto": False}}, "auto is not true"),
    broken("method-without-auto", {"speculator.auto": True}, "method is draft_model but auto is true"),
    wrong("speculator.auto", "yes"),
    broken("measure-needs-auto", {"speculator.measure": {}}, "measure is set but auto is not true"),
    broken("measure-target", {**MEASURED, "target": "InferenceService"}, "target is InferenceService"),
    broken(
        "measure-or-canary",
        {**MEASURED, "route": {"gateway": {"name": "public"}, "canary": {"name": "next", "weight": 5}}},
        "route.canary is set",
    ),
    broken("measure-keeps-serving", {**MEASURED, "rollout.strategy": "Recreate"}, "rollout.strategy is Recreate"),
    *(
        broken(
            f"auto-without-{field.lower()}",
            {"speculator": {"auto": True, field: value}},
            f"{field} {shown} but auto is true",
        )
        for field, value, shown in BESIDE
    ),
    broken(
        "static-needs-k",
        {"speculator": {"auto": True}, "speculation.mode": "Static"},
        "is not set but speculation.mode is Static",
    ),
)
