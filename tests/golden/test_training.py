"""The Jobs of a training by example: training/*.yaml."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml
from tests.golden.case import HERE
from tests.golden.test_manifests import NOTE
from tests.unit.training.seen import TRAINING

from speculative_operator.domain import names
from speculative_operator.domain.spec import ModelSource, Scheme
from speculative_operator.domain.training import Answers
from speculative_operator.training.jobs import Known, Means, look_job, train_job

MEANS = Means("operator:1")
WHOLE = replace(
    TRAINING, verifier=ModelSource(Scheme.PVC, "models/qwen"), answers=Answers.KEEP, accelerators=6, serving=4,
    samples=500, copy_to=ModelSource(Scheme.S3, "bucket/heads/support"),
    secret_name="hub", env=({"name": "HTTPS_PROXY", "value": "http://proxy:3128"}, {"name": "OUTPUT", "value": "/"},
        {"name": "AWS_REGION", "value": "eu-central-1"}),
    node_selector={"pool": "train"}, tolerations=({"key": "gpu", "operator": "Exists"},), pull_secrets=("login",),
    queue="night",
)  # fmt: skip
KNOWN = Known("c" * 40, 36)
ON_HUB = replace(TRAINING, prompts=ModelSource(Scheme.HF, "datasets/org/chats/train.jsonl", "v1"), secret_name="hub")
MADE: dict[str, dict[str, Any]] = {
    "look": look_job(TRAINING, MEANS),
    "train": train_job(TRAINING, KNOWN, 43_200, MEANS),
    "look-whole": look_job(WHOLE, Means("operator:1", assigns_uids=True)),
    "train-whole": train_job(WHOLE, KNOWN, 3_600, Means("operator:1", assigns_uids=True)),
    "look-hub": look_job(ON_HUB, MEANS),
    "train-cpu": train_job(replace(TRAINING, accelerators=0, serving=0), Known("c", 3), 3_600, MEANS),
}


@pytest.mark.parametrize("name", sorted(MADE))
def test_they_are_as_expected(name: str, regenerate: bool) -> None:
    text = NOTE + yaml.safe_dump(MADE[name], sort_keys=False, width=110)
    expected = HERE / "training" / f"{name}.yaml"
    if regenerate:
        expected.write_text(text)
    assert text == expected.read_text(), f"manifests changed; if that is wanted, run: {NOTE[2:]}"


def pod(name: str) -> dict[str, Any]:
    found: dict[str, Any] = MADE[name]["spec"]["template"]["spec"]
    return found


@pytest.mark.parametrize("name", sorted(MADE))
def test_they_pass_the_restricted_profile_and_are_no_serving_pods(name: str) -> None:
    """Pod Security Standards, restricted: https://kubernetes.io/docs/concepts/security/pod-security-standards/"""
    assert pod(name)["securityContext"]["runAsNonRoot"] is True
    assert pod(name)["automountServiceAccountToken"] is False
    for container in (*pod(name)["initContainers"], *pod(name)["containers"]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
        variables = [one["name"] for one in container["env"]]
        assert len(variables) == len(set(variables)), "a user's variable takes the place of none of the operator's"
    assert set(MADE[name]["spec"]["template"]["metadata"]["labels"]) == {names.LABEL_MANAGED_BY, names.LABEL_TRAINING}
    assert all({"emptyDir", "persistentVolumeClaim"} & volume.keys() for volume in pod(name)["volumes"])


def accelerators(name: str) -> dict[str, str]:
    containers = (*pod(name)["initContainers"], *pod(name)["containers"])
    return {one["name"]: one["resources"].get("limits", {}).get("nvidia.com/gpu", "") for one in containers}


def test_accelerators_are_those_of_the_budget_and_only_where_they_work() -> None:
    assert set(accelerators("look").values()) == {""}
    assert accelerators("train") == {"answers": "1", "states": "1", "train": "1", "check": ""}
    assert accelerators("train-whole") == {"answers": "4", "states": "4", "train": "2", "check": "", "copy": ""}
    assert set(accelerators("train-cpu").values()) == {""}


def test_only_programs_of_ours_get_the_token() -> None:
    pods = {name: job["spec"]["template"]["spec"] for name, job in MADE.items()}
    given = {
        (name, one["name"], one["command"][0])
        for name, pod in pods.items()
        for one in (*pod["initContainers"], *pod["containers"])
        if "HF_TOKEN" in str(one["env"])
    }
    program = "speculative-weights"
    fetching = {("look-hub", one, program) for one in ("inspect", "prompts", "fetch")}
    assert given == {("look-whole", "inspect", program), *fetching}


def test_only_the_copy_gets_the_keys_of_the_bucket_and_what_the_user_sets_stays() -> None:
    for name in ("look-whole", "train-whole"):
        for one in (*pod(name)["initContainers"], *pod(name)["containers"]):
            given = [key["name"] for key in one["env"] if "secretKeyRef" in key.get("valueFrom", {})]
            secret = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"]
            assert [key for key in given if key != "HF_TOKEN"] == (secret if one["name"] == "copy" else [])
            assert {"name": "AWS_REGION", "value": "eu-central-1"} in one["env"]


def test_only_the_claim_of_the_output_is_written() -> None:
    for container in (*pod("train-whole")["initContainers"], *pod("train-whole")["containers"]):
        written = {one["mountPath"] for one in container["volumeMounts"] if not one.get("readOnly")}
        assert written == {"/training", "/tmp", "/states", "/dev/shm"}
