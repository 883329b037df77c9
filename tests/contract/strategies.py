"""Random objects, right and wrong, for both forms of the constraints at once: what the accepted and the refused objects
change, several at a time, so that rules meet each other."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from tests.contract.objects import GOOD, specdep
from tests.contract.refused import BAD

RIGHT = st.sampled_from(sorted(GOOD)).map(GOOD.__getitem__)
WRONG = st.sampled_from(BAD).map(lambda bad: bad.changes)


@st.composite
def objects(draw: st.DrawFn) -> dict[str, Any]:
    """A SpeculativeDeployment with up to four of the changes, more right ones than wrong ones."""
    changes: dict[str, Any] = {}
    for one in draw(st.lists(st.one_of(RIGHT, RIGHT, RIGHT, WRONG), min_size=1, max_size=4)):
        changes |= one
    return specdep(changes)
