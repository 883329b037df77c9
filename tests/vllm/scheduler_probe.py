"""vLLM's own scheduler classes with the payload mixed in, driven without a model. Run by the engine's interpreter.

Made-up samples stand for the model: what counts is which figures vLLM takes from them and which the payload does.
Prints one JSON object: for `sync` and `async` the totals of both.
"""
# mypy: disable-error-code="import-not-found,unused-ignore,import-untyped"

from __future__ import annotations

import json
import os
import random
import sys
from collections import deque
from typing import Any

import speculative_scheduler
import torch
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
)
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from vllm import SamplingParams

BLOCK, BLOCKS, MAX_K, STEPS = 16, 4000, 4, 400


def make(models: str, asynchronous: bool) -> Any:
    """A scheduler as the engine core makes it, with room for everything."""
    arguments = EngineArgs(
        model=f"{models}/target", max_model_len=1024, max_num_seqs=16, max_num_batched_tokens=64, enforce_eager=True,
        enable_chunked_prefill=True, enable_prefix_caching=False,
        speculative_config={
            "method": "draft_model", "model": f"{models}/draft", "num_speculative_tokens": MAX_K,
            "num_speculative_tokens_per_batch_size": [[1, 13, 4], [14, 14, 2], [15, 15, 1], [16, 16, 0]],
        },
    )  # fmt: skip
    config = arguments.create_engine_config()
    # a CPU turns it off; the class is what is looked at here
    config.scheduler_config.async_scheduling = asynchronous
    config.cache_config.num_gpu_blocks = BLOCKS
    kind = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
    groups = [KVCacheGroupSpec(["layer"], kind)]
    return speculative_scheduler.scheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(num_blocks=BLOCKS, kv_cache_tensors=[], kv_cache_groups=groups),
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK,
        log_stats=True,
    )


class Engine:
    """The engine core's loop around a scheduler, with made-up samples."""

    def __init__(self, scheduler: Any, depth: int) -> None:
        self.scheduler, self.depth = scheduler, depth
        self.random = random.Random(7)
        self.queue: deque[Any] = deque()
        self.totals = {"steps": 0, "tokens": 0, "requests": 0}
        self.drafted, self.accepted = [0] * MAX_K, [0] * MAX_K
        self.made = 0
        self.keys: dict[int, int] = {}
        """Identity of a plan -> requests that decode in it, as the payload counted them."""
        self.wrong_keys = self.right_keys = 0

    def add(self) -> None:
        self.made += 1
        parameters = SamplingParams(max_tokens=self.random.randint(1, 40), ignore_eos=True)
        prompt = [self.random.randint(5, 900) for _ in range(self.random.randint(1, 150))]
        self.scheduler.add_request(
            Request(request_id=str(self.made), prompt_token_ids=prompt, sampling_params=parameters, pooling_params=None)
        )

    def run(self) -> None:
        for step in range(STEPS):
            if step < STEPS - 120 and self.random.random() < 0.35:
                self.add()
            if step % 50 == 49:
                self.abort()
            if self.scheduler.has_requests():
                plan = self.scheduler.schedule()
                self.keys[id(plan)] = self.scheduler._speculative_decoding
                self.queue.append(plan)
            if len(self.queue) >= self.depth or (self.queue and not self.scheduler.has_requests()):
                self.finish(self.queue.popleft())
        while self.queue:
            self.finish(self.queue.popleft())

    def abort(self) -> None:
        from vllm.v1.request import RequestStatus

        running = sorted(self.scheduler.requests)
        if running:
            self.scheduler.finish_requests(running[0], RequestStatus.FINISHED_ABORTED)

    def finish(self, plan: Any) -> None:
        names = list(plan.num_scheduled_tokens)
        sampled = [self.sample(plan, name) for name in names]
        key = self.keys.pop(id(plan))
        if names and all(name in self.scheduler.requests for name in names):
            self.wrong_keys += key != sum(map(bool, sampled))
            self.right_keys += key == sum(map(bool, sampled))
        output = ModelRunnerOutput(
            req_ids=names, req_id_to_index={name: place for place, name in enumerate(names)}, sampled_token_ids=sampled
        )
        given = self.scheduler.update_from_output(plan, output)
        emitted = [entry.new_token_ids for client in given.values() for entry in client.outputs]
        if any(emitted):
            self.totals["steps"] += 1
            self.totals["requests"] += len(names)
        self.totals["tokens"] += sum(map(len, emitted))
        for client in given.values():
            stats = client.scheduler_stats and client.scheduler_stats.spec_decoding_stats
            if stats:
                self.drafted = [a + b for a, b in zip(self.drafted, stats.num_draft_tokens_per_pos, strict=True)]
                self.accepted = [a + b for a, b in zip(self.accepted, stats.num_accepted_tokens_per_pos, strict=True)]
        if self.depth == 1 and names:
            k = plan.num_spec_tokens_to_schedule
            self.scheduler.update_draft_token_ids(DraftTokenIds(names, [[9] * k for _ in names]))

    def sample(self, plan: Any, name: str) -> list[int]:
        """As a model would: nothing while the prompt is incomplete."""
        request = self.scheduler.requests.get(name)
        drafts = len(plan.scheduled_spec_decode_tokens.get(name, ()))
        if request is None or (
            request.num_output_tokens == 0 and self.computed(plan, name) < request.num_prompt_tokens
        ):
            return []
        return [9] * (self.random.randint(0, drafts) + 1)

    def computed(self, plan: Any, name: str) -> int:
        """Prompt tokens computed with this step."""
        cached = plan.scheduled_cached_reqs
        before = {entry.req_id: entry.num_computed_tokens for entry in plan.scheduled_new_reqs}
        before |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        return int(before[name]) + int(plan.num_scheduled_tokens[name])


def told(scheduler: Any) -> dict[str, Any]:
    meter = scheduler._speculative_state.meter
    cells = meter.cells.values()
    sums = [[sum(values) for values in zip(*side, strict=True)] for side in zip(*meter.positions.values(), strict=True)]
    return {
        "steps": sum(cell[0] for cell in cells), "requests": sum(cell[2] for cell in cells),
        "tokens": sum(cell[3] for cell in cells), "drafted": sums[0], "accepted": sums[1],
        "seconds": sum(cell[1] for cell in cells), "ks": sorted({k for k, _ in meter.cells}),
        "prefill": sum(cell[4] for cell in cells), "scheduler": scheduler._speculative_state.scheduler,
    }  # fmt: skip


def main() -> None:
    found = {}
    for name, depth in (("sync", 1), ("async", 2)):
        scheduler = make(os.environ["SPECULATIVE_TINY_MODELS"], depth == 2)
        engine = Engine(scheduler, depth)
        engine.run()
        vllm = {**engine.totals, "drafted": engine.drafted, "accepted": engine.accepted}
        found[name] = {
            "vllm": vllm,
            "payload": told(scheduler),
            "keys": [engine.right_keys, engine.wrong_keys],
            "comparisons": [
                [*key, *figures] for key, figures in scheduler._speculative_state.blocks.comparisons.items()
            ],
            "off": dict(scheduler._speculative_state.ended),
            "classes": [c.__name__ for c in type(scheduler).__mro__],
        }
    json.dump(found, sys.stdout)


main()
