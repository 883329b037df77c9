"""The speculator runs no more than K asks of it, in every worker and without a restart: at K = 0 not at all.

Mounted beside `speculative_scheduler` and named by `--worker-extension-cls speculative_worker.Extension`: vLLM imports
it in each worker process before the model is loaded. It changes two methods of vLLM's V2 model runner and one attribute
of its speculator; on the V1 runner nothing of it is ever called. `speculative_hooks` lists what it rests on and looks
for it first. It never fails the engine: what it decides is decided before anything of vLLM's own is left out; an error
in it ends its part for good, with one warning, and vLLM goes on as if it were not there.

- **Off**: in a step that the scheduler marks so (`speculative_off`) the speculator is not asked for drafts. Its pass is
  all that K = 0 costs on this runner, which takes the plain sampler and full CUDA graphs by itself then.
- **K passes**: vLLM's draft model makes as many passes as the largest K needs, at every K. Here it makes K.
- **Catching up**: a draft model computes what it missed when drafts are wanted again (`speculative_unseen`).

**Several ranks** share each layer, and a rank that runs the speculator alone waits for the others' part of it for ever.
So all that a rank does otherwise than vLLM is in the scheduler's output, which is the same for all, and before they
begin they agree (`_Ranks`): each says whether it can, whatever has happened to it, and one that cannot ends it for all.
What follows until they agree again takes nothing that might fail.
"""

from __future__ import annotations

import importlib
import inspect
import logging
from contextlib import suppress
from typing import Any

CATCHES_UP, SEES_PROMPTS, LOOKS_UP = ("draft_model",), ("eagle", "eagle3", "mtp", "dflash", "dspark"), ("ngram",)
METHODS = (*CATCHES_UP, *SEES_PROMPTS, *LOOKS_UP)
"""Methods whose pass may be left out: those that compute later what they missed, those that need the verifier's hidden
states (the scheduler has them run in steps with prompts), and those that keep nothing between steps."""

_log = logging.getLogger("vllm.speculative_worker")


class _State:
    """Of this process."""

    def __init__(self) -> None:
        self.rested = 0
        """Steps without the speculator's pass."""
        self.refused = ""
        """Why this rank leaves the speculator out no more than all have agreed to."""
        self.over = False
        """Whether all ranks have refused: none asks the others again."""
        self.agreed = False
        """Whether all ranks leave the speculator out where the plan says so; until drafts are wanted."""
        self.resting = False
        """Whether the step that runs leaves the speculator out."""
        self.plan: Any = None
        """Scheduler output of the step that runs."""
        self.unseen: Any = None
        """What the speculator has missed; None where it cannot catch up or has nothing to miss."""
        self.gaps: int | None = None
        """Requests with gaps where nothing is kept between steps: 0. None where `unseen` or nobody knows."""
        self.nothing: Any = None
        """What vLLM's speculator fills with drafts: returned as it is, for vLLM empties it at K = 0."""


STATE = _State()


def _sibling(name: str) -> Any:
    """The module mounted beside this one; None without it."""
    with suppress(Exception):
        return importlib.import_module(f"{__package__}.{name}" if __package__ else name)
    return None


_unseen = _sibling("speculative_unseen")
_hooks = _sibling("speculative_hooks")


class Extension:
    """Becomes a base of vLLM's worker class; `collective_rpc` finds its method."""

    def speculative_rested(self) -> tuple[int, str]:
        """Steps that ran without the speculator in this worker, and why no further ones do; empty while they do."""
        return STATE.rested, STATE.refused


def _refuse(why: str) -> None:
    """No step is off from now on; says so once."""
    with suppress(Exception):
        if not STATE.refused:
            STATE.refused = why[:200]
            _log.warning("speculative: the speculator is never left out: %s", why)


def why_not(config: Any) -> str:
    """Why the speculator of `config` (vLLM's) must not be left out; empty where it may be."""
    drafter, parallel = config.speculative_config, config.parallel_config
    if drafter is None:
        return "the engine runs without a speculator"
    hindrances = (
        (drafter.method not in METHODS, f"{drafter.method} was not proven"),
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

    def hindrance(self, said: int, refused: str) -> str:
        """Why not all ranks do the same; empty where none has `refused` and all have said the same number, from 0 on.

        Every rank comes here at the same places of the same plans. It waits on processors alone, nothing on devices
        does. An error of the exchange itself is raised: the ranks can no longer reach each other, nor could vLLM's own.
        """
        group, own = self._group(), -1 if refused else said
        if int(group.world_size) < 2:
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


def _prepare(runner: Any, torch: Any, ranks: _Ranks) -> None:
    """Put ours before the speculator's `propose`. Called in the first step that is no dry run."""
    speculator = runner.speculator
    if speculator is None:
        return
    speculator.propose = _proposing(runner, speculator, speculator.propose, ranks)
    try:
        why = why_not(runner.vllm_config)
        if why:
            _refuse(why)
            return
        method = runner.vllm_config.speculative_config.method
        STATE.nothing = speculator.drafts if method in LOOKS_UP else speculator.draft_tokens
        STATE.gaps = 0 if method in LOOKS_UP else None
        if method in CATCHES_UP and _unseen is not None:
            STATE.unseen = _unseen.made(runner, torch)
    except Exception as error:
        _refuse(repr(error))


def _settle(plan: Any, ranks: _Ranks) -> None:
    """Whether the step of `plan` leaves the speculator out: by the plan, and by what all ranks have agreed to."""
    STATE.plan = plan
    try:
        if STATE.unseen is not None and not STATE.refused:
            STATE.unseen.learn(plan)
    except Exception as error:
        _refuse(repr(error))
    if plan.num_spec_tokens_to_schedule:
        STATE.agreed = False
    STATE.resting = getattr(plan, "speculative_off", False) and not STATE.over and (STATE.agreed or _agree(ranks))
    STATE.agreed = STATE.agreed or STATE.resting


def _executing(own: Any, torch: Any, ranks: _Ranks) -> Any:
    def execute_model(self: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        """vLLM's, after it is settled whether the step leaves the speculator out."""
        if not (kwargs.get("dummy_run") or (args and len(args) > 1 and args[1])):
            if not hasattr(self, "_speculative_prepared"):
                self._speculative_prepared = True
                _prepare(self, torch, ranks)
            _settle(scheduler_output, ranks)
        return own(self, scheduler_output, *args, **kwargs)

    return execute_model


def _proposing(runner: Any, speculator: Any, own: Any, ranks: _Ranks) -> Any:
    follows = runner.vllm_config.speculative_config.method in CATCHES_UP
    signature = inspect.signature(own)

    def propose(*args: Any, **kwargs: Any) -> Any:
        """vLLM's: its passes for K drafts, after what it has missed; or none."""
        k = kwargs.get("num_speculative_tokens")
        if kwargs.get("dummy_run") or k is None or not args:
            return own(*args, **kwargs)
        batch = args[0]
        if STATE.resting:
            _rest(batch)
            return STATE.nothing[: batch.num_reqs]
        if not follows:
            return own(*args, **kwargs)
        if k:
            _catch_up(batch, lambda: signature.bind(*args, **kwargs).arguments, ranks)
        most, speculator.num_speculative_steps = speculator.num_speculative_steps, max(1, k)
        try:
            own(*args, **kwargs)
        finally:
            speculator.num_speculative_steps = most
        return speculator.draft_tokens[: batch.num_reqs]

    return propose


def _rest(batch: Any) -> None:
    """Keeps in mind what the speculator misses. With an error the step is off all the same, as on other ranks."""
    STATE.rested += 1
    try:
        if STATE.unseen is not None and not STATE.refused:
            STATE.unseen.rest(batch)
    except Exception as error:
        _refuse(repr(error))


def _catch_up(batch: Any, arguments: Any, ranks: _Ranks) -> None:
    """vLLM's own pass comes next, with these `arguments`: what the speculator has missed is computed before."""
    missed = None
    wanted = getattr(STATE.plan, "speculative_catches_up", 0)
    try:
        if STATE.unseen is not None and not STATE.refused:
            missed = STATE.unseen.missed(batch, arguments() if wanted else None)
    except Exception as error:
        _refuse(repr(error))
    if STATE.over or not wanted:
        return
    if _agree(ranks, missed.said if missed is not None else 0) and missed is not None:
        try:
            # An error of the pass is that of all ranks, which do the same with the same, and all go on as vLLM. One of
            # a device alone ends the engine, as it would in vLLM's pass, but by vLLM's timeout of a step.
            STATE.unseen.compute(missed, batch)
        except Exception as error:
            _refuse(repr(error))


def _sampling(own: Any) -> Any:
    def sample_tokens(self: Any, *args: Any, **kwargs: Any) -> Any:
        """vLLM's; its output takes along what the scheduler's metrics tell."""
        output = own(self, *args, **kwargs)
        try:
            inner = getattr(output, "model_runner_output", output)
            if inner is not None and inner.req_ids:
                unseen = None if STATE.refused else STATE.unseen
                gaps, behind = (unseen.requests, unseen.behind) if unseen is not None else (STATE.gaps, False)
                inner.speculative_off = (STATE.rested, STATE.refused, gaps, behind)
        except Exception as error:
            _refuse(repr(error))
        return output

    return sample_tokens


def change(runner_class: Any, torch: Any, group: Any) -> None:
    """Put ours before vLLM's own methods of `runner_class`, once. `group` gives vLLM's tensor parallel group."""
    if hasattr(runner_class, "_speculative_changed"):
        return
    ranks = _Ranks(torch, group)
    ours = _executing(runner_class.execute_model, torch, ranks), _sampling(runner_class.sample_tokens)
    runner_class.execute_model, runner_class.sample_tokens = ours
    runner_class._speculative_changed = True


def install() -> None:
    """Called when vLLM imports this file. Never raises: an error here would keep the engine from starting."""
    try:
        missing = _hooks.missing(_hooks.WORKER)
        if missing:
            _refuse(missing)
            return
        runners: Any = importlib.import_module("vllm.v1.worker.gpu.model_runner")
        parallel: Any = importlib.import_module("vllm.distributed.parallel_state")
        change(runners.GPUModelRunner, importlib.import_module("torch"), parallel.get_tp_group)
    except Exception as error:
        _refuse(repr(error))


install()
