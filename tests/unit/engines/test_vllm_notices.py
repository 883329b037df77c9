"""What users are told of specs that are served: where live changes of K were not tested, or K changes by rollouts."""

from __future__ import annotations

import pytest
from tests.unit.engines.building import spec
from tests.unit.engines.test_matrix_vllm import make_spec

from speculative_operator.domain.platform import Vendor
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, Method, Mode
from speculative_operator.engines.registry import engine_for


def notices_of(subject: DeploymentSpec) -> list[tuple[str, str]]:
    return [(notice.reason, notice.message) for notice in engine_for(subject).notices(subject)]


@pytest.mark.parametrize("release", ["0.34.0", "1.0.0"])
def test_releases_on_which_live_changes_are_not_proven(release: str) -> None:
    ((reason, message),) = notices_of(spec(version=release))
    assert reason is Reason.LIVE_UNPROVEN
    assert release in message
    assert "the plug-in checks itself" in message


@pytest.mark.parametrize("vendor", [Vendor.GAUDI, Vendor.TPU])
def test_plug_ins_that_keep_one_k(vendor: Vendor) -> None:
    ((reason, message),) = notices_of(make_spec(Method.EAGLE3, version=(0, 26, 0), vendor=vendor))
    assert reason is Reason.LIVE_UNPROVEN
    assert vendor in message
    assert "changes by rollouts" in message


@pytest.mark.parametrize(
    "subject",
    [
        spec(version="0.32.4"),
        spec(version="0.31.0", mode=Mode.STATIC, num_speculative_tokens=3),
        spec(version="0.31.0", mode=Mode.DISABLED),
        spec(None, version="0.31.0"),
        spec(version="0.23.0"),
        spec(Method.SUFFIX, version="0.33.0"),
        make_spec(Method.EAGLE3, vendor=Vendor.AMD),
        make_spec(Method.EAGLE3, vendor=Vendor.CPU),
    ],
    ids=lambda subject: f"{subject.engine.version}-{subject.accelerator.vendor}-{subject.speculation.mode}",
)
def test_nothing_is_told_where_nothing_is_missed(subject: DeploymentSpec) -> None:
    assert notices_of(subject) == []
