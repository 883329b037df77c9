"""The example that makes prompts of a gateway's log: nothing without consent, personal data replaced, and lines that a
training reads."""

from __future__ import annotations

import gzip
import io
import json
import runpy
import time
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pytest

from speculative_operator.trainer.look import look

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = runpy.run_path(str(ROOT / "examples" / "pipelines" / "prompts_of_a_log.py"))
RECORDED = ROOT / "tests" / "fixtures" / "requestlog" / "litellm-1.110.2.json"
"""What LiteLLM 1.110.2 hands to the writers of its logs, for a chat of which the request said `training`."""
CONSENT = "metadata.requester_metadata.training"


def run(out: Path, *words: str) -> tuple[list[dict[str, Any]], dict[str, dict[str, int]]]:
    """The prompts, and what is told of them."""
    told = io.StringIO()
    with redirect_stderr(told):
        PROGRAM["main"](["--to", str(out), *words])
    return [json.loads(line) for line in out.read_text().splitlines()], json.loads(told.getvalue())


def log(path: Path, *texts: str, **changes: Any) -> str:
    lines = [{"messages": [{"role": "user", "content": text}], "agreed": True, **changes} for text in texts]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def test_a_chat_of_litellm_is_taken_if_its_user_agreed(tmp_path: Path) -> None:
    out = tmp_path / "prompts.jsonl"
    (prompt,), told = run(out, "--consent", CONSENT, str(RECORDED))
    assert [one["content"] for one in prompt["messages"]] == ["Be brief.", "Write to [email] or [number]"]
    assert told == {
        "requests": {"written": 1},
        "replaced": {"email": 1, "number": 1, **dict.fromkeys(("link", "address", "key"), 0)},
    }
    _, told = run(tmp_path / "none.jsonl", "--consent", "metadata.requester_metadata.other", str(RECORDED))
    assert told["requests"] == {"without consent": 1}


@pytest.mark.parametrize("agreed", ["true", 1, None, {}, [True]])
def test_consent_is_true_and_nothing_else(tmp_path: Path, agreed: Any) -> None:
    told = run(tmp_path / "out", "--consent", "agreed", log(tmp_path / "log", "Hello", agreed=agreed))[1]
    assert told["requests"] == {"without consent": 1}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("see https://example.com/jane?token=1 now", "see [link] now"),
        ("ask j.doe+x@mail.example.co.uk.", "ask [email]."),
        ("from 10.1.2.3 or fe80::1", "from [address] or [address]"),
        ("at 2001:db8:0:1:1:1:1:1 and 2001:db8::8a2e:370:7334", "at [address] and [address]"),
        ("call (0)30 / 123 45-67, card 4111 1111 1111 1111", "call [number], card [number]"),
        ("call +49 (0)30 123 45-67", "call [number]"),
        ("it is sk-abcdefghij0123456789xyz", "it is [key]"),
        ("DE89370400440532013000 pays", "[key] pays"),
        ("3 apples and 12 pears cost 4.50 at 12:30", "3 apples and 12 pears cost 4.50 at 12:30"),
        (
            "class Foo::Bar in an internationalization-friendly way",
            "class Foo::Bar in an internationalization-friendly way",
        ),
    ],
)
def test_what_patterns_find_is_replaced(tmp_path: Path, text: str, left: str) -> None:
    (prompt,), _ = run(tmp_path / "out", "--consent", "agreed", log(tmp_path / "log", text))
    assert prompt["messages"][0]["content"] == left


def test_own_patterns_are_replaced_too(tmp_path: Path) -> None:
    words = ("--consent", "agreed", "--pattern", "customer=C-\\d+", log(tmp_path / "log", "of C-42"))
    (prompt,), told = run(tmp_path / "out", *words)
    assert prompt["messages"][0]["content"] == "of [customer]"
    assert told["replaced"]["customer"] == 1


def test_a_share_of_the_chats_is_taken_each_once_and_a_training_reads_them(tmp_path: Path) -> None:
    asked = log(tmp_path / "log", *(f"Tell of {word}." for word in map(chr, range(65, 91)) for _ in "ab"))
    (tmp_path / "log.gz").write_bytes(gzip.compress(Path(asked).read_bytes() + b"not JSON\n[]\n"))
    prompts, told = run(tmp_path / "all.jsonl", "--consent", "agreed", asked, f"{asked}.gz")
    assert told["requests"] == {"written": 26, "seen before": 78, "without consent": 2}
    assert look(tmp_path / "all.jsonl", tmp_path / "output", 1, {"of": "it"}, answered=False)["rows"] == 26
    some, told = run(tmp_path / "some.jsonl", "--consent", "agreed", "--share", "0.5", asked)
    assert [one for one in prompts if one in some] == some
    assert 5 < len(some) < 21


@pytest.mark.parametrize("content", [[{"type": "image_url"}], None, 3])
def test_other_than_text_is_left_out(tmp_path: Path, content: Any) -> None:
    asked = log(tmp_path / "log", "", messages=[{"role": "user", "content": content}])
    assert run(tmp_path / "out", "--consent", "agreed", asked)[1]["requests"] == {"no chat of text": 1}


def test_a_file_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(FileExistsError):
        run(tmp_path / "out", "--consent", "agreed", log(tmp_path / "log", "Hello"))
    assert (tmp_path / "out").read_text() == "mine"


@pytest.mark.parametrize("part", ["a", "a-", "1:", "1 ", "a.", "1a"])
def test_long_texts_take_no_long_time(tmp_path: Path, part: str) -> None:
    began = time.monotonic()
    run(tmp_path / "out", "--consent", "agreed", log(tmp_path / "log", part * 200_000))
    assert time.monotonic() - began < 30, "a pattern whose time grows with the square of the text takes an hour"
