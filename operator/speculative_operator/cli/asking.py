"""Asks the engine of one pod for greedy answers with logprobs, by the completions of the OpenAI API.

Used by `verify`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from typing import Any

from speculative_operator.cli.cluster import Cluster, Object
from speculative_operator.cli.commands import CommandError, UsageError, read_text
from speculative_operator.engines.exposition import ExpositionError, parse
from speculative_operator.engines.vllm.reading import DRAFT_TOKENS
from speculative_operator.outputs.judge import Answer, Run, Written
from speculative_operator.reconcile.snapshot.pods import read_pods

SECONDS = 300.0
"""That one answer may take."""
TOP = 5
"""Most likely tokens whose logprobs are asked for at each position."""
_LARGEST = 4 * 2**20


def prompts_of(path: str) -> list[str]:
    """The prompts of a file, or the built-in ones for an empty path. Raises UsageError."""
    if path:
        lines = read_text(path, "--prompts", _LARGEST).splitlines()
    else:
        lines = resources.files("speculative_operator.outputs").joinpath("data/prompts.jsonl").read_text().splitlines()
    found = [_prompt(line, f"--prompts {path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise UsageError(f"--prompts {path} has no prompt", "write one a line")
    return found


def _prompt(line: str, where: str) -> str:
    if not line.startswith("{"):
        return line
    try:
        prompt = json.loads(line)["prompt"]
    except (ValueError, KeyError):
        prompt = None
    if not isinstance(prompt, str) or not prompt:
        raise UsageError(f'{where} is no JSON object with a text "prompt"', "correct it, or write the prompt alone")
    return prompt


class Engine:
    """The engine of the first ready pod of an object, and the prompts to answer. Every method raises CommandError."""

    def __init__(self, at: Cluster, name: str, arguments: argparse.Namespace, prompts: Sequence[str]) -> None:
        ready = [(one, seen.template) for one in at.pods(name) for seen in read_pods([one]) if seen.ready]
        if not ready:
            raise CommandError(f"no ready pod of {name} can be seen", f"speculative status {name}")
        (self.pod, self.template), self.prompts, self._at = ready[0], prompts, at
        """`template`: the label by which the pod's controller tells its template from others; empty without one."""
        self.until: float | None = None
        """Unix time after which answers are of no use; None: never."""
        self._asked = arguments
        self._model = arguments.model or str(self._json("v1/models", "data", 0, "id"))

    def answers(self) -> Run:
        """An answer to each prompt."""
        pool = ThreadPoolExecutor(self._asked.parallel)
        try:
            return list(pool.map(self.answer, self.prompts))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # drafts come back without them

    def answer(self, prompt: str, tokens: int = 0) -> Answer:
        """The tokens that the engine finds most likely after the prompt, one after another; `tokens` of them, or as
        many as are asked for (0)."""
        if self.until is not None and time.time() > self.until:
            remedy = "raise --minutes or --parallel, or lower --limit or --tokens"
            raise CommandError("the prompts take longer than drafts are suspended", remedy)
        asked = {
            "model": self._model, "prompt": prompt, "max_tokens": tokens or self._asked.tokens,
            "temperature": 0, "seed": 0,
            "logprobs": TOP, "ignore_eos": True, "return_tokens_as_token_ids": True,
        }  # fmt: skip
        told = self._json("v1/completions", "choices", 0, "logprobs", body=asked)
        try:
            parts = zip(told["tokens"], told["token_logprobs"], told["top_logprobs"], strict=True)
            return [Written(token, float(value), {**top, token: float(value)}) for token, value, top in parts]
        except (TypeError, KeyError, ValueError):
            remedy = "verify needs an engine that tells them"
            raise CommandError("the engine's answer has no logprobs", remedy) from None

    def count_drafts(self) -> float | None:
        """Tokens drafted since the engine's start; None where it counts none."""
        try:
            found = parse(self._at.ask(self.pod, "metrics"), (DRAFT_TOKENS,))
        except ExpositionError as problem:
            raise CommandError(f"the pod's metrics: {problem}") from None
        return sum(found.values()) if found else None

    def _json(self, path: str, *keys: str | int, body: Object | None = None) -> Any:
        """What lies below `keys` in the engine's answer."""
        told = self._at.ask(self.pod, path, body, SECONDS)
        try:
            found = json.loads(told)
            for key in keys:
                found = found[key]
        except (ValueError, LookupError, TypeError):
            raise CommandError(f"{path} of the pod says what is not understood: {told[:120]!r}") from None
        return found
