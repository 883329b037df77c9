"""Another release of the operator, by name a flag: its engine gets that flag, and its Service that label."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.reconcile.worlds import template

from speculative_operator.domain import names
from speculative_operator.reconcile.children import desired
from speculative_operator.reconcile.children.desired import render_again
from speculative_operator.render import resolved
from speculative_operator.render.metadata import digest, with_hash


def with_template(record: str, template: str, uid: str) -> str:
    """The record of pods made with another template."""
    content = {key: value for key, value in json.loads(record).items() if key not in ("format", "digest")}
    return resolved.seal({**content, "template": template}, uid)


def install(monkeypatch: pytest.MonkeyPatch, flag: str) -> None:
    def rendered(inp: Any, memo: Any) -> tuple[Any, ...]:
        manifests: tuple[Any, ...] = render_again(inp, memo)
        for one in manifests:
            if one["kind"] == "Deployment":
                template(one)["spec"]["containers"][0]["args"].append(flag)
                annotations = one["metadata"]["annotations"]
                record = with_template(annotations[names.ANNOTATION_RESOLVED], digest(template(one), 16), inp.spec.uid)
                annotations[names.ANNOTATION_RESOLVED] = record
            if one["kind"] == "Service":
                one["metadata"]["labels"]["release"] = flag.strip("-")
        return tuple(with_hash(one) for one in manifests)

    monkeypatch.setattr(desired, "render_again", rendered)
