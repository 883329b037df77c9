"""Builds the core of one engine from its configuration. Called by `server` and tests."""

from __future__ import annotations

import numpy as np

from speculative_lab.emulator.acceptance import acceptance_table
from speculative_lab.emulator.config import EngineConfig
from speculative_lab.emulator.core import CoreLimits, DraftLengths, EngineCore
from speculative_lab.emulator.settings import Settings
from speculative_lab.emulator.timing import step_timer
from speculative_operator.domain.spec import Method


def build_core(config: EngineConfig, settings: Settings, lengths: DraftLengths | None = None) -> EngineCore:
    """An engine core with an empty queue; K comes from `lengths`, else from the configuration's own schedule.

    Raises LateError for what the engine refuses after loading the weights.
    """
    table = config.lookup()
    own = constant(config.max_k) if table is None else by_scheduled(table)
    return EngineCore(
        CoreLimits(
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            max_k=config.max_k,
            keeps_drafts=config.keeps_drafts or settings.corrupt_one_in > 0,
            verifies_adaptively=config.verifies_adaptively,
            catches_up=config.speculative is not None and config.speculative.method == Method.DRAFT_MODEL,
        ),
        config.pool(),
        step_timer(config, settings.step_noise, settings.slower_percent / 100.0),
        acceptance_table(config.speculative, config.drafting, settings.acceptance_spread),
        lengths or own,
        np.random.default_rng(settings.seed),
    )


def constant(k: int) -> DraftLengths:
    """The same K always."""
    return lambda scheduled, decoding: k


def by_scheduled(dense: list[int]) -> DraftLengths:
    """K by the requests scheduled in this step; index 0 of the table is not used."""
    return lambda scheduled, decoding: dense[scheduled]
