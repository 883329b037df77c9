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
from collections.abc import Callable
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
        self.torch: Any = None
        self.group: Any = None
        """Gives vLLM's group of the ranks that share each layer."""
        self.rested = 0
        """Steps without the speculator's pass."""
        self.refused = ""
        """Why this rank leaves the speculator out no more than all have agreed to."""
        self.over = self.agreed = self.resting = False
        """Whether all ranks have refused, and none asks the others again; whether all leave the speculator out where
        the plan says so, until drafts are wanted; whether the step that runs leaves it out."""
        self.plan: Any = None
        """Scheduler output of the step that runs."""
        self.unseen: Any = None
        """What the speculator has missed; None where it cannot catch up, has nothing to miss, or has refused."""
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
    STATE.unseen = None
    with suppress(Exception):
        if not STATE.refused:
            STATE.refused = why[:200]
            _log.warning("speculative: the speculator is never left out: %s", why)


def _attempt(act: Callable[..., Any], *given: Any) -> Any:
    """What `act` gives; None where it fails, which this rank refuses to go on with. Never raises."""
    try:
        return act(*given)
    except Exception as error:
        _refuse(repr(error))
        return None


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
        (parallel.decode_context_parallel_size > 1, "decode context parallel was not proven"),
        (parallel.world_size_across_dp > parallel.tensor_parallel_size, "context parallel was not proven"),
        (config.kv_transfer_config is not None, "a KV connector would carry gaps to other pods"),
        (config.model_config.is_hybrid, "a verifier with recurrent layers shares its state"),
    )
    return next((why for hinders, why in hindrances if hinders), "")


def _agree(said: int = 0) -> bool:
    """Whether all ranks can do the same: none has refused, and all say the same number, from 0 on. Else it is over for
    all of them.

    Every rank comes here at the same places of the same plans. It waits on processors alone, nothing on devices does.
    An error of the exchange itself is raised: the ranks can no longer reach each other, nor could vLLM's own.
    """
    group, why, own = STATE.group(), STATE.refused, -1 if STATE.refused else said
    if int(group.world_size) > 1:
        bounds, distributed = STATE.torch.tensor([own, -own], device="cpu"), STATE.torch.distributed
        distributed.all_reduce(bounds, op=distributed.ReduceOp.MIN, group=group.cpu_group)
        least, most = int(bounds[0]), -int(bounds[1])
        if not 0 <= least == most:
            reasons = [""] * int(group.world_size)
            distributed.all_gather_object(reasons, STATE.refused, group=group.cpu_group)
            found = (f"rank {rank}: {reason}" for rank, reason in enumerate(reasons) if reason)
            why = next(found, "ranks have missed other tokens")
    if why:
        STATE.over, STATE.agreed = True, False
        _refuse(why)
    return not why


def _prepare(runner: Any) -> None:
    """Puts ours before the speculator's `propose`. Called in the first step that is no dry run."""
    speculator = runner.speculator
    if speculator is None:
        return
    speculator.propose = _proposing(runner, speculator, speculator.propose)
    if why := why_not(runner.vllm_config):
        _refuse(why)
        return
    method = runner.vllm_config.speculative_config.method
    STATE.nothing = speculator.drafts if method in LOOKS_UP else speculator.draft_tokens
    STATE.gaps = 0 if method in LOOKS_UP else None
    if method in CATCHES_UP and _unseen is not None:
        STATE.unseen = _unseen.made(runner, STATE.torch)


def _settle(plan: Any) -> None:
    """Whether the step of `plan` leaves the speculator out: by the plan, and by what all ranks have agreed to."""
    STATE.plan = plan
    if STATE.unseen is not None:
        _attempt(lambda: STATE.unseen.learn(plan))
    if plan.num_spec_tokens_to_schedule:
        STATE.agreed = False
    STATE.resting = getattr(plan, "speculative_off", False) and not STATE.over and (STATE.agreed or _agree())
    STATE.agreed = STATE.agreed or STATE.resting


def _proposing(runner: Any, speculator: Any, own: Any) -> Any:
    follows = runner.vllm_config.speculative_config.method in CATCHES_UP
    signature = inspect.signature(own)

    def propose(*args: Any, **kwargs: Any) -> Any:
        """vLLM's: its passes for K drafts, after what it has missed; or none."""
        k = kwargs.get("num_speculative_tokens")
        if kwargs.get("dummy_run") or k is None or not args:
            return own(*args, **kwargs)
        batch = args[0]
        if STATE.resting:  # with an error too, as on other ranks
            STATE.rested += 1
            if STATE.unseen is not None:
                _attempt(lambda: STATE.unseen.rest(batch))
            return STATE.nothing[: batch.num_reqs]
        if not follows:
            return own(*args, **kwargs)
        if k:
            _catch_up(batch, lambda: signature.bind(*args, **kwargs).arguments)
        most, speculator.num_speculative_steps = speculator.num_speculative_steps, max(1, k)
        try:
            own(*args, **kwargs)
        finally:
            speculator.num_speculative_steps = most
        return speculator.draft_tokens[: batch.num_reqs]

    return propose


def _catch_up(batch: Any, arguments: Callable[[], Any]) -> None:
    """vLLM's own pass comes next, with these `arguments`: what the speculator has missed is computed before."""
    wanted, missed = getattr(STATE.plan, "speculative_catches_up", 0), None
    if STATE.unseen is not None:
        missed = _attempt(lambda: STATE.unseen.missed(batch, arguments() if wanted else None))
    if STATE.over or not wanted:
        return
    if _agree(missed.said if missed is not None else 0) and missed is not None:
        # An error of the pass is that of all ranks, which do the same with the same, and all go on as vLLM. One of a
        # device alone ends the engine, as it would in vLLM's pass, but by vLLM's timeout of a step.
        _attempt(STATE.unseen.compute, missed, batch)


def _tell(output: Any) -> None:
    inner, unseen = getattr(output, "model_runner_output", output), STATE.unseen
    if inner is not None and inner.req_ids:
        gaps, behind = (unseen.requests, unseen.behind) if unseen is not None else (STATE.gaps, False)
        inner.speculative_off = (STATE.rested, STATE.refused, gaps, behind)


def change(runner_class: Any, torch: Any, group: Any) -> None:
    """Put ours before vLLM's own methods of `runner_class`. `group` gives vLLM's tensor parallel group."""
    execute, sample = runner_class.execute_model, runner_class.sample_tokens

    def execute_model(self: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        """vLLM's, after it is settled whether the step leaves the speculator out."""
        if not (kwargs.get("dummy_run") or (len(args) > 1 and args[1])):
            if not hasattr(self, "_speculative_prepared"):
                self._speculative_prepared = True
                _attempt(_prepare, self)
            _settle(scheduler_output)
        return execute(self, scheduler_output, *args, **kwargs)

    def sample_tokens(self: Any, *args: Any, **kwargs: Any) -> Any:
        """vLLM's; its output takes along what the scheduler's metrics tell."""
        output = sample(self, *args, **kwargs)
        _attempt(_tell, output)
        return output

    STATE.torch, STATE.group = torch, group
    runner_class.execute_model, runner_class.sample_tokens = execute_model, sample_tokens


def install() -> None:
    """Called when vLLM imports this file. Never raises: an error here would keep the engine from starting."""
    _attempt(_install)


def _install() -> None:
    if missing := _hooks.missing(_hooks.WORKER):
        _refuse(missing)
        return
    runners: Any = importlib.import_module("vllm.v1.worker.gpu.model_runner")
    parallel: Any = importlib.import_module("vllm.distributed.parallel_state")
    change(runners.GPUModelRunner, importlib.import_module("torch"), parallel.get_tp_group)


install()
