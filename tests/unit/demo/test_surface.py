"""The demo's decision surface: what is drawn for an object and the windows of its replay."""

from __future__ import annotations

from dataclasses import replace
from math import log2

import pytest

from demo import surface
from demo.scene import variants
from demo.watch import Sight
from speculative_operator.domain.observation import PodWindow
from speculative_operator.tuner import Memory, initial_table
from speculative_operator.tuner.persistence import to_status

EXAMPLE = variants()[0].manifest
WINDOW = PodWindow(
    start=0, end=5, steps=500, decode_request_steps=4000, step_seconds=40, first_tokens=0, generated_tokens=7000,
    prompt_tokens=0, running=8, waiting=0, drafts=4000, draft_tokens=12_000, accepted_tokens=3000,
    accepted_per_position=(2400.0, 500.0, 100.0),
)  # fmt: skip


def test_a_window_lies_at_its_load_and_first_acceptance() -> None:
    assert surface.points([Sight(5.0, WINDOW)]) == [(8.0, 0.6, 3.0, 5.0)]


@pytest.mark.parametrize(
    "window",
    [
        replace(WINDOW, drafts=None, draft_tokens=None, accepted_tokens=None, accepted_per_position=()),
        replace(WINDOW, drafts=0.0, draft_tokens=0.0, accepted_tokens=0.0, accepted_per_position=(0.0,)),
        replace(WINDOW, steps=0.0, decode_request_steps=0.0),
    ],
)
def test_a_window_without_drafts_has_no_place(window: PodWindow) -> None:
    assert surface.points([Sight(5.0, window)]) == []


def test_the_surface_is_of_the_objects_own_knobs_and_memory() -> None:
    asked = surface.policy(EXAMPLE)
    assert (asked.knobs.max_batch, max(asked.knobs.ks)) == (256, 5)
    prior = surface.learned(EXAMPLE, {})
    assert prior.concurrency[-1] == 256
    assert set(prior.ks.ravel().tolist()) <= set(asked.knobs.ks)
    assert prior.ks[-1, 0] > prior.ks[0, 0], "more drafts where more are accepted"
    stored = to_status(Memory.fresh(initial_table(asked), 0.0))
    again = surface.learned(EXAMPLE, {"memory": stored})
    assert again.believed == pytest.approx(prior.believed)


def test_fields_and_circles_share_one_scale() -> None:
    known = surface.learned(EXAMPLE, {})
    field, circles = surface.plot(known, [Sight(5.0, WINDOW)]).data
    assert (field.zmin, field.zmax) == (circles.marker.cmin, circles.marker.cmax)
    assert field.colorscale == circles.marker.colorscale
    assert (list(circles.x), list(circles.y), list(circles.marker.color)) == ([log2(8)], [0.6], [3.0])
    assert (len(field.x), len(field.y)) == (len(known.concurrency), len(known.acceptance))
