"""What a SpeculatorTraining asks for. Made by `api`, read by `training` and `shell`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from speculative_operator.domain.spec import ModelSource


class Trained(StrEnum):
    """Methods of drafting that the library trains and vLLM serves, in the library's spelling."""

    EAGLE3 = "eagle3"
    PEAGLE = "peagle"
    DFLASH = "dflash"

    @property
    def served_by(self) -> dict[str, Any]:
        """Fields of spec.speculator with which the result is served: P-EAGLE is EAGLE-3 in one pass."""
        return {"method": "eagle3", "parallelDrafting": True} if self is Trained.PEAGLE else {"method": self.value}


USUAL_K = {Trained.EAGLE3: 3, Trained.PEAGLE: 8, Trained.DFLASH: 15}
"""Method -> largest K that it learns where a spec names none: the defaults of speculators 0.9.0."""


class Answers(StrEnum):
    """Whose answers the speculator learns from."""

    REGENERATE = "Regenerate"
    """The verifier answers each prompt anew: what it would write is what the speculator must guess."""
    KEEP = "Keep"
    """The data has them, written by the verifier."""


class Stage(StrEnum):
    """How far a training is; the last two are its ends."""

    PREPARING = "Preparing"
    ANSWERING = "Answering"
    TRAINING = "Training"
    CHECKING = "Checking"
    DONE = "Done"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Training:
    """The spec of a SpeculatorTraining, defaults filled in."""

    name: str
    namespace: str
    uid: str
    generation: int
    verifier: ModelSource
    prompts: ModelSource
    """A file of a claim, or of a data set of a hub."""
    output: ModelSource
    """A folder of a claim."""
    accelerators: int
    hours: int
    copy_to: ModelSource | None = None
    """A folder in S3 to which the result is copied."""
    method: Trained = Trained.EAGLE3
    k: int = USUAL_K[Trained.EAGLE3]
    """The largest K that the speculator learns to draft."""
    answers: Answers = Answers.REGENERATE
    serving: int = 1
    """Accelerators of the server of hidden states, out of `accelerators`."""
    samples: int = 0
    """Most prompts that are read; 0: all."""
    sequence: int = 4096
    """Most tokens of a prompt with its answer."""
    epochs: int = 10
    seed: int = 0
    resource: str = "nvidia.com/gpu"
    product: str = ""
    hourly_cost: float | None = None
    image: str = ""
    secret_name: str = ""
    env: tuple[Mapping[str, Any], ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    pull_secrets: tuple[str, ...] = ()
    try_on: str = ""
    """Name of the SpeculativeDeployment beside which the result is to be tried."""
    queue: str = ""
    """Kueue's queue that admits the Jobs; empty: none."""

    @property
    def result(self) -> str:
        """Address of the trained speculator at the end."""
        return self.copy_to.uri if self.copy_to else f"{self.output.uri}/model"
