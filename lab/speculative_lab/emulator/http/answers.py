"""Response bodies: whole answers and stream chunks of both completion routes (pure). Called by `http.completions`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Envelope:
    """What every body of one response shares."""

    identity: str
    created: int
    model: str
    chat: bool
    prompt_tokens: int

    def head(self, kind: str) -> dict[str, Any]:
        """The fields that name the response; `kind` is what follows "chat.completion" in those of chats."""
        name = f"chat.completion{kind}" if self.chat else "text_completion"
        return {"id": self.identity, "object": name, "created": self.created, "model": self.model}

    def usage(self, generated: int) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + generated,
            "completion_tokens": generated,
            "prompt_tokens_details": None,
        }


def whole_body(envelope: Envelope, text: str, generated: int, finish: str) -> dict[str, Any]:
    """The body of an answer that is not streamed."""
    choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": finish, "stop_reason": None}
    if envelope.chat:
        choice["message"] = {"role": "assistant", "content": text, "refusal": None, "tool_calls": [], "reasoning": None}
    else:
        choice["text"] = text
    return {**envelope.head(""), "choices": [choice], "usage": envelope.usage(generated)}


class Chunks:
    """Server-sent events of one stream. The constant part of a chunk is serialised once."""

    def __init__(self, envelope: Envelope, includes_usage: bool) -> None:
        self._envelope, self._includes_usage = envelope, includes_usage
        self._head = "data: " + json.dumps(envelope.head(".chunk"))[:-1] + ', "choices": ['

    def opening(self) -> bytes:
        """The first chunk of a chat stream, which names the role."""
        if not self._envelope.chat:
            return b""
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        return f"{self._head}{json.dumps(choice)}]}}\n\n".encode()

    def text_chunk(self, text: str, finish: str | None) -> bytes:
        """One chunk of text."""
        encoded = json.dumps(text)
        body = f'"delta": {{"content": {encoded}}}' if self._envelope.chat else f'"text": {encoded}'
        ending = f'"finish_reason": {json.dumps(finish)}, "stop_reason": null'
        return f'{self._head}{{"index": 0, {body}, "logprobs": null, {ending}}}]}}\n\n'.encode()

    def closing(self, generated: int) -> bytes:
        """The chunk without choices that `include_usage` asks for, and the end."""
        if not self._includes_usage:
            return DONE
        return f'{self._head}], "usage": {json.dumps(self._envelope.usage(generated))}}}\n\n'.encode() + DONE
