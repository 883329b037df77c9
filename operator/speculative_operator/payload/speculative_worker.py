"""A drafter that rests: what of it is not needed at K = 0 does not run, in every worker, without a restart.

Mounted beside `speculative_scheduler` and named by `--worker-extension-cls speculative_worker.Extension`: vLLM imports
it in each worker process before the model is loaded. It changes methods of the V1 model runner of releases that it was
proven on, and is inert on others. It never fails the engine: what it decides is decided before anything of vLLM's own
is left out; an error in it ends its part for good, with one warning, and vLLM goes on as if it were not there.

Two parts. **No drafts to verify, no rejection sampler**: with a drafter loaded vLLM 0.32 takes that path at K = 0 too
(v1/worker/gpu_model_runner.py, `_sample`); the plain sampler gives the same tokens. **Off**: in a step that the
scheduler marks so (`speculative_off`), the drafter's pass is left out, unless drafts are still verified. A draft model
catches up when drafts are wanted again (`speculative_unseen`). Other drafters run in steps that compute prompt tokens,
so that the prefix cache never holds a prompt that the drafter has not seen.
"""

from __future__ import annotations

import importlib
import logging
from contextlib import suppress
from typing import Any

PROVEN = tuple((0, minor) for minor in (25, 26, 27, 28, 29, 31, 32, 33))
"""vLLM release lines (major, minor) whose runner has what is changed here."""
METHODS = ("draft_model", "eagle", "eagle3")
"""Methods whose pass may be left out."""

_log = logging.getLogger("vllm.speculative_worker")


class _State:
    """Of this process."""

    def __init__(self) -> None:
        self.rested = 0
        """Steps without the drafter's pass."""
        self.refused = ""
        """Why no step is off."""
        self.looked = False
        """Whether that was asked of vLLM's configuration."""
        self.plain = True
        """Whether steps with nothing to verify take the plain sampler."""
        self.unseen: Any = None
        """What the drafter has missed; None where it cannot catch up."""


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
        (parallel.world_size_across_dp > 1, "several ranks: one that errs here would wait for the others for ever"),
        (config.kv_transfer_config is not None, "a KV connector would carry gaps to other pods"),
        (config.model_config.is_hybrid, "a verifier with recurrent layers shares its state"),
    )
    return next((why for hinders, why in hindrances if hinders), "")


def _look(runner: Any, torch: Any) -> None:
    STATE.looked = True
    why = why_not(runner.vllm_config)
    if why:
        _refuse(why)
    elif _unseen is not None:
        STATE.unseen = _unseen.made(runner, torch)


def rests(runner: Any, plan: Any) -> bool:
    """Whether the drafter's pass of this step may be left out: it is off and verifies nothing, and where the drafter
    cannot catch up, no prompt is computed."""
    if STATE.refused or plan.num_spec_tokens_to_schedule or plan.scheduled_spec_decode_tokens:
        return False
    if not getattr(plan, "speculative_off", False):
        return False
    if STATE.unseen is not None:
        return True
    prompts = runner.discard_request_mask.np[: len(runner.input_batch.req_ids)].any()
    return plan.total_num_scheduled_tokens == len(plan.num_scheduled_tokens) and not prompts


def _proposing(own: Any, torch: Any) -> Any:
    def propose_draft_token_ids(self: Any, plan: Any, *args: Any, **kwargs: Any) -> Any:
        """vLLM's, or no drafts without asking the drafter."""
        nothing = None
        try:
            if not STATE.looked:
                _look(self, torch)
            if rests(self, plan):
                nothing = torch.empty(len(self.input_batch.req_ids), 0, dtype=torch.int64, device=self.device)
            if STATE.unseen is not None and not STATE.refused:
                if nothing is not None:
                    STATE.unseen.rest(plan)
                else:  # vLLM's arguments from the second on: sampling metadata, and of the attention the last but one
                    STATE.unseen.before_pass(plan, args[6], args[1])
        except Exception as error:
            _refuse(repr(error))
            nothing = None
        if nothing is None:
            return own(self, plan, *args, **kwargs)
        self._draft_probs = self._draft_prob_req_ids = None
        STATE.rested += 1
        return nothing

    return propose_draft_token_ids


def _sampling(own: Any) -> Any:
    def _sample(self: Any, logits: Any, verified: Any) -> Any:
        """vLLM's, by the plain sampler where nothing is to be verified."""
        try:
            if STATE.plain and verified is not None and not any(verified.num_draft_tokens):
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


def change(runner_class: Any, torch: Any) -> None:
    """Put ours before vLLM's own methods of `runner_class`, once: all of them or, where one is missing, none."""
    if hasattr(runner_class, "_speculative_changed"):
        return
    ours = {
        "propose_draft_token_ids": _proposing(runner_class.propose_draft_token_ids, torch),
        "_sample": _sampling(runner_class._sample),
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
        change(runners.GPUModelRunner, importlib.import_module("torch"))
    except Exception as error:
        _refuse(repr(error))


install()
