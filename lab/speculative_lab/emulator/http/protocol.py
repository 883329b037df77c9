"""Request bodies to `Generation` values, with vLLM's checks and error texts (pure). Called by `http.completions`.

Sampling parameters are not looked at: no token is sampled here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from speculative_lab.emulator.texts import CHAT_TOKENS_PER_MESSAGE, count_tokens

DEFAULT_COMPLETION_TOKENS = 16


class ApiError(Exception):
    """An error answer: HTTP status and the body that vLLM gives."""

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.param = status, message, param

    def body(self) -> dict[str, Any]:
        """`{"error": {message, type, param, code}}`."""
        kind = {400: "BadRequestError", 404: "NotFoundError"}.get(self.status, "InternalServerError")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.status}}


@dataclass(frozen=True, slots=True)
class Generation:
    """One thing to generate, as asked for."""

    chat: bool
    model: str | None
    prompt: bytes
    """Canonical bytes of the prompt: what the answer depends on."""
    prompt_tokens: int
    max_tokens: int | None
    ignore_eos: bool = False
    stream: bool = False
    include_usage: bool = False
    logprobs: int = 0
    """Most likely tokens to tell at each position; 0: no logprobs are told."""
    tokens_as_ids: bool = False


def generation(raw: bytes, chat: bool) -> Generation:
    """The checked request; raises ApiError 400 naming the field."""
    try:
        body = json.loads(raw)
    except ValueError as error:
        raise ApiError(400, f"the body is no JSON: {error}") from None
    if not isinstance(body, dict):
        raise ApiError(400, "the body should be a valid dictionary")
    prompt, tokens = _messages(body) if chat else _prompt(body)
    options = body.get("stream_options")
    return Generation(
        chat=chat,
        model=body.get("model"),
        prompt=prompt,
        prompt_tokens=tokens,
        max_tokens=_max_tokens(body, chat),
        ignore_eos=bool(body.get("ignore_eos")),
        stream=bool(body.get("stream")),
        logprobs=count if isinstance(count := body.get("logprobs"), int) and not chat else 0,
        tokens_as_ids=bool(body.get("return_tokens_as_token_ids")),
        include_usage=isinstance(options, Mapping) and bool(options.get("include_usage")),
    )


def output_limit(asked: Generation, max_model_len: int) -> int:
    """Most tokens that may be generated; raises ApiError 400 when prompt or answer exceed the context."""
    room = max_model_len - asked.prompt_tokens
    if room <= 0:
        raise ApiError(
            400,
            f"This model's maximum context length is {max_model_len} tokens. However, your request has"
            f" {asked.prompt_tokens} input tokens. Please reduce the length of the input messages.",
            "input_tokens",
        )
    if asked.max_tokens is not None and asked.max_tokens > room:
        raise ApiError(
            400,
            f"'max_tokens' or 'max_completion_tokens' is too large: {asked.max_tokens}. This model's maximum context"
            f" length is {max_model_len} tokens and your request has {asked.prompt_tokens} input tokens.",
            "max_tokens",
        )
    return asked.max_tokens or room


def _prompt(body: Mapping[str, Any]) -> tuple[bytes, int]:
    """Canonical bytes and token count of `prompt`: a text or token ids."""
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        return prompt.encode(), count_tokens(prompt)
    if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
        return json.dumps(prompt).encode(), len(prompt)
    raise ApiError(400, "prompt must be a text or a list of token ids", "prompt")


def _messages(body: Mapping[str, Any]) -> tuple[bytes, int]:
    """The same of `messages`, each a mapping with a content that is a text or a list of parts."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(one, Mapping) for one in messages):
        raise ApiError(400, "messages must be a list with at least one message", "messages")
    tokens = sum(CHAT_TOKENS_PER_MESSAGE + count_tokens(_content(one.get("content"))) for one in messages)
    return json.dumps(messages, sort_keys=True).encode(), CHAT_TOKENS_PER_MESSAGE + tokens


def _content(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return str(content or "")


def _max_tokens(body: Mapping[str, Any], chat: bool) -> int | None:
    value = (body.get("max_completion_tokens") if chat else None) or body.get("max_tokens")
    if value is None:
        return None if chat else DEFAULT_COMPLETION_TOKENS
    if type(value) is not int or value < 1:
        raise ApiError(400, f"max_tokens must be a whole number of at least 1, got {value!r}", "max_tokens")
    return value
