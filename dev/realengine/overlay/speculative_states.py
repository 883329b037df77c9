"""Has vLLM hand out hidden states on a CPU, for the training of a speculator. Tests only.

Laid by `realengine.trainer_image` beside the library, where vLLM finds it by the entry point group
`vllm.general_plugins` and calls `register` in every process. `ExampleHiddenStatesConnector` of vLLM 0.32.0 copies them
from the accelerator's memory by streams and events of CUDA, which a CPU does not have: there they are copied at once.
"""

from __future__ import annotations

import fcntl
import os
from functools import partial
from typing import Any

import torch  # type: ignore[import-not-found]  # only in the engine's environment


class Done:
    """Stands for the event of a copy that is made at once."""

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass


def register() -> None:
    """Called by vLLM, more than once."""
    from vllm.platforms import current_platform  # type: ignore[import-not-found]

    if not current_platform.is_cpu():
        return
    from vllm.distributed.kv_transfer.kv_connector.v1 import (  # type: ignore[import-not-found]
        example_hidden_states_connector as connector,
    )

    def submit(self: Any, pending: Any) -> None:
        """`_submit_async_write` without an accelerator: rows of the cache by token, then the thread that writes."""
        starts = torch.tensor(pending.block_ids).reshape(-1, 1) * self._block_size
        slots = (starts + torch.arange(self._block_size)).flatten()
        found = connector.extract_from_kv_cache(self._kv_cache, slots, pending.token_ids.shape[0]).clone()
        os.makedirs(os.path.dirname(pending.filename), exist_ok=True)  # noqa: PTH103,PTH120
        lock = self._lock_fds.pop(pending.req_id, None)
        if lock is None and self.use_lock:
            lock = os.open(f"{pending.filename}.lock", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
            fcntl.flock(lock, fcntl.LOCK_EX)
        tensors = {"hidden_states": found, "token_ids": pending.token_ids.clone()}
        future = self._executor.submit(self._write_tensors, tensors, Done(), pending.filename, lock)
        self._req_copy_events[pending.req_id] = Done()
        self._req_futures[pending.req_id] = future
        future.add_done_callback(partial(self._on_write_done, pending.req_id))

    connector.ExampleHiddenStatesConnector._submit_async_write = submit
