"""Bodies of completion requests: what is understood, what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from speculative_lab.emulator.http.protocol import ApiError, Generation, generation, output_limit


def completion(**body: Any) -> Generation:
    return generation(json.dumps({"prompt": [1, 2, 3], **body}).encode(), chat=False)


def chat(**body: Any) -> Generation:
    asked = {"messages": [{"role": "user", "content": "hello there"}], **body}
    return generation(json.dumps(asked).encode(), chat=True)


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
        ({"prompt": None}, "prompt"),
        ({"prompt": [1, "b"]}, "prompt"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": "9"}, "max_tokens"),
    ],
    ids=str,
)
def test_refusals_name_the_field(body: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as raised:
        completion(**body)
    error = raised.value.body()["error"]
    assert (error["param"], error["code"], error["type"]) == (param, 400, "BadRequestError")


@pytest.mark.parametrize("messages", [None, [], ["hi"]], ids=str)
def test_wrong_messages(messages: Any) -> None:
    with pytest.raises(ApiError, match="message"):
        chat(messages=messages)


@pytest.mark.parametrize("raw", [b"{", b"[1]", b"\xff\xfe", b""])
def test_bodies_that_are_no_json_objects(raw: bytes) -> None:
    with pytest.raises(ApiError) as raised:
        generation(raw, chat=False)
    assert raised.value.status == 400


def test_chat_parts_and_newer_limit_name() -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "12345678"}]}]
    assert chat(messages=parts, max_completion_tokens=7, max_tokens=9).max_tokens == 7
    assert chat(messages=parts).prompt_tokens == 4 + 4 + 2


def test_room_in_the_context() -> None:
    assert output_limit(chat(), 100) == 89
    assert output_limit(completion(max_tokens=97), 100) == 97
    with pytest.raises(ApiError, match="too large: 98"):
        output_limit(completion(max_tokens=98), 100)
    with pytest.raises(ApiError, match="maximum context length is 3 tokens"):
        output_limit(completion(), 3)
