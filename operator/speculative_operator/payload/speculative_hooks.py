"""What of vLLM the payload rests on, and whether this release has it. The only list of names that vLLM may move.

Asked by `speculative_scheduler` and `speculative_worker` at their start, on every release: where something is missing
they stay inert and say what. So a new release works as long as it has what is listed here, without a list of releases.
"""

from __future__ import annotations

import importlib
import inspect
import pickle
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

PROVEN = tuple((0, minor) for minor in range(24, 34))
"""vLLM release lines (major, minor) on which the scheduler's part was run; the first is the oldest that has it all."""

Hook = tuple[str, str, str]
"""Module, class and its members; a method with the arguments that it must take, if it is called or replaced."""


def _hooks(text: str) -> tuple[Hook, ...]:
    """A line for each class: its module below `vllm`, its name, its members; indented lines go on."""
    lines = text.replace("\n  ", " ").strip().splitlines()
    return tuple((f"vllm.{module}", name, members) for module, name, members in (one.split(None, 2) for one in lines))


SCHEDULER = _hooks("""
v1.core.sched.scheduler Scheduler schedule _update_after_schedule(scheduler_output) dynamic_sd_lookup
  update_from_output(scheduler_output,model_runner_output) vllm_config requests num_spec_tokens
v1.core.sched.output SchedulerOutput make_empty num_scheduled_tokens total_num_scheduled_tokens scheduled_new_reqs
  scheduled_spec_decode_tokens scheduled_cached_reqs num_spec_tokens_to_schedule
v1.core.sched.output NewRequestData req_id num_computed_tokens
v1.core.sched.output CachedRequestData num_output_tokens
v1.request Request num_computed_tokens num_tokens num_output_placeholders
v1.engine EngineCoreOutput new_token_ids
v1.engine EngineCoreOutputs outputs scheduler_stats
v1.metrics.stats SchedulerStats spec_decoding_stats
v1.spec_decode.metrics SpecDecodingStats num_draft_tokens_per_pos num_accepted_tokens_per_pos
v1.outputs ModelRunnerOutput req_ids sampled_token_ids req_id_to_index
""")
"""Of the scheduler's part, on any runner."""
WORKER = _hooks("""
v1.worker.gpu.model_runner GPUModelRunner execute_model(scheduler_output) sample_tokens(grammar_output) speculator
  vllm_config model_config kv_cache_config req_states block_tables
v1.worker.gpu.async_utils AsyncOutput model_runner_output
v1.worker.gpu.input_batch InputBatch req_ids num_reqs num_reqs_after_padding idx_mapping idx_mapping_np
  num_scheduled_tokens num_tokens num_tokens_after_padding input_ids positions query_start_loc query_start_loc_np
  seq_lens seq_lens_cpu_upper_bound num_computed_tokens_np
v1.worker.gpu.states RequestState all_token_ids
v1.worker.gpu.block_table BlockTables gather_block_tables(idx_mapping,num_reqs_padded)
v1.worker.gpu.spec_decode.speculator BaseSpeculator propose(input_batch,dummy_run,num_speculative_tokens)
v1.worker.gpu.spec_decode.speculator DraftModelSpeculator draft_tokens num_speculative_steps max_num_tokens
  supports_mm_inputs _copy_request_inputs(num_reqs,idx_mapping,temperature,seeds)
v1.worker.gpu.spec_decode.standalone_ar.speculator StandaloneARSpeculator
  propose(input_batch,last_sampled,temperature,seeds,dummy_run,num_speculative_tokens)
  _prefill(input_batch,num_rejected,last_sampled,num_reqs,skip_attn,num_tokens_across_dp)
v1.worker.gpu.spec_decode.ngram.speculator NgramGPUSpeculator propose(input_batch,dummy_run) drafts
v1.core.sched.output SchedulerOutput finished_req_ids preempted_req_ids kv_cache_block_copies scheduled_new_reqs
  scheduled_cached_reqs
v1.core.sched.output NewRequestData req_id block_ids num_computed_tokens
v1.core.sched.output CachedRequestData req_ids new_block_ids
config.speculative SpeculativeConfig method draft_sample_method
config.vllm VllmConfig speculative_config parallel_config kv_transfer_config model_config
config.parallel ParallelConfig world_size_across_dp tensor_parallel_size pipeline_parallel_size data_parallel_size
  decode_context_parallel_size
config.model ModelConfig is_hybrid uses_mrope
distributed.parallel_state GroupCoordinator world_size cpu_group
v1.kv_cache_interface KVCacheConfig kv_cache_groups
v1.kv_cache_interface KVCacheGroupSpec kv_cache_spec
""")
"""Of the worker's part, on the V2 runner."""


def missing(hooks: Sequence[Hook]) -> str:
    """The first thing of `hooks` that this vLLM has not; empty where it has all. Never raises."""
    for module, name, members in hooks:
        try:
            found = getattr(importlib.import_module(module), name)
        except Exception as error:
            return f"this vLLM has no {module}.{name}: {error!r}"
        for member in members.split():
            if why := _why(found, member):
                return f"this vLLM's {module}.{name}{why}"
    return ""


def _why(owner: type, member: str) -> str:
    """Why `member` of a class is not what is used; empty where it is."""
    name, _, arguments = member.rstrip(")").partition("(")
    if not (hasattr(owner, name) or name in _fields(owner)):
        return f" has no {name}"
    with suppress(ValueError):  # what Python cannot tell of a method is no reason
        taken = inspect.signature(getattr(owner, name)).parameters if arguments else {}
        lacking = [one for one in arguments.split(",") if one and one not in taken]
        if lacking:
            return f".{name} takes no {lacking[0]}"
    return ""


def _fields(owner: type) -> set[str]:
    """Names that instances have: declared ones, and what the source of the class and its bases has on `self`."""
    found: set[str] = set()
    for one in owner.__mro__[:-1]:
        found.update(getattr(one, "__annotations__", {}), getattr(one, "__slots__", ()))
        with suppress(OSError, TypeError):
            found.update(re.findall(r"\bself\.(\w+)", inspect.getsource(one)))
    return found


def rehearse(meter: Any) -> None:
    """One step without requests: a plan carries what is written on it to other processes, and can be counted by
    `meter`, where there is one. Raises whatever goes wrong."""
    plan = importlib.import_module("vllm.v1.core.sched.output").SchedulerOutput.make_empty()
    plan.speculative_off = True
    if not pickle.loads(pickle.dumps(plan)).speculative_off:  # noqa: S301  (our own bytes)
        raise TypeError("a plan loses what is written on it")
    if meter is not None:
        meter.scheduled(plan)
        meter.finished(plan, {}, False)
