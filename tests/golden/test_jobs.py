"""Jobs and claims by example: jobs/*.yaml, for an object with all that its Jobs may be given, and for a plain one."""

from dataclasses import replace
from typing import Any

import pytest
import yaml
from tests.golden.case import HERE
from tests.golden.test_manifests import NOTE, shown
from tests.unit.reconcile.paired import LOOKING, PAIRED, Paired, hub

from speculative_operator.domain.jobs import Purpose
from speculative_operator.domain.spec import AccessMode, Cache, ModelSource, Scheme, Weights
from speculative_operator.reconcile.pair.jobs import fetching, inspection
from speculative_operator.reconcile.snapshot.records import wanted_of
from speculative_operator.render.jobs import cache_claim, job

EVERYTHING = Weights(
    secret_name="sources",
    cache=Cache("models", "500Gi", "fast", AccessMode.READ_WRITE_ONCE, collect=True),
    hub_endpoint="https://hub.example.com",
    s3_endpoint="http://minio.storage.svc:9000",
    proxy="http://proxy.example.com:3128",
    no_proxy=(".svc", "10.0.0.0/8"),
    ca_config_map="trusted",
    env=({"name": "HF_HUB_DOWNLOAD_TIMEOUT", "value": "60"}, {"name": "HF_ENDPOINT", "value": "https://mine"}),
)
CLAIMED = replace(PAIRED, verifier=replace(PAIRED.verifier, source=ModelSource(Scheme.PVC, "theirs/qwen3-8b")))


def make_jobs() -> dict[str, dict[str, Any]]:
    plain, whole = Paired(), Paired(spec=replace(PAIRED, weights=EVERYTHING))
    whole.claims = {"models"}
    whole.capabilities = replace(LOOKING, assigns_uids=False)
    claimed = Paired(spec=CLAIMED)
    facts = (whole.facts(hub("Qwen/Qwen3-8B").location), whole.facts("RedHatAI/Qwen3-8B-speculator.eagle3"))
    fetch = fetching(whole.snapshot(), facts, tuple(one.pin.key for one in facts), 1_700_000_000.0)
    assert fetch is not None
    assert whole.spec.weights.cache is not None
    return {
        "inspect": job(inspection(plain.snapshot(), wanted_of(plain.spec))),
        "inspect-claim": job(inspection(claimed.snapshot(), wanted_of(claimed.spec))),
        "inspect-everything": job(inspection(whole.snapshot(), wanted_of(whole.spec))),
        "fetch-everything": job(fetch),
        "claim": cache_claim(whole.spec, whole.spec.weights.cache),
    }


@pytest.mark.parametrize("name", ["inspect", "inspect-claim", "inspect-everything", "fetch-everything", "claim"])
def test_jobs_are_as_expected(name: str, regenerate: bool) -> None:
    text = NOTE + yaml.safe_dump(shown(make_jobs()[name]), sort_keys=False, width=110)
    expected = HERE / "jobs" / f"{name}.yaml"
    if regenerate:
        expected.write_text(text)
    assert expected.exists(), f"no expected file; run: {NOTE[2:]}"
    assert text == expected.read_text(), f"manifests changed; if that is wanted, run: {NOTE[2:]}"


def test_every_expected_file_is_looked_at() -> None:
    assert {path.stem for path in (HERE / "jobs").glob("*.yaml")} == set(make_jobs())


def test_jobs_pass_the_restricted_profile() -> None:
    """Pod Security Standards, restricted: https://kubernetes.io/docs/concepts/security/pod-security-standards/"""
    for manifest in make_jobs().values():
        if manifest["kind"] != "Job":
            continue
        pod = manifest["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert pod["automountServiceAccountToken"] is False
        allowed = {"configMap", "emptyDir", "persistentVolumeClaim", "secret"}
        assert all(set(volume) - {"name"} <= allowed for volume in pod["volumes"])


def test_pods_of_jobs_are_no_serving_pods() -> None:
    """Deployment, Service, NetworkPolicy and PodDisruptionBudget select by these labels."""
    from speculative_operator.domain import names

    for manifest in make_jobs().values():
        if manifest["kind"] == "Job":
            labels = manifest["spec"]["template"]["metadata"]["labels"]
            assert not names.selector("demo").items() <= labels.items()
            assert labels[names.LABEL_JOB] in set(Purpose)
