"""Prompts for a SpeculatorTraining from the log of requests that a gateway keeps.

    python3 prompts_of_a_log.py --consent metadata.requester_metadata.training --to prompts.jsonl LOG...

A log is a file of JSON lines, or of one JSON object as LiteLLM writes to a bucket, and may end in .gz. Taken are chats
of text whose field `--consent` is true, each once, and of those a share (`--share`). E-mail addresses, telephone and
other long numbers, IP addresses, links and keys are replaced by [email], [number], [address], [link] and [key], and so
is what `--pattern NAME=REGEX` finds. Names of people and places are not found: read some of the result before you train
on it. Only its owner can read the result. Needs Python 3.9 and nothing else.
"""

import argparse
import gzip
import hashlib
import json
import re
import sys
from collections import Counter
from pathlib import Path

PATTERNS = {
    "link": r"\bhttps?://\S+",
    "email": r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}",
    "address": r"\b\d{1,3}(?:\.\d{1,3}){3}\b"
    r"|(?<![\w:])(?:[0-9a-fA-F]{1,4}:){2,7}:?[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{1,4}){0,6}|(?<![\w:])[0-9a-fA-F]{1,4}::[0-9a-fA-F]{1,4}\b",
    "key": r"(?<![\w-])(?=[A-Za-z_-]*\d)(?=[\d_-]*[A-Za-z])[\w-]{20,}",
    "number": r"(?<!\w)[+(]{0,2}\d(?:[ ()/.-]{0,3}\d){6,}",
}


def records(path):
    """The objects of a log; lines that are none are None."""
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8", errors="replace") as log:
        lines = iter(log)
        first = next(lines, "")
        try:
            yield json.loads(first)
        except ValueError:  # one object over several lines, or a broken line
            rest = list(lines)
            try:
                yield json.loads(first + "".join(rest))
                return
            except ValueError:
                yield None
                lines = iter(rest)
        for line in lines:
            try:
                yield json.loads(line)
            except ValueError:
                yield None


def field(record, path):
    """What a record has at a path such as `metadata.training`."""
    for name in path.split("."):
        record = record.get(name) if isinstance(record, dict) else None
    return record


def chat(record, path):
    """Messages of text, without names and without an answer at the end; None where there are others."""
    messages = field(record, path)
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        return None
    found = [{"role": one.get("role"), "content": one.get("content")} for one in messages]
    while found and found[-1]["role"] == "assistant":
        found.pop()
    fits = all(one["role"] in ("system", "user", "assistant") and isinstance(one["content"], str) for one in found)
    return found if fits and any(one["role"] == "user" for one in found) else None


def redact(text, patterns, counted):
    for name, pattern in patterns.items():
        text, times = pattern.subn(f"[{name}]", text)
        counted[name] += times
    return text


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("logs", nargs="+", metavar="LOG")
    parser.add_argument("--to", required=True, metavar="FILE", help="file of JSON lines to write; must not exist")
    parser.add_argument("--consent", required=True, metavar="PATH", help="field that is true where the user agreed")
    parser.add_argument("--messages", default="messages", metavar="PATH", help="field of the chat (default: messages)")
    parser.add_argument("--share", type=float, default=1.0, help="from 0 to 1, of the chats (default: 1)")
    parser.add_argument("--pattern", action="append", default=[], metavar="NAME=REGEX", help="more to replace")
    given = parser.parse_args(arguments)
    patterns = {**PATTERNS, **dict(one.split("=", 1) for one in given.pattern)}
    patterns = {name: re.compile(pattern) for name, pattern in patterns.items()}
    counted, replaced, known = Counter(), Counter(), set()
    with Path(given.to).open("x", encoding="utf-8") as prompts:
        for path in given.logs:
            for record in records(path):
                messages = chat(record, given.messages)
                digest = hashlib.sha256(json.dumps(messages).encode()).digest()
                if field(record, given.consent) is not True:
                    counted["without consent"] += 1
                    continue
                if messages is None:
                    counted["no chat of text"] += 1
                elif digest in known:
                    counted["seen before"] += 1
                elif int.from_bytes(digest[:8], "big") >= given.share * 2**64:
                    counted["not in the sample"] += 1
                else:
                    counted["written"] += 1
                    known.add(digest)
                    for one in messages:
                        one["content"] = redact(one["content"], patterns, replaced)
                    prompts.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")
    json.dump({"requests": dict(counted), "replaced": dict(replaced)}, sys.stderr, indent=2)
    sys.stderr.write("\n")


if __name__ == "__main__":
    main()
