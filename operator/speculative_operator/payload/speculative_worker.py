"""A drafter that rests: what of it is not needed at K = 0 does not run, in every worker, without a restart.

Mounted beside `speculative_scheduler` and named by `--worker-extension-cls speculative_worker.Extension`: vLLM imports
it in each worker process before the model is loaded. It changes methods of the V1 model runner of releases that it was
proven on, and is inert on others. It never fails the engine: what it decides is decided before anything of vLLM's own
is left out; an error in it ends its part for good, with one warning, and vLLM goes on as if it were not there.

Two parts. **No drafts to verify, no rejection sampler**: with a drafter loaded vLLM 0.32 takes that path at K = 0 too
(v1/worker/gpu_model_runner.py, `_sample`); the plain sampler gives the same tokens. **Off**: in a step that the
scheduler marks so (`speculative_off`), the drafter's pass is left out. A draft model catches up when drafts are wanted
again (`speculative_unseen`).

**Several ranks** share each layer, and a rank that runs the drafter alone waits for the others' part of it for ever. So
all that a rank does otherwise than vLLM is in the scheduler's output, which is the same for all, and before they begin
they agree (`_Ranks`): each says whether it can, whatever has happened to it, and one that cannot ends it for all. What
follows until they agree again takes nothing that might fail.
"""

from __future__ import annotations

import importlib
import logging
from contextlib import suppress
from typing import Any

PROVEN = tuple((0, minor) for minor in (25, 26, 27, 28, 29, 31, 32, 33))
"""vLLM release lines (major, minor) whose runner has what is changed here."""
METHODS = ("draft_model", "eagle", "eagle3", "mtp")
"""Methods whose pass may be left out."""

_log = logging.getLogger("vllm.speculative_worker")


class _State:
    """Of this process."""

    def __init__(self) -> None:
        self.rested = 0
        """Steps without the drafter's pass."""
        self.refused = ""
        """Why this rank leaves the drafter out no more than all have agreed to."""
        self.over = False
        """Whether all ranks have refused: none asks the others again."""
        self.agreed = False
        """Whether all ranks leave the drafter out where the plan says so; until drafts are wanted."""
        self.resting = False
        """Whether the step that runs leaves the drafter out."""
        self.looked = False
        """Whether that was asked of vLLM's configuration."""
        self.plain = True
        """Whether steps with nothing to verify take the plain sampler; with several ranks only those that are off."""
        self.unseen: Any = None
        """What the drafter has missed; None where it cannot catch up."""
        self.nothing: Any = None
        """Drafts of a step that is off: a row for each request that there may be, without columns."""


STATE = _State()


def _sibling(name: str) -> Any:
    """The module mounted beside this one; None without it."""
    with suppress(Exception):
        return importlib.import_module(f"{__package__}.{name}" if __package__ else name)
    return None


_unseen = _sibling("speculative_unseen")


class Extension:
    """Becomes a base of vLLM's worker class; `collective_rpc` finds its method."""

    def speculative_rested(self) -> tuple[int, str]:
        """Steps that ran without the drafter in this worker, and why no further ones do; empty while they do."""
        return STATE.rested, STATE.refused


def _refuse(why: str) -> None:
    """No step is off from now on; says so once."""
    with suppress(Exception):
        if not STATE.refused:
            STATE.refused = why[:200]
            _log.warning("speculative: the drafter is never left out: %s", why)


def why_not(config: Any) -> str:
    """Why the drafter of `config` (vLLM's) must not be left out; empty where it may be."""
    drafter, parallel = config.speculative_config, config.parallel_config
    if drafter is None:
        return "the engine runs without a speculator"
    hindrances = (
        (drafter.method not in METHODS, f"{drafter.method} was not proven"),
        (drafter.disable_padded_drafter_batch, "disable_padded_drafter_batch is set"),
        (drafter.draft_sample_method != "greedy", "drafts are sampled: a wrong one would be weighed as a probability"),
        (parallel.pipeline_parallel_size > 1, "pipeline parallel was not proven"),
        (parallel.data_parallel_size > 1, "data parallel ranks draft together, each by requests of its own"),
        (
            parallel.decode_context_parallel_size > 1 or parallel.world_size_across_dp > parallel.tensor_parallel_size,
            "context parallel was not proven",
        ),
        (config.kv_transfer_config is not None, "a KV connector would carry gaps to other pods"),
        (config.model_config.is_hybrid, "a verifier with recurrent layers shares its state"),
    )
    return next((why for hinders, why in hindrances if hinders), "")


class _Ranks:
    """The workers that share each layer: what one of them alone cannot do none does."""

    def __init__(self, torch: Any, group: Any) -> None:
        self._torch, self._group = torch, group

    @property
    def several(self) -> bool:
        return int(self._group().world_size) > 1

    def hindrance(self, said: int, refused: str) -> str:
        """Why not all ranks do the same; empty where none has `refused` and all have said the same number, from 0 on.

        Every rank comes here at the same places of the same plans. It waits on processors alone, nothing on devices
        does. An error of the exchange itself is raised: the ranks can no longer reach each other, nor could vLLM's own.
        """
        group, own = self._group(), -1 if refused else said
        if not self.several:
            return refused
        bounds, distributed = self._torch.tensor([own, -own], device="cpu"), self._torch.distributed
        distributed.all_reduce(bounds, op=distributed.ReduceOp.MIN, group=group.cpu_group)
        least, most = int(bounds[0]), -int(bounds[1])
        if 0 <= least == most:
            return ""
        reasons = [""] * int(group.world_size)
        distributed.all_gather_object(reasons, refused, group=group.cpu_group)
        found = (f"rank {rank}: {reason}" for rank, reason in enumerate(reasons) if reason)
        return next(found, "ranks have missed other tokens")


def _agree(ranks: _Ranks, said: int = 0) -> bool:
    """Whether all ranks can do the same; where they cannot, it is over for all of them."""
    why = ranks.hindrance(said, STATE.refused)
    if why:
        STATE.over, STATE.agreed = True, False
        _refuse(why)
    return not why


def _look(runner: Any, torch: Any) -> None:
    STATE.looked = True
    why = why_not(runner.vllm_config)
    if why:
        _refuse(why)
        return
    STATE.nothing = torch.empty(runner.max_num_reqs, 0, dtype=torch.int64, device=runner.device)
    if _unseen is not None:
        STATE.unseen = _unseen.made(runner, torch)


def _settle(runner: Any, plan: Any, torch: Any, ranks: _Ranks) -> None:
    """Whether the step of `plan` leaves the drafter out: by the plan, and by what all ranks have agreed to."""
    try:
        if not STATE.looked:
            _look(runner, torch)
    except Exception as error:
        _refuse(repr(error))
    if plan.num_spec_tokens_to_schedule:
        STATE.agreed = False
    STATE.resting = getattr(plan, "speculative_off", False) and not STATE.over and (STATE.agreed or _agree(ranks))
    STATE.agreed = STATE.agreed or STATE.resting


def _rest(plan: Any) -> None:
    """Keeps in mind what the drafter misses. With an error in it the step is off all the same, as on other ranks."""
    STATE.rested += 1
    try:
        if STATE.unseen is not None and not STATE.refused:
            STATE.unseen.rest(plan)
    except Exception as error:
        _refuse(repr(error))


def _catch_up(runner: Any, plan: Any, given: tuple[Any, ...], ranks: _Ranks) -> None:
    """vLLM's own pass of the drafter comes next, with what is `given`: what it has missed is computed before."""
    missed = None
    try:
        if STATE.unseen is not None and not STATE.refused:
            # vLLM's arguments from the second on: sampling metadata, and of the attention the last but one
            missed = STATE.unseen.before_pass(plan, given[6], given[1])
    except Exception as error:
        _refuse(repr(error))
    if STATE.over or not getattr(plan, "speculative_catches_up", False):
        return
    if _agree(ranks, missed.said if missed is not None else 0) and missed is not None:
        try:
            # An error of the pass is that of all ranks, which do the same with the same, and all go on as vLLM. One of
            # a device alone ends the engine, as it would in vLLM's pass, but by vLLM's timeout of a step.
            runner.drafter.propose(**missed.inputs)
            STATE.unseen.caught_up(missed)
        except Exception as error:
            _refuse(repr(error))


def _executing(own: Any, torch: Any, ranks: _Ranks) -> Any:
    def execute_model(self: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        """vLLM's, after it is settled whether the step leaves the drafter out."""
        _settle(self, scheduler_output, torch, ranks)
        return own(self, scheduler_output, *args, **kwargs)

    return execute_model


def _proposing(own: Any, ranks: _Ranks) -> Any:
    def propose_draft_token_ids(self: Any, plan: Any, *args: Any, **kwargs: Any) -> Any:
        """vLLM's, or no drafts without asking the drafter."""
        if STATE.resting:
            _rest(plan)
            self._draft_probs = self._draft_prob_req_ids = None
            return STATE.nothing[: len(plan.num_scheduled_tokens)]
        _catch_up(self, plan, args, ranks)
        return own(self, plan, *args, **kwargs)

    return propose_draft_token_ids


def _sampling(own: Any, ranks: _Ranks) -> Any:
    def _sample(self: Any, logits: Any, verified: Any) -> Any:
        """vLLM's, by the plain sampler where nothing is to be verified.

        The rejection sampler draws other random numbers. A rank that took it alone would sample other tokens from then
        on, and every rank samples for itself.
        """
        if STATE.resting:
            return own(self, logits, None)
        try:
            if STATE.plain and verified is not None and not ranks.several and not any(verified.num_draft_tokens):
                verified = None
        except Exception as error:
            STATE.plain = False
            _log.warning("speculative: every step takes the rejection sampler: %r", error)
        return own(self, logits, verified)

    return _sample


def _copying(own: Any, torch: Any) -> Any:
    def _copy_draft_token_ids_to_cpu(self: Any, *args: Any, **kwargs: Any) -> Any:
        """vLLM's; nothing drafted is nothing to copy or to tell the scheduler."""
        try:
            drafts = self._draft_token_ids
            if torch.is_tensor(drafts) and not drafts.shape[1]:
                self.prev_num_spec_tokens = 0
                return None
        except Exception as error:
            _refuse(repr(error))
        return own(self, *args, **kwargs)

    return _copy_draft_token_ids_to_cpu


def _finishing(own: Any) -> Any:
    def sample_tokens(self: Any, *args: Any, **kwargs: Any) -> Any:
        """vLLM's; its output takes along what the scheduler's metrics tell."""
        output = own(self, *args, **kwargs)
        try:
            inner = getattr(output, "_model_runner_output", output)
            if inner is not None and inner.req_ids:
                unseen = None if STATE.refused else STATE.unseen
                missing, behind = (unseen.requests, unseen.behind) if unseen is not None else (None, False)
                inner.speculative_off = (STATE.rested, STATE.refused, missing, behind)
        except Exception as error:
            _refuse(repr(error))
        return output

    return sample_tokens


def change(runner_class: Any, torch: Any, group: Any) -> None:
    """Put ours before vLLM's own methods of `runner_class`, once: all of them or, where one is missing, none. `group`
    gives vLLM's tensor parallel group."""
    if hasattr(runner_class, "_speculative_changed"):
        return
    ranks = _Ranks(torch, group)
    ours = {
        "execute_model": _executing(runner_class.execute_model, torch, ranks),
        "propose_draft_token_ids": _proposing(runner_class.propose_draft_token_ids, ranks),
        "_sample": _sampling(runner_class._sample, ranks),
        "_copy_draft_token_ids_to_cpu": _copying(runner_class._copy_draft_token_ids_to_cpu, torch),
        "sample_tokens": _finishing(runner_class.sample_tokens),
    }
    for name, method in ours.items():
        setattr(runner_class, name, method)
    runner_class._speculative_changed = True


def install() -> None:
    """Called when vLLM imports this file. Never raises: an error here would keep the engine from starting."""
    try:
        version = str(importlib.import_module("vllm").__version__)
        major, minor = version.split(".")[:2]
        if (int(major), int(minor)) not in PROVEN:
            _refuse(f"vLLM {version} is not among the proven releases")
            return
        runners: Any = importlib.import_module("vllm.v1.worker.gpu_model_runner")
        parallel: Any = importlib.import_module("vllm.distributed.parallel_state")
        change(runners.GPUModelRunner, importlib.import_module("torch"), parallel.get_tp_group)
    except Exception as error:
        _refuse(repr(error))


install()
