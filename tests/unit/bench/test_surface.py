"""The decision surface has the shape that the economics of drafting give it."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.plant.scrapes import KNOBS, policy

from figures.surface import ACCEPTANCE, surface
from speculative_operator.tuner.outlook import outlook


def test_more_acceptance_never_asks_for_fewer_drafts() -> None:
    found = surface(policy())
    assert found.ks.shape == (len(ACCEPTANCE), len(found.concurrency))
    assert set(found.ks.ravel().tolist()) <= set(KNOBS.ks)
    assert (np.diff(found.ks, axis=0) >= 0).all()


def test_corners() -> None:
    """Nothing accepted: nothing drafted. Everything accepted, one request: the largest K."""
    found = surface(policy(), acceptance=[0.001, 0.999])
    assert (found.ks[0] == 0).all()
    assert found.ks[1, 0] == max(KNOBS.ks)


def test_at_the_believed_acceptance_it_is_the_outlook() -> None:
    wanted = policy()
    believed = surface(wanted).believed
    view = outlook(wanted)
    expected = np.array(view.ks)[np.argmax(view.speed, axis=1)]
    assert surface(wanted, acceptance=[believed]).ks[0].tolist() == expected.tolist()
    assert believed == pytest.approx(view.drafts.length[1] - 1)
