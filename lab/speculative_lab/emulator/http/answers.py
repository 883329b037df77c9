"""Response bodies: whole answers and stream chunks of both completion routes (pure). Called by `http.completions`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from speculative_lab.emulator.http.protocol import Generation
from speculative_lab.emulator.texts import Answer

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Plan:
    """Where an answer ends, known before it is generated."""

    answer: Answer
    target: int
    """Tokens to generate."""
    finish: str
    """stop or length."""
    stop: str | None = None
    cut: int | None = None
    """Characters of the text that are given when a stop string ends it; None: all."""

    def text(self, first: int, last: int) -> str:
        """Text of the tokens `first` to `last` (excluded), nothing of a stop string that is to be left out."""
        if self.cut is None:
            return self.answer.text(first, last)
        start = len(self.answer.text(0, first))
        return self.answer.text(0, last)[start : self.cut] if start < self.cut else ""


@dataclass(frozen=True, slots=True)
class Envelope:
    """What every body of one response shares."""

    identity: str
    created: int
    model: str
    chat: bool


def usage(prompt: int, generated: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + generated,
        "completion_tokens": generated,
        "prompt_tokens_details": None,
    }


def whole(
    envelope: Envelope, plan: Plan, prompt_tokens: int, generated: int, finish: str, token_ids: bool, metrics: Any
) -> dict[str, Any]:
    """The body of an answer that is not streamed."""
    ids = plan.answer.tokens(0, generated) if token_ids else None
    stop_reason = plan.stop if finish == "stop" else None
    choice: dict[str, Any] = {
        "index": 0,
        "logprobs": None,
        "finish_reason": finish,
        "stop_reason": stop_reason,
        "token_ids": ids,
    }
    text = plan.text(0, generated)
    if envelope.chat:
        choice["message"] = {"role": "assistant", "content": text, "refusal": None, "tool_calls": [], "reasoning": None}
    else:
        choice["text"] = text
    body = {
        "id": envelope.identity,
        "object": "chat.completion" if envelope.chat else "text_completion",
        "created": envelope.created,
        "model": envelope.model,
        "choices": [choice],
        "usage": usage(prompt_tokens, generated),
        "system_fingerprint": None,
        "service_tier": None,
        "kv_transfer_params": None,
    }
    if metrics is not None:
        body["metrics"] = {"speculative_decoding": metrics}
    return body


class Chunks:
    """Server-sent events of one stream. The constant part of a chunk is serialised once."""

    def __init__(self, envelope: Envelope, asked: Generation) -> None:
        self._chat = envelope.chat
        self._usage, self._includes_usage = asked.continuous_usage, asked.include_usage
        self._prompt_tokens = asked.prompt_tokens
        self._token_ids = asked.token_ids
        head = {
            "id": envelope.identity,
            "object": "chat.completion.chunk" if envelope.chat else "text_completion",
            "created": envelope.created,
            "model": envelope.model,
        }
        self._head = "data: " + json.dumps(head)[:-1] + ', "choices": ['

    def opening(self) -> bytes:
        """The first chunk of a chat stream, which names the role."""
        if not self._chat:
            return b""
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        return self._event(json.dumps(choice), 0)

    def piece(self, text: str, generated: int, finish: str | None, stop: str | None, ids: list[int]) -> bytes:
        """One chunk of text; `generated` tokens exist by now."""
        encoded = json.dumps(text)
        body = f'"delta": {{"content": {encoded}}}' if self._chat else f'"text": {encoded}'
        extra = f', "token_ids": {json.dumps(ids)}' if self._token_ids else ""
        ending = f'"finish_reason": {json.dumps(finish)}, "stop_reason": {json.dumps(stop)}'
        return self._event(f'{{"index": 0, {body}, "logprobs": null, {ending}{extra}}}', generated)

    def closing(self, generated: int) -> bytes:
        """The chunk without choices that `include_usage` asks for, and the end."""
        if not self._includes_usage:
            return DONE
        return f'{self._head}], "usage": {json.dumps(usage(self._prompt_tokens, generated))}}}\n\n'.encode() + DONE

    def _event(self, choice: str, generated: int) -> bytes:
        tail = f', "usage": {json.dumps(usage(self._prompt_tokens, generated))}' if self._usage else ""
        return f"{self._head}{choice}]{tail}}}\n\n".encode()
