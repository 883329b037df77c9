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

    def __init__(self, status: int, message: str, kind: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.kind, self.param = status, message, kind, param

    def body(self) -> dict[str, Any]:
        """`{"error": {message, type, param, code}}`."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}}


def bad_request(message: str, param: str | None = None) -> ApiError:
    return ApiError(400, message, "BadRequestError", param)


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


def parse_body(raw: bytes) -> dict[str, Any]:
    """A JSON object; ApiError 400 for anything else."""
    try:
        body = json.loads(raw)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        position = getattr(error, "pos", 0)
        detail = [{"type": "json_invalid", "loc": ("body", position), "msg": "JSON decode error", "input": {}}]
        raise ApiError(400, str(detail), "Bad Request") from None
    if not isinstance(body, dict):
        detail = [{"type": "model_attributes_type", "loc": ("body",), "msg": "Input should be a valid dictionary"}]
        raise ApiError(400, str(detail), "Bad Request")
    return body


def generation(body: Mapping[str, Any], chat: bool) -> Generation:
    """The checked request; raises ApiError 400 naming the field."""
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
        include_usage=isinstance(options, Mapping) and bool(options.get("include_usage")),
    )


def output_limit(asked: Generation, max_model_len: int) -> int:
    """Most tokens that may be generated; raises ApiError 400 when prompt or answer exceed the context."""
    if asked.prompt_tokens >= max_model_len:
        raise bad_request(
            f"This model's maximum context length is {max_model_len} tokens. However, your request has"
            f" {asked.prompt_tokens} input tokens. Please reduce the length of the input messages.",
            "input_tokens",
        )
    room = max_model_len - asked.prompt_tokens
    if asked.max_tokens is None:
        return room
    if asked.max_tokens > room:
        raise bad_request(
            f"'max_tokens' or 'max_completion_tokens' is too large: {asked.max_tokens}. This model's maximum context"
            f" length is {max_model_len} tokens and your request has {asked.prompt_tokens} input tokens"
            f" ({asked.max_tokens} > {max_model_len} - {asked.prompt_tokens}).",
            "max_tokens",
        )
    return asked.max_tokens


def _prompt(body: Mapping[str, Any]) -> tuple[bytes, int]:
    """Canonical bytes and token count of `prompt`: a text or token ids."""
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        return prompt.encode(), count_tokens(prompt)
    if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
        return json.dumps(prompt).encode(), len(prompt)
    raise bad_request("prompt must be a text or a list of token ids", "prompt")


def _messages(body: Mapping[str, Any]) -> tuple[bytes, int]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise bad_request("messages must be a list with at least one message", "messages")
    tokens = CHAT_TOKENS_PER_MESSAGE
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise bad_request("each message must be an object with a role", "messages")
        tokens += CHAT_TOKENS_PER_MESSAGE + count_tokens(_content(message.get("content")))
    return json.dumps(messages, sort_keys=True).encode(), tokens


def _content(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    if content is None or isinstance(content, str):
        return content or ""
    raise bad_request("message content must be a text or a list of parts", "messages")


def _max_tokens(body: Mapping[str, Any], chat: bool) -> int | None:
    newer = "max_completion_tokens"
    name = newer if chat and body.get(newer) is not None else "max_tokens"
    value = body.get(name)
    if value is None:
        return None if chat else DEFAULT_COMPLETION_TOKENS
    if type(value) is not int or value < 1:
        raise bad_request(f"{name} must be a whole number of at least 1, got {value!r}", name)
    return value
