"""The Job and the prompts of `speculative bench` by example: load/*.yaml."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml
from tests.golden.case import HERE
from tests.golden.test_manifests import NOTE
from tests.unit.reconcile.paired import PAIRED

from speculative_operator.domain import names
from speculative_operator.render.load_job import IMAGE, Load, load_job, prompts_map

PLAIN = Load(
    spec=PAIRED, owner="u-1", url="http://demo.models.svc:8000", data="demo-bench-1", seconds=60, prompt_tokens=512,
    output_tokens=256, own_prompts=False, image=IMAGE, model="", path="/v1/chat/completions", key=None,
)  # fmt: skip
WHOLE = replace(
    PLAIN, own_prompts=True, model="adapter", path="/v1/completions", key=("login", "token"), image="mirror/guidellm:1"
)
MADE: dict[str, dict[str, Any]] = {
    "first": load_job(PLAIN, "1", 8, "", pulls=True),
    "whole": load_job(WHOLE, "0.5", 3, "node-1", pulls=False),
    "prompts": prompts_map(WHOLE, ["Name a river.", 'Say "no".', "Go on"], 2),
}


@pytest.mark.parametrize("name", sorted(MADE))
def test_they_are_as_expected(name: str, regenerate: bool) -> None:
    text = NOTE + yaml.safe_dump(MADE[name], sort_keys=False, width=110)
    expected = HERE / "load" / f"{name}.yaml"
    if regenerate:
        expected.write_text(text)
    assert text == expected.read_text(), f"manifests changed; if that is wanted, run: {NOTE[2:]}"


def test_the_job_passes_the_restricted_profile_and_its_key_is_in_no_argument() -> None:
    """Pod Security Standards, restricted: https://kubernetes.io/docs/concepts/security/pod-security-standards/"""
    pod = MADE["whole"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert pod["automountServiceAccountToken"] is False
    assert {"name": "login", "key": "token"} in [
        one.get("valueFrom", {}).get("secretKeyRef") for one in container["env"]
    ]
    assert "login" not in json.dumps(container["args"])


def test_the_operator_and_services_select_none_of_it() -> None:
    for one in MADE.values():
        labels = one["metadata"]["labels"]
        assert labels == {names.LABEL_BENCH: PAIRED.name}
        assert one.get("spec", {}).get("template", {"metadata": {"labels": labels}})["metadata"]["labels"] == labels
        assert not {"controller", "blockOwnerDeletion"} & one["metadata"]["ownerReferences"][0].keys()


def test_each_step_has_a_share_of_the_prompts_or_all_where_there_are_few() -> None:
    files = prompts_map(WHOLE, ["a", "b", "c"], 2)["data"]
    assert [json.loads(line)["prompt"] for line in files["prompts-0.jsonl"].splitlines()] == ["a", "c"]
    few = prompts_map(WHOLE, ["a"], 2)["data"]
    assert few["prompts-0.jsonl"] == few["prompts-1.jsonl"] == '{"prompt": "a"}\n'
