"""Builds one engine from its configuration: core, metrics and the labels of both. Called by `server` and tests."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from speculative_lab.emulator.acceptance import acceptance_table
from speculative_lab.emulator.config import EngineConfig
from speculative_lab.emulator.core import CoreLimits, EngineCore
from speculative_lab.emulator.drafting import Reaction
from speculative_lab.emulator.families import families
from speculative_lab.emulator.kv import KvPool
from speculative_lab.emulator.lengths import ByScheduled, Constant, DraftLengths
from speculative_lab.emulator.metrics import EngineMetrics
from speculative_lab.emulator.settings import Settings
from speculative_lab.emulator.timing import step_timer
from speculative_operator.domain.spec import Method


def build_core(config: EngineConfig, settings: Settings, lengths: DraftLengths | None = None) -> EngineCore:
    """An engine core with an empty queue; K comes from `lengths`, else from the configuration's own schedule.

    Raises LateError for what the engine refuses after loading the weights.
    """
    behaviour, table = config.drafting, config.lookup()
    lengths = lengths or (Constant(config.max_k) if table is None else ByScheduled(table))
    return EngineCore(
        CoreLimits(
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            max_k=config.max_k,
            chunked_prefill=config.chunked_prefill,
            prefix_caching=config.prefix_caching,
            dies_below_max_k=behaviour is not None and behaviour.reaction is Reaction.DIES,
            keeps_drafts=config.keeps_drafts,
            verifies_adaptively=config.verifies_adaptively,
            catches_up=config.speculative is not None and config.speculative.method == Method.DRAFT_MODEL,
        ),
        config.pool(),
        step_timer(config, settings.step_noise),
        acceptance_table(config.speculative, behaviour, settings.acceptance_spread),
        lengths,
        np.random.default_rng(settings.seed),
    )


def build_metrics(config: EngineConfig, served_name: str, created: float) -> EngineMetrics:
    """The metric families of an engine; `created` is the unix time of its start."""
    return EngineMetrics(
        families(config.max_model_len, config.speculative is not None),
        served_name,
        cache_info(config, config.pool()),
        config.max_k,
        created,
    )


def cache_info(config: EngineConfig, pool: KvPool) -> Mapping[str, str]:
    """Labels of `vllm:cache_config_info`, without `engine`; a setting that was not given reads "None"."""
    unset = (
        "enable_mamba_shared_prefix_checkpoint kv_cache_layout kv_offloading_backend kv_offloading_size"
        " mamba_block_size mamba_page_size_padded num_cpu_blocks"
        " prefix_cache_retention_interval replayssm_buffer_len sliding_window"
        " skip_page_size_padded"
    )
    off = "is_attention_free kv_sharing_fast_prefill swa_bounded_replay use_kda_recoverssm use_replayssm"
    size = str(config.block_size)
    return {
        **dict.fromkeys(unset.split(), "None"),
        **dict.fromkeys(off.split(), "False"),
        "_block_size_resolved": "True",
        "block_size": size,
        "cache_dtype": config.cache_dtype,
        "cache_hit_alignment_tokens": size,
        "effective_attention_block_size": size,
        "enable_prefix_caching": str(config.prefix_caching),
        "gpu_memory_utilization": str(config.gpu_memory_utilization),
        "hash_block_size": size,
        "kv_cache_dtype_skip_layers": "[]",
        "kv_cache_max_concurrency": f"{pool.tokens / config.max_model_len:.2f}",
        "kv_cache_memory_bytes": str(config.kv_cache_memory_bytes),
        "kv_cache_size_tokens": str(pool.tokens),
        "mamba_cache_dtype": "auto",
        "mamba_cache_mode": "none",
        "mamba_ssm_cache_dtype": "auto",
        "num_gpu_blocks": str(pool.blocks),
        "num_gpu_blocks_override": str(config.num_gpu_blocks_override),
        "prefix_caching_hash_algo": "sha256",
        "prefix_match_unit": size,
        "user_specified_block_size": str(config.block_size != 16),
    }
