"""Anybody in the cluster could keep the operator's loop, which holds the Lease, busy with rendering its own metrics."""

from __future__ import annotations

import aiohttp

from speculative_operator.shell.telemetry import METRICS_SECONDS, Endpoints, Telemetry


class Counting(Telemetry):
    """Counts how often its text was made."""

    made = 0

    def render(self) -> bytes:
        self.made += 1
        return super().render()


async def test_metrics_are_never_made_anew_for_each_request() -> None:
    telemetry, at = Counting(), [100.0]
    endpoints = Endpoints("127.0.0.1", 0, telemetry, lambda: "", lambda: "", lambda: at[0])
    await endpoints.start()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{endpoints.port}") as client:

            async def asked() -> bytes:
                async with client.get("/metrics") as answer:
                    assert answer.status == 200
                    return await answer.read()

            texts = {await asked() for _ in range(50)}
            assert telemetry.made == len(texts) == 1
            at[0] += METRICS_SECONDS
            assert b"speculative_operator_build_info" in await asked()
            assert telemetry.made == 2
    finally:
        await endpoints.stop()
