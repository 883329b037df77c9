"""`make bench`: prints what it measures as it goes; the last line is one JSON object (build/bench/bench.json)."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from bench.fleet import Fleet, rss_mib
from bench.pure import decide_ms, renders_per_second, ticks_per_second
from devcluster.cluster import Cluster
from devcluster.options import ClusterOptions

OUT = Path(__file__).resolve().parents[2] / "build" / "bench"
COUNTS = (1, 100, 500)
REST_SECONDS = 60.0
WRITES = {"create", "update", "patch", "delete"}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def pure() -> dict[str, Any]:
    found: dict[str, Any] = {"ticks_per_second": ticks_per_second(), "renders_per_second": renders_per_second()}
    found["decide_ms"] = decide_ms()
    say(f"pure: {found}")
    return found


def fleet() -> dict[str, Any]:
    """Figures that need an API server."""
    options = ClusterOptions(name="bench", node=False, controllers=False, prometheus=False)
    with Cluster.start(options, say) as cluster:
        bench = Fleet(cluster, OUT)
        bench.prepare()
        with bench.operator() as pid:
            time.sleep(8.0)  # informers listed, lease held
            idle = rss_mib(pid)
            began = time.time()
            children = {}
            for count in COUNTS:
                children[str(count)] = bench.apply_to_children(f"n{count}", count)
                say(f"{count} objects: {children[str(count)]}")
            total = sum(COUNTS)
            bench.wait_ready(total)
            time.sleep(15.0)
            calls = len(bench.audited(began, time.time())) / total
            loaded = rss_mib(pid)
            say(f"{total} objects ready; at rest for {REST_SECONDS:.0f} s")
            began = time.time()
            time.sleep(REST_SECONDS)
            writes = [event for event in bench.audited(began, time.time()) if event["verb"] in WRITES]
    return {
        "apply_to_children_seconds": children,
        "rss_mib": {"idle": idle, "per_1000_objects": round(1000 * (loaded - idle) / total, 1)},
        "api_calls_per_object": round(calls, 1),
        "writes_at_rest_per_minute": round(len(writes) * 60 / REST_SECONDS, 1),
    }


def main() -> int:
    OUT.mkdir(parents=True, exist_ok=True)
    found = pure() | fleet()
    (OUT / "bench.json").write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
