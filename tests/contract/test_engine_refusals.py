"""Combinations that no engine supports, applied to a real API server: refused there, or by the first tick."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException
from tests.contract.refused_engines import COMBINATIONS, SERVER, WITHOUT, Combination
from tests.contract.server import Server
from tests.unit.engines.test_refused_combinations import hold, said_by_tick, said_of_drafts

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("case", COMBINATIONS, ids=lambda case: case.name)
def test_refused_before_a_pod_exists(server: Server, case: Combination) -> None:
    try:
        taken = server.create(case.body())
    except ApiException as error:
        assert case.by == SERVER, "the operator was to refuse it, so that the message could name the release"
        status: dict[str, Any] = json.loads(error.body or "")
        texts = [f"spec.{one['field'].removeprefix('spec.')}: {one['message']}" for one in status["details"]["causes"]]
        assert any(case.field in text and all(part in text for part in case.parts) for text in texts), texts
        return
    assert case.by != SERVER, "the API server was to refuse it"
    if case.by == WITHOUT:
        hold(case, *said_of_drafts(taken))
        return
    reason, (message,) = said_by_tick(taken)
    hold(case, reason, message)
