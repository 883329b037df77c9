"""Bodies of completion requests: what is understood, what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from speculative_lab.emulator.http.answers import Chunks, Envelope
from speculative_lab.emulator.http.protocol import ApiError, Generation, generation, output_limit, parse_body


def completion(**body: Any) -> Generation:
    return generation({"prompt": [1, 2, 3], **body}, chat=False)


def chat(**body: Any) -> Generation:
    return generation({"messages": [{"role": "user", "content": "hello there"}], **body}, chat=True)


def test_defaults() -> None:
    asked = completion()
    assert (asked.prompt_tokens, asked.max_tokens, asked.stream, asked.ignore_eos) == (3, 16, False, False)
    assert chat().max_tokens is None
    assert chat().prompt_tokens == 4 + 4 + 3


@pytest.mark.parametrize(("prompt", "tokens"), [("four" * 5, 5), ([7] * 9, 9)], ids=["text", "ids"])
def test_forms_of_a_prompt(prompt: Any, tokens: int) -> None:
    assert completion(prompt=prompt).prompt_tokens == tokens


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [1, "b"]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "9"}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
    ],
    ids=str,
)
def test_refusals_name_the_field(body: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as raised:
        completion(**body)
    assert raised.value.status == 400
    error = raised.value.body()["error"]
    assert (error["param"], error["code"], error["type"]) == (param, 400, "BadRequestError")


@pytest.mark.parametrize("messages", [None, [], ["hi"], [{"content": "x"}], [{"role": "user", "content": 3}]], ids=str)
def test_wrong_messages(messages: Any) -> None:
    with pytest.raises(ApiError, match="message"):
        chat(messages=messages)


@pytest.mark.parametrize("raw", [b"{", b"[1]", b"\xff\xfe", b""])
def test_bodies_that_are_no_json_objects(raw: bytes) -> None:
    with pytest.raises(ApiError) as raised:
        parse_body(raw)
    assert raised.value.status == 400


def test_chat_parts_and_newer_limit_name() -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "12345678"}]}]
    assert chat(messages=parts, max_completion_tokens=7, max_tokens=9).max_tokens == 7
    assert chat(messages=parts).prompt_tokens == 4 + 4 + 2


def test_room_in_the_context() -> None:
    assert output_limit(chat(), 100) == 89
    assert output_limit(completion(max_tokens=97), 100) == 97
    with pytest.raises(ApiError) as raised:
        output_limit(completion(max_tokens=98), 100)
    assert str(raised.value) == (
        "'max_tokens' or 'max_completion_tokens' is too large: 98. This model's maximum context length is 100 tokens"
        " and your request has 3 input tokens (98 > 100 - 3)."
    )
    with pytest.raises(ApiError, match="maximum context length is 3 tokens"):
        output_limit(completion(), 3)


@pytest.mark.parametrize("is_chat", [True, False])
def test_stream_chunks_are_the_json_that_clients_read(is_chat: bool) -> None:
    chunks = Chunks(Envelope("id-1", 5, 'm"1', is_chat, 3), includes_usage=True)
    raw = chunks.text_chunk(' a"b', "length").decode()
    assert raw.startswith("data: ")
    assert raw.endswith("\n\n")
    body = json.loads(raw[6:])
    choice = body["choices"][0]
    assert (body["id"], body["model"]) == ("id-1", 'm"1')
    assert (choice["delta"]["content"] if is_chat else choice["text"]) == ' a"b'
    assert choice["finish_reason"] == "length"
    last, _, done = chunks.closing(4).decode().partition("\n\n")
    told = json.loads(last[6:])
    assert (told["choices"], told["usage"]["total_tokens"]) == ([], 7)
    assert done == "data: [DONE]\n\n"
    if is_chat:
        assert json.loads(chunks.opening()[6:])["choices"][0]["delta"]["role"] == "assistant"
    else:
        assert chunks.opening() == b""
