"""What the scheduler counts for a pod."""

from decimal import Decimal
from typing import Any

import pytest

from speculative_operator.reconcile.snapshot.requests import request_of

Json = dict[str, Any]


def container(**amounts: Any) -> Json:
    return {"name": "engine", "resources": {"limits": amounts}}


def pod(*containers: Json, **spec: Any) -> Json:
    return {"spec": {"containers": list(containers), **spec}}


def test_what_a_pod_asks_for_is_counted_as_the_scheduler_does() -> None:
    found = request_of(
        pod(
            container(cpu=2), container(cpu="500m"),
            initContainers=[container(cpu=3), {**container(cpu=1), "restartPolicy": "Always"}],
            overhead={"cpu": "250m"},
        )
    )  # fmt: skip
    assert found == {"cpu": Decimal("4.25")}, "the first init container beside the one that stays, and the overhead"
    assert request_of(pod({"resources": {"limits": {"cpu": 8}, "requests": {"cpu": 1}}})) == {"cpu": Decimal(1)}


@pytest.mark.parametrize("amount", ["many", -1, None, [], "1e999999"])
def test_what_is_no_amount_counts_for_nothing_known(amount: Any) -> None:
    assert request_of(pod(container(cpu=1), container(cpu=amount))) is None
