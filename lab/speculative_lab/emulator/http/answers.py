"""Response bodies: whole answers and stream chunks of both completion routes (pure). Called by `http.completions`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from speculative_lab.emulator.texts import VOCABULARY, WORDS, Answer

Body = dict[str, Any]
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Envelope:
    """What every body of one response shares."""

    identity: str
    created: int
    model: str
    chat: bool
    prompt_tokens: int

    def body(self, choices: list[Body], chunk: bool = False) -> Body:
        """A body around these choices."""
        name = f"chat.completion{'.chunk' if chunk else ''}" if self.chat else "text_completion"
        head = {"id": self.identity, "object": name, "created": self.created, "model": self.model}
        return {**head, "choices": choices}

    def usage(self, generated: int) -> Body:
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + generated,
            "completion_tokens": generated,
            "prompt_tokens_details": None,
        }


def whole_body(envelope: Envelope, text: str, generated: int, finish: str, logprobs: Body | None = None) -> Body:
    """The body of an answer that is not streamed."""
    message: Body = {"role": "assistant", "content": text, "refusal": None, "tool_calls": [], "reasoning": None}
    said = {"message": message} if envelope.chat else {"text": text}
    choice = {"index": 0, "logprobs": logprobs, "finish_reason": finish, "stop_reason": None, **said}
    return {**envelope.body([choice]), "usage": envelope.usage(generated)}


def logprobs_of(written: Answer, right: Answer, generated: int, count: int, *, ids: bool) -> Body:
    """Logprobs of a whole answer: made up, as its tokens are. A token that is not the `right` one is unlikely."""

    def name(token: int) -> str:
        return f"token_id:{token}" if ids else WORDS[token]

    likely = [
        {name((token + other) % VOCABULARY): -0.1 - 3.0 * other for other in range(count)}
        for token in right.tokens(0, generated)
    ]
    tokens = [name(token) for token in written.tokens(0, generated)]
    top = [{token: _UNLIKELY, **known} for token, known in zip(tokens, likely, strict=True)]
    values = [known[token] for token, known in zip(tokens, top, strict=True)]
    return {"tokens": tokens, "token_logprobs": values, "top_logprobs": top, "text_offset": []}


_UNLIKELY = -20.0


@dataclass(frozen=True, slots=True)
class Chunks:
    """Server-sent events of one stream."""

    envelope: Envelope
    includes_usage: bool

    def opening(self) -> bytes:
        """The first chunk of a chat stream, which names the role."""
        return self._chunk({"delta": {"role": "assistant", "content": ""}}, None) if self.envelope.chat else b""

    def text_chunk(self, text: str, finish: str | None) -> bytes:
        """One chunk of text."""
        return self._chunk({"delta": {"content": text}} if self.envelope.chat else {"text": text}, finish)

    def closing(self, generated: int) -> bytes:
        """The chunk without choices that `include_usage` asks for, and the end."""
        if not self.includes_usage:
            return DONE
        return _event({**self.envelope.body([], chunk=True), "usage": self.envelope.usage(generated)}) + DONE

    def _chunk(self, said: Body, finish: str | None) -> bytes:
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": finish, "stop_reason": None}
        return _event(self.envelope.body([choice], chunk=True))


def _event(body: Body) -> bytes:
    return f"data: {json.dumps(body)}\n\n".encode()
