"""The decision surface has the shape that the economics of drafting give it."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.plant.scrapes import KNOBS, Pod, policy

from figures.surface import ACCEPTANCE, first_accepted, surface
from speculative_lab.plant.session import Session
from speculative_operator.domain.observation import PodWindow
from speculative_operator.domain.table import Actuator, KnobSpace
from speculative_operator.engines.vllm.adapter import ENGINE
from speculative_operator.tuner.outlook import outlook


def test_more_acceptance_never_asks_for_fewer_drafts() -> None:
    found = surface(policy())
    assert found.ks.shape == found.gain_percent.shape == (len(ACCEPTANCE), len(found.concurrency))
    assert set(found.ks.ravel().tolist()) <= set(KNOBS.ks)
    assert (np.diff(found.ks, axis=0) >= 0).all()
    assert (np.diff(found.gain_percent, axis=0) >= -1e-9).all()


def test_corners() -> None:
    """Nothing accepted: nothing drafted. Everything accepted, one request: the largest K."""
    found = surface(policy(), acceptance=[0.001, 0.999])
    assert (found.ks[0] == 0).all()
    assert found.ks[1, 0] == max(KNOBS.ks)
    assert found.gain_percent[1, 0] > 50


def test_at_the_believed_acceptance_it_is_the_outlook() -> None:
    wanted = policy()
    believed = surface(wanted).believed
    view = outlook(wanted)
    expected = np.array(view.ks)[np.argmax(view.speed, axis=1)]
    assert surface(wanted, acceptance=[believed]).ks[0].tolist() == expected.tolist()
    assert believed == pytest.approx(view.drafts.length[1] - 1)


def test_evidence_moves_it() -> None:
    """Steps at K = 3 that take four times what the prior says leave less room for drafts."""
    session, pod = Session(ENGINE, policy()), Pod(requests=30, steps=20)
    for index in range(30):
        session.feed(1e9 + 5 * index, {"a": pod.run(5).text()})
    seen = surface(policy(), session.memory)
    assert seen.believed == pytest.approx(0.7, abs=0.05)
    assert (seen.ks != surface(policy()).ks).any()


def test_without_a_drafter_it_is_flat() -> None:
    found = surface(policy(knobs=KnobSpace(Actuator.NONE, (0,), 8)))
    assert (found.ks == 0).all()


def test_where_a_window_lies() -> None:
    window = PodWindow(0, 5, 1, 1, 1, 1, 1, 1, 1, 0, drafts=10, draft_tokens=30, accepted_per_position=(7, 4, 1))
    assert first_accepted(window) == 0.7
    assert first_accepted(PodWindow(0, 5, 1, 1, 1, 1, 1, 1, 1, 0)) is None
