"""The replay keeps the trace's requests and takes the profile's rate."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from demo.arrivals import TRACE, Profile, warp
from demo.load import prompt, read_records, replay
from speculative_lab.plant import traces
from speculative_lab.plant.traces import Trace


def even(gaps: list[float]) -> Trace:
    """Requests of ten tokens in and ten out, so many seconds after one another."""
    ten = np.full(len(gaps), 10)
    return Trace(np.cumsum(gaps), ten, ten)


def test_the_load_climbs_and_falls_with_the_traces_own_requests() -> None:
    trace = traces.read(TRACE.read_text().splitlines(), "azure")
    plan = warp(trace, Profile.climb_and_fall(150.0, 1.0, 20.0), max_context=4096)
    lengths = zip(trace.prompt.tolist(), trace.output.tolist(), strict=True)
    fitting = [row for row in lengths if sum(row) <= 4096]
    assert [(one["prompt"], one["output"]) for one in plan] == fitting[: len(plan)]
    low = sum(one["at"] < 30 for one in plan) / 30
    peak = sum(72 <= one["at"] < 90 for one in plan) / 18
    after = sum(one["at"] >= 120 for one in plan) / 30
    assert 0.4 < low < 2.0
    assert 15 < peak < 25
    assert 0.4 < after < 2.0


@given(
    gaps=st.lists(st.floats(0.001, 5.0), min_size=300, max_size=400),
    rate=st.floats(0.5, 4.0),
)
def test_arrivals_are_ordered_and_within_the_profile(gaps: list[float], rate: float) -> None:
    plan = warp(even(gaps), Profile(((0.0, rate), (50.0, rate))), max_context=100)
    moments = [one["at"] for one in plan]
    assert moments == sorted(moments)
    assert all(0 <= moment <= 50 for moment in moments)


def test_a_trace_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="the profile asks for"):
        warp(even([1.0] * 200), Profile(((0.0, 50.0), (100.0, 50.0))), max_context=100)


def test_prompts_differ_and_have_their_length() -> None:
    assert len(prompt(100, 1)) == 400
    assert prompt(100, 1) != prompt(100, 2)


async def test_the_load_generator_reports_every_request(tmp_path: Path) -> None:
    """Against a server that answers, streams, refuses and cuts short."""

    async def complete(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if body["max_tokens"] == 3:
            return web.Response(status=503, text="busy")
        tokens = body["max_tokens"] - (1 if body["max_tokens"] == 4 else 0)
        if not body.get("stream"):
            return web.json_response({"usage": {"completion_tokens": tokens}})
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'data: {"choices": [{"text": "a"}]}\n\n')
        await response.write(b'data: {"usage": {"completion_tokens": %d}}\n\ndata: [DONE]\n\n' % tokens)
        return response

    app = web.Application()
    app.router.add_post("/v1/completions", complete)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    out = tmp_path / "out.jsonl"
    arrivals = [{"number": n, "at": 0.0, "prompt": 5, "output": n + 1} for n in range(4)]
    plan = {
        "timeout": 5.0,
        "targets": [{"name": "one", "model": "m", "url": f"http://127.0.0.1:{port}"}],
        "arrivals": arrivals,
    }
    with out.open("w") as file:
        await asyncio.wait_for(replay(plan, file, stream_every=2, enough=lambda: False), 10)
    with (tmp_path / "short.jsonl").open("w") as file:
        said = iter((False, False, True))
        await asyncio.wait_for(replay(plan, file, stream_every=2, enough=lambda: next(said)), 10)
    await runner.cleanup()
    assert {record["number"] for record in read_records(tmp_path / "short.jsonl")} == {0, 1}
    records = {record["number"]: record for record in read_records(out)}
    assert [records[n]["failed"] for n in range(4)] == [False, False, True, True]
    assert records[0]["ttft"] is not None
    assert records[1]["ttft"] is None
    assert records[2]["error"] == "busy"
