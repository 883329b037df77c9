"""Request bodies to `Generation` values, with vLLM's checks and error texts (pure). Called by `http.completions`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from speculative_lab.emulator.settings import workload
from speculative_lab.emulator.texts import CHAT_TOKENS_PER_MESSAGE, count_tokens
from speculative_operator.domain.spec import Workload

DEFAULT_COMPLETION_TOKENS = 16
WORKLOAD_HEADER = "x-emulator-workload"


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
    min_tokens: int = 0
    ignore_eos: bool = False
    stops: tuple[str, ...] = ()
    include_stop: bool = False
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    token_ids: bool = False
    unsupported_with_drafts: bool = False
    """It uses sampling parameters that vLLM refuses while it speculates (min_p, logit_bias)."""
    workload: Workload | None = None
    """Class that the client names in a header or in `user` ("workload=Code"); None: the process's own."""


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


def generation(body: Mapping[str, Any], headers: Mapping[str, str], chat: bool) -> Generation:
    """The checked request; raises ApiError 400 naming the field."""
    prompt, tokens = _messages(body) if chat else _prompt(body)
    options = body.get("stream_options")
    stream = bool(body.get("stream"))
    if options is not None and not stream:
        raise bad_request("Stream options can only be defined when `stream=True`.", "stream_options")
    options = options if isinstance(options, Mapping) else {}
    _check_sampling(body)
    return Generation(
        chat=chat,
        model=_optional_text(body, "model"),
        prompt=prompt,
        prompt_tokens=tokens,
        max_tokens=_max_tokens(body, chat),
        min_tokens=_whole(body, "min_tokens", 0) or 0,
        ignore_eos=bool(body.get("ignore_eos")),
        stops=_stops(body.get("stop")),
        include_stop=bool(body.get("include_stop_str_in_output")),
        stream=stream,
        include_usage=bool(options.get("include_usage")),
        continuous_usage=bool(options.get("continuous_usage_stats")),
        token_ids=bool(body.get("return_token_ids")),
        unsupported_with_drafts=bool(body.get("min_p") or body.get("logit_bias")),
        workload=_workload(body, headers),
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
    """Canonical bytes and token count of `prompt`: a text, token ids, or a list that holds one of these."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        if len(prompt) > 1:
            raise bad_request("several prompts in one request are not emulated; send one request for each", "prompt")
        prompt = prompt[0]
    if isinstance(prompt, str):
        return prompt.encode(), count_tokens(prompt)
    if isinstance(prompt, list) and all(type(token) is int for token in prompt):
        if not prompt:
            raise bad_request("The decoder prompt cannot be empty", "prompt")
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


def _check_sampling(body: Mapping[str, Any]) -> None:
    if (body.get("n") or 1) != 1:
        raise bad_request("n other than 1 is not emulated", "n")
    temperature = body.get("temperature")
    if temperature is not None and (not isinstance(temperature, (int, float)) or temperature < 0):
        raise bad_request(f"temperature must be non-negative, got {temperature}.", "temperature")
    top_p = body.get("top_p")
    if top_p is not None and (not isinstance(top_p, (int, float)) or not 0 < top_p <= 1):
        raise bad_request(f"top_p must be in (0, 1], got {top_p}.", "top_p")


def _max_tokens(body: Mapping[str, Any], chat: bool) -> int | None:
    value = _whole(
        body, "max_completion_tokens" if chat and body.get("max_completion_tokens") is not None else "max_tokens", 1
    )
    if value is None and not chat:
        return DEFAULT_COMPLETION_TOKENS
    return value


def _whole(body: Mapping[str, Any], name: str, least: int) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if type(value) is not int:
        raise bad_request(f"{name}: Input should be a valid integer, got {value!r}", name)
    if value < least:
        raise bad_request(f"{name} must be at least {least}, got {value}.", name)
    return value


def _optional_text(body: Mapping[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise bad_request(f"{name}: Input should be a valid string, got {value!r}", name)
    return value


def _stops(value: Any) -> tuple[str, ...]:
    if value is None or value == []:
        return ()
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise bad_request("stop must be a text or a list of texts", "stop")
    if "" in stops:
        raise bad_request("stop cannot contain an empty string.", "stop")
    return tuple(stops)


def _workload(body: Mapping[str, Any], headers: Mapping[str, str]) -> Workload | None:
    user = body.get("user")
    named = headers.get(WORKLOAD_HEADER) or (user.partition("workload=")[2] if isinstance(user, str) else "")
    if not named:
        return None
    try:
        return workload(named)
    except ValueError:
        known = ", ".join(Workload)
        raise bad_request(f"workload {named!r} is unknown; give one of {known}", "user") from None
