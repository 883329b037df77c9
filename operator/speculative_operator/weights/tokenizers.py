"""Describes a model's tokenizer as `TokenizerFacts` from whatever files there are, without loading it. Called by
`inspect`.

`tokenizer.json` goes first, as it does for engines. It is read forward and no further than its vocabulary: the merges
that follow it, most of its bytes, are left where they are. Without it: sentencepiece's `tokenizer.model`, tiktoken's
ranks, Mistral's `tekken.json`, `vocab.json`.

The hash of a vocabulary: sha256 over `number NUL token LF` in UTF-8, ascending by number; its first sixteen hexadecimal
digits. Tokens that a model lists as added too are left out: whether they stand in the vocabulary as well is a habit of
converters. The half of a surrogate pair in `tokenizer.json`, which JSON allows, counts as a question mark.
"""

from __future__ import annotations

import base64
import hashlib
import operator
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import ijson

from speculative_operator.domain.models import TokenizerFacts
from speculative_operator.weights import reading
from speculative_operator.weights.source import Entry, Source

DIGITS = 16
_SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")
_MOST_CONFIG = 16 << 20
_MOST_MODEL = 64 << 20
_TIKTOKEN = (".tiktoken", "tiktoken.model")
_UNKNOWN, _CONTROL = 2, 3
_TOLD = ("model.type", "model.merges", "added_tokens", "added_tokens.item.content", "added_tokens.item.id")
"""Parts of `tokenizer.json` beside the vocabulary that are looked at."""
_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5


Vocabulary = list[tuple[int, bytes]]
"""Tokens with their numbers, in any order."""


def count_and_hash(vocabulary: Vocabulary, left_out: Collection[bytes] = ()) -> tuple[int, str]:
    """Number of tokens that remain without `left_out`, and their hash; an empty hash where none remain."""
    digest, count = hashlib.sha256(), 0
    for number, token in sorted(vocabulary, key=operator.itemgetter(0)):
        if token not in left_out:
            digest.update(b"%d\0%b\n" % (number, token))
            count += 1
    return count, digest.hexdigest()[:DIGITS] if count else ""


@dataclass
class _Tokens:
    kind: str = ""
    vocabulary: Vocabulary = field(default_factory=list)
    added: dict[str, int] = field(default_factory=dict)
    summary: tuple[int, str] | None = None
    """Number of tokens and their hash, where they are not those of `vocabulary`."""


def facts_of(source: Source, files: Mapping[str, Entry]) -> TokenizerFacts:
    """Facts of a model's tokenizer. `files`: entries of `source` by path. Raises WeightsError where a file cannot be
    read or understood."""
    config = _object(source, files, "tokenizer_config.json")
    tokens = _tokens(source, files, config)
    summed = tokens.summary or count_and_hash(tokens.vocabulary, {encode(token) for token in tokens.added})
    return TokenizerFacts(
        kind=tokens.kind,
        tokens=summed[0] + len(tokens.added),
        vocabulary_hash=summed[1],
        added_hash=hash_of(tokens.added),
        special=_special({**_object(source, files, "special_tokens_map.json"), **config}),
        chat_template_hash=_template_hash(source, files, config),
    )


def _tokens(source: Source, files: Mapping[str, Entry], config: Mapping[str, Any]) -> _Tokens:
    tiktoken = next((path for path in files if "/" not in path and path.endswith(_TIKTOKEN)), "")
    if "tokenizer.json" in files:
        return _of_tokenizer_json(source, files["tokenizer.json"])
    if "tokenizer.model" in files:
        tokens = _of_model(source, files["tokenizer.model"])
    elif tiktoken:
        tokens = _of_model(source, files[tiktoken])
    elif "tekken.json" in files:
        return _of_tekken(source, files["tekken.json"])
    elif "vocab.json" in files:
        vocabulary = reading.json_object(source, files["vocab.json"], _MOST_CONFIG)
        with reading.wrap_parse_errors(source, files["vocab.json"]):
            tokens = _Tokens("BPE", collect(vocabulary.items()))
    else:
        return _Tokens()
    tokens.added |= _tokens_added_elsewhere(source, files, config)
    return tokens


def _of_tokenizer_json(source: Source, entry: Entry) -> _Tokens:
    tokens, key, seen = _Tokens(), "", dict[str, list[Any]]()
    with reading.wrap_parse_errors(source, entry):
        for prefix, kind, value in reading.events(source, entry):
            if prefix == "model.vocab":
                key = value if kind == "map_key" else key
            elif prefix == "model.vocab.item.item" and kind == "string":  # with a score, and numbered by position
                tokens.vocabulary.append((len(tokens.vocabulary), encode(value)))
            elif prefix == f"model.vocab.{key}":
                tokens.vocabulary.append((whole_number(value), encode(key)))
            elif prefix in _TOLD:
                seen.setdefault(prefix, []).append(value)
            elif not prefix and kind not in ("start_map", "map_key", "end_map"):
                raise ValueError("no object")
            if prefix == "model.merges" and "added_tokens" in seen and tokens.vocabulary:
                break
        plain = "" if not tokens.vocabulary else "BPE" if "model.merges" in seen else "" if key else "Unigram"
        tokens.kind = str(seen.get("model.type", [plain])[0])
        contents, numbers = (seen.get(f"added_tokens.item.{name}", []) for name in ("content", "id"))
        tokens.added = dict(zip(map(str, contents), map(whole_number, numbers), strict=True))
    return tokens


def _of_model(source: Source, entry: Entry) -> _Tokens:
    """Tokens of `tokenizer.model`: sentencepiece's message, or tiktoken's lines of token and rank under the same
    name."""
    content = reading.whole(source, entry, _MOST_MODEL)
    with reading.wrap_parse_errors(source, entry):
        if content[:1] == b"\n":
            tokens = _Tokens("sentencepiece")
            for number, (text, plain) in enumerate(_pieces(content)):
                if plain:
                    tokens.vocabulary.append((number, text))
                else:
                    tokens.added[text.decode("utf-8", "replace")] = number
            return tokens
        tokens = _Tokens("tiktoken")
        for line in content.splitlines():
            if line:
                token, _, rank = line.partition(b" ")
                tokens.vocabulary.append((int(rank), base64.b64decode(token, validate=True)))
    return tokens


def _pieces(message: bytes) -> Iterator[tuple[bytes, bool]]:
    """Yield text and plainness of the pieces of a sentencepiece model in the order of their numbers, read without the
    library; the unknown token and control tokens such as `<s>` are not plain. Raises ValueError for what is no such
    message.

    Fields after sentencepiece's `sentencepiece_model.proto`: `ModelProto.pieces = 1`; of a piece `piece = 1`,
    `type = 3` with NORMAL 1 (the default), UNKNOWN 2, CONTROL 3, USER_DEFINED 4, UNUSED 5, BYTE 6.
    """
    for number, content in _fields(message):
        if number == 1 and isinstance(content, bytes):
            inner = dict(_fields(content))
            text = inner.get(1, b"")
            if not isinstance(text, bytes):
                raise ValueError("a piece without text")
            yield text, inner.get(3, 1) not in (_UNKNOWN, _CONTROL)


def _fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield tag >> 3, value
            continue
        if kind == _DELIMITED:
            size, at = _varint(message, at)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if at + size > len(message):
            raise ValueError("a field that ends beyond the message")
        yield tag >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
    raise ValueError("a number without end")


def _of_tekken(source: Source, entry: Entry) -> _Tokens:
    """Tokens of Mistral's file, with an object per token; the hash of the file stands for that of its vocabulary."""
    content = reading.whole(source, entry, _MOST_MODEL)
    with reading.wrap_parse_errors(source, entry):
        size = whole_number(next(ijson.items(content, "config.default_vocab_size"), None))
    return _Tokens("tekken", summary=(size, hashlib.sha256(content).hexdigest()[:DIGITS]))


def _tokens_added_elsewhere(source: Source, files: Mapping[str, Entry], config: Mapping[str, Any]) -> dict[str, int]:
    """The added tokens of a tokenizer without `tokenizer.json`, with their numbers."""
    added = {str(token): int(number) for token, number in _object(source, files, "added_tokens.json").items()}
    listed = config.get("added_tokens_decoder")
    for number, one in (listed if isinstance(listed, dict) else {}).items():
        if isinstance(one, dict) and str(number).isdecimal() and isinstance(one.get("content"), str):
            added[one["content"]] = int(number)
    return added


def _special(config: Mapping[str, Any]) -> dict[str, str]:
    special: dict[str, str] = {}
    for name in _SPECIAL:
        token = config.get(name)
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str):
            special[name] = text
    return special


def _template_hash(source: Source, files: Mapping[str, Entry], config: Mapping[str, Any]) -> str:
    """Hash of the chat template: of `chat_template.jinja`, which goes before the template in `tokenizer_config.json`;
    spaces at the end do not count. Empty without a template."""
    if "chat_template.jinja" in files:
        text = reading.whole(source, files["chat_template.jinja"], _MOST_CONFIG).decode("utf-8", "replace")
    else:
        template = config.get("chat_template") or _object(source, files, "chat_template.json").get("chat_template")
        if isinstance(template, list):
            by_name = {one.get("name"): one.get("template") for one in template if isinstance(one, dict)}
            template = by_name.get("default")
        text = template if isinstance(template, str) else ""
    text = text.rstrip()
    return hashlib.sha256(encode(text)).hexdigest()[:DIGITS] if text else ""


def _object(source: Source, files: Mapping[str, Entry], path: str) -> Mapping[str, Any]:
    return reading.json_object(source, files[path], _MOST_CONFIG) if path in files else {}


def hash_of(tokens: Mapping[str, int]) -> str:
    """Hash of a few tokens, made as that of a whole vocabulary."""
    return count_and_hash(collect(tokens.items()))[1]


def collect(pairs: Iterable[tuple[str, int]]) -> Vocabulary:
    """The vocabulary of pairs of token and number."""
    return [(whole_number(number), encode(token)) for token, number in pairs]


def whole_number(value: Any) -> int:
    """`value` where it is a whole number of at most 64 bits. Raises ValueError otherwise."""
    if not isinstance(value, int) or value.bit_length() > 63:
        raise ValueError(f"{value!r} where a token's number belongs")
    return value


def encode(token: str) -> bytes:
    """The bytes of a token that enter the hash; halves of surrogate pairs, which JSON allows, are taken too."""
    return token.encode("utf-8", "surrogatepass")
