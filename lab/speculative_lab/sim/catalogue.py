"""The scenarios by name. Called by bench and command line; what they are built from is in `scenarios`."""

from __future__ import annotations

from speculative_lab.sim.profiles import NEVER
from speculative_lab.sim.scenarios import (
    Scenario,
    bursts,
    day,
    day_of_arrivals,
    growing_context,
    levels,
    lumps,
    mixes,
    only,
    replay,
)  # fmt: skip
from speculative_lab.sim.workload import Lengths
from speculative_operator.domain.spec import Goal, Objective
from speculative_operator.domain.spec import Workload as Kind

_LONG = (Lengths(4000, 0.5, 16_000), Lengths(130, 0.5, 1000))
_LONGER = (Lengths(8000, 0.4, 24_000), Lengths(80, 0.4, 600))

ALL: tuple[Scenario, ...] = (
    Scenario("diurnal", "1 to 256 requests in flight and back, EAGLE-3 head", "eagle_h100", 30, day(1, 256)),
    Scenario("diurnal_draft", "1 to 128 and back, draft model with KV of its own", "draft_h100", 24, day(1, 128)),
    Scenario("diurnal_block", "1 to 128 and back, block drafter", "block_h200", 24, day(1, 128)),
    Scenario(
        "burst", "arrivals four times as dense for 60 s every 5 minutes", "draft_h100", 25,
        bursts(7.0, 4.0, 300.0, 60.0, (Lengths(300, 0.8, 4000), Lengths(300, 0.6, 4000))),
    ),
    Scenario("mix_shift", "code, then summaries", "eagle_h100", 24, mixes(112, 0.5, Kind.CODE, Kind.SUMMARIZATION)),
    Scenario(
        "degradation", "half of the runs of accepted drafts cease", "draft_a40", 24,
        levels((0.0, 96), drift=((0.0, 1.0), (0.35, 0.5))),
    ),
    Scenario(
        "dead_drafter", "drafts cease to be accepted; the drafter holds time and KV", "draft_h100", 40,
        levels((0.0, 110), drift=((0.0, 1.0), (0.2, 0.02))), moving=False, dead_since=0.2,
    ),
    Scenario(
        "useless_lookup", "n-gram drafts that are never accepted: unloading would return nothing", "ngram_h100", 24,
        levels((0.0, 32), mix=NEVER), moving=False,
    ),
    Scenario("accelerator_a40", "1 to 64 and back on A40", "draft_a40", 24, day(1, 64)),
    Scenario("accelerator_a100", "1 to 192 and back on A100", "eagle_a100", 24, day(1, 192)),
    Scenario("accelerator_h100", "2 to 30 arrivals a second and back, H100", "eagle_h100", 24, day_of_arrivals(2, 30)),
    Scenario("accelerator_b300", "1 to 192 and back on B300, 70B", "eagle_b300", 24, day(1, 192)),
    Scenario(
        "context", "prompts of 1k to 32k tokens", "eagle_h100", 30,
        growing_context((0.0, 64, 1000), (0.2, 48, 4000), (0.4, 24, 8000), (0.6, 16, 16_000), (0.8, 8, 32_000)),
    ),
    Scenario("moe", "1 to 256 and back, mixture of experts", "moe_h200", 24, day(1, 256)),
    Scenario(
        "capture_cliff", "up to 256 code requests where a step beyond 1024 tokens costs 80 ms more", "moe_b300", 24,
        levels((0.0, 64), (0.2, 144), (0.4, 240), (0.6, 120), (0.8, 200), mix=only(Kind.CODE)),
    ),
    Scenario(
        "mispriced_k", "steps of K = 3 take 35 % longer than any model says", "eagle_h100", 24,
        levels((0.0, 16), (0.35, 64), (0.7, 32)), plant={"k_factor": (1.0, 1.0, 1.0, 1.35)},
    ),
    Scenario(
        "counter_reset", "two replicas, each crashes once", "eagle_h100", 24, levels((0.0, 64), (0.5, 120)),
        replicas=2, restarts=((0.3, 0), (0.65, 1)),
    ),
    Scenario(
        "idle", "busy for 3 minutes, then none for 3", "draft_h100", 24,
        bursts(0.001, 9000.0, 360.0, 180.0, (Lengths(300, 0.8, 4000), Lengths(300, 0.6, 4000))),
    ),
    Scenario("ngram_bursts", "edits of code and chat in turn, looked-up drafts", "ngram_h100", 24,
             mixes(32, 0.125, Kind.CODE, Kind.CHAT)),
    Scenario(
        "slow_dynamic", "K = 0 with the drafter loaded takes 14 % longer (broken dynamic path)", "eagle_h100", 24,
        levels((0.0, 32), (0.3, 200), (0.7, 64), mix=only(Kind.CREATIVE)), plant={"zero_factor": 1.14},
    ),
    Scenario("creative", "creative writing, 8 to 224 and back, A40", "draft_a40", 24, day(8, 224, only(Kind.CREATIVE))),
    Scenario("azure_conv", "Azure 2023 conversations at twice their pace", "eagle_h100", 28, replay(2.0),
             trace="azure_llm_2023_conv"),
    Scenario("azure_code", "Azure 2023 code completions: bursts of prompts", "draft_h100", 30, replay(),
             trace="azure_llm_2023_code"),
    Scenario("stationary", "40 requests in flight, nothing changes", "eagle_h100", 45, levels((0.0, 40)), moving=False),
    Scenario(
        "replicas_mixed", "three replicas in turn, long and short requests", "eagle_h100", 20,
        day_of_arrivals(6, 80, (Lengths(600, 1.0, 8000), Lengths(300, 1.2, 4000))), replicas=3, routing="round-robin",
    ),
    Scenario(
        "load_step", "4, 128, 16, 224, 8 requests in flight", "eagle_h100", 24,
        levels((0.0, 4), (0.2, 128), (0.4, 16), (0.6, 224), (0.8, 8)), load_steps=(0.2, 0.4, 0.6, 0.8),
    ),
    Scenario(
        "load_step_draft", "8, 96, 24 requests in flight, draft model", "draft_h100", 20,
        levels((0.0, 8), (0.35, 96), (0.7, 24)), load_steps=(0.35, 0.7),
    ),
    Scenario(
        "neighbour", "another tenant makes every step 30 % longer, for 20 s at a time, a third of the time",
        "eagle_h100", 24, levels((0.0, 24), (0.35, 96), (0.7, 48)),
        plant={"neighbour_factor": 1.3, "neighbour_share": 0.33},
    ),
    Scenario(
        "crowded", "the same with steps twice as long, in spells of 7 s, two fifths of the time", "draft_h100",
        24, levels((0.0, 16), (0.5, 64)),
        plant={"neighbour_factor": 2.0, "neighbour_share": 0.4, "neighbour_seconds": 7.0},
    ),
    Scenario(
        "prompt_heavy", "3000 prompt tokens for 150 of output", "draft_h100", 24,
        day_of_arrivals(1.0, 7.0, (Lengths(3000, 0.4, 12_000), Lengths(150, 0.5, 2000))),
    ),
    Scenario(
        "lumps", "prompts 30 times as long as answers, in lumps of 5, goal Latency", "eagle_h100", 24,
        lumps(4.0, 5.0, _LONG), objective=Objective(Goal.LATENCY),
    ),
    Scenario(
        "lumps_goodput", "the same with a draft model and goal Goodput", "draft_h100", 24, lumps(3.0, 5.0, _LONG),
    ),
    Scenario(
        "lumps_target", "the same with a target that can be met", "eagle_h100", 24, lumps(4.0, 5.0, _LONG),
        objective=Objective(Goal.LATENCY, tpot_p99_seconds=0.065),
    ),
    Scenario(
        "lumps_beyond", "prompts 100 times as long as answers, a target that no K can meet", "eagle_h100", 24,
        lumps(3.0, 5.0, _LONGER), objective=Objective(Goal.LATENCY, tpot_p99_seconds=0.002, ttft_p99_seconds=0.05),
    ),
    Scenario(
        "lumps_beyond_draft", "the same with a draft model, 50 times as long", "draft_h100", 24,
        lumps(2.5, 4.0, (Lengths(5000, 0.5, 16_000), Lengths(100, 0.5, 800))),
        objective=Objective(Goal.THROUGHPUT, tpot_p99_seconds=0.002),
    ),
)  # fmt: skip

BY_NAME = {scenario.name: scenario for scenario in ALL}
"""No two share a name."""
