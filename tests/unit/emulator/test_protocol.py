"""Bodies of completion requests: what is understood, what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from speculative_lab.emulator.http.answers import Chunks, Envelope, Plan
from speculative_lab.emulator.http.protocol import ApiError, Generation, generation, output_limit, parse_body
from speculative_lab.emulator.texts import Answer
from speculative_operator.domain.spec import Workload


def completion(**body: Any) -> Generation:
    return generation({"prompt": [1, 2, 3], **body}, {}, chat=False)


def chat(**body: Any) -> Generation:
    return generation({"messages": [{"role": "user", "content": "hello there"}], **body}, {}, chat=True)


def test_defaults() -> None:
    asked = completion()
    assert (asked.prompt_tokens, asked.max_tokens, asked.stream, asked.ignore_eos) == (3, 16, False, False)
    assert chat().max_tokens is None
    assert chat().prompt_tokens == 4 + 4 + 3


@pytest.mark.parametrize(
    ("prompt", "tokens"), [("four" * 5, 5), ([7] * 9, 9), (["four"], 1), ([[1, 2]], 2)], ids=["text", "ids", "a", "b"]
)
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
        ({"min_tokens": -1}, "min_tokens"),
        ({"n": 2}, "n"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"stop": ""}, "stop"),
        ({"stop": [1]}, "stop"),
        ({"model": 3}, "model"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"user": "workload=Poetry"}, "user"),
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


def test_workload_by_header_or_user() -> None:
    assert completion(user="workload=code").workload is Workload.CODE
    asked = generation({"prompt": "x", "user": "somebody"}, {"x-emulator-workload": "Creative"}, chat=False)
    assert asked.workload is Workload.CREATIVE
    assert completion(user="somebody").workload is None


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


def test_text_of_a_stop_is_left_out_wherever_a_stream_is_cut() -> None:
    answer = Answer.to(b"x", 0)
    text = answer.text(0, 9)
    plan = Plan(answer, 9, "stop", stop=text[20:24], cut=20)
    for width in (1, 2, 5, 9):
        assert "".join(plan.text(start, min(start + width, 9)) for start in range(0, 9, width)) == text[:20]


@pytest.mark.parametrize("is_chat", [True, False])
def test_stream_chunks_are_the_json_that_clients_read(is_chat: bool) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    asked = completion(stream=True, stream_options=options, return_token_ids=True)
    chunks = Chunks(Envelope("id-1", 5, 'm"1', is_chat), asked)
    raw = chunks.piece(' a"b', 2, "length", None, [8, 9]).decode()
    assert raw.startswith("data: ")
    assert raw.endswith("\n\n")
    body = json.loads(raw[6:])
    choice = body["choices"][0]
    assert (body["id"], body["model"], body["usage"]["total_tokens"]) == ("id-1", 'm"1', 5)
    assert (choice["delta"]["content"] if is_chat else choice["text"]) == ' a"b'
    assert (choice["finish_reason"], choice["token_ids"]) == ("length", [8, 9])
    last, _, done = chunks.closing(4).decode().partition("\n\n")
    assert json.loads(last[6:])["choices"] == []
    assert done == "data: [DONE]\n\n"
    if is_chat:
        assert json.loads(chunks.opening()[6:])["choices"][0]["delta"]["role"] == "assistant"
    else:
        assert chunks.opening() == b""
