"""What stands for `speculators.train` where there is no accelerator. Run by the engine's interpreter alone.

speculators 0.9.0 takes for granted that there is one in four places: a step's clock waits for it, the rank of a
process is its number, and `train/trainer.py` and `utils/util.py` call it `cuda` where torch names none.
"""

from __future__ import annotations

from typing import Any

import torch  # type: ignore[import-not-found]  # only in the engine's environment
from speculators.train import checkpointer, trainer  # type: ignore[import-not-found]
from speculators.train.cli import main  # type: ignore[import-not-found]
from speculators.train.config import TrainConfig  # type: ignore[import-not-found]


class OnCpu(trainer.Trainer):  # type: ignore[misc]
    """The library's trainer on a CPU."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.device_type = "cpu"


if __name__ == "__main__":
    torch.accelerator.synchronize = lambda *_: None
    trainer.get_local_rank = checkpointer.get_current_device = lambda: "cpu"
    main.__globals__["Trainer"] = OnCpu
    main(TrainConfig.resolve())
