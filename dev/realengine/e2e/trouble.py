"""A table that is wrong changes nothing: the engine keeps the last good one, and serves."""

from __future__ import annotations

import json

from realengine.e2e.retunes import schedule
from realengine.e2e.stage import until
from realengine.e2e.steps import NAME, Play, Traffic, next_version, set_schedule, wait_until_active, window

K = 2
BAD = {
    "no JSON": '{"version": 900, "rows": [[1, 16,',
    "a K that was not prepared": json.dumps({"version": 901, "rows": [[1, 16, 9]]}),
    "a gap": json.dumps({"version": 902, "rows": [[1, 4, 1], [6, 16, 4]]}),
    "a K that is no whole number": json.dumps({"version": 903, "rows": [[1, 16, 1.5]]}),
    "nothing": "",
}


async def bad_tables(play: Play) -> None:
    """Write each by hand while the operator is paused, which would put it right within a second; then let it."""
    stage, report = play.stage, play.report
    pod = await stage.pod(NAME)
    name = pod["metadata"]["name"]
    await set_schedule(stage, schedule(K))
    version = await next_version(stage, schedule(K))
    async with Traffic(await play.client(), 3):
        await wait_until_active(stage, name, version)
        await stage.pause(NAME)
        for what, text in BAD.items():
            before = (await stage.log(name)).count("stays in force")
            await stage.write_table(NAME, text)
            await stage.poke(name, f"by-hand-{what.replace(' ', '-')}")

            async def warned(before: int = before) -> bool:
                return (await stage.log(name)).count("stays in force") > before

            await until(f"a warning about {what}", warned, 15.0, every=0.2)
            seen = await window(stage, pod, 0.8)
            good = seen.drafts > 0 and seen.k == K
            report.check(f"a table with {what} changes nothing", good, f"K {seen.k:.3f} as before, and one warning")
        await stage.resume(NAME)
        restored = await next_version(stage, schedule(K))
        report.check("the operator puts its own table back", restored >= version, f"version {restored}")
