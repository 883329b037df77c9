"""Describes a model's tokenizer as `TokenizerFacts` from whatever files there are, without loading it. Called by
`inspect`.

`tokenizer.json` goes first, as it does for engines. It is read forward and no further than its vocabulary: the merges
that follow it, most of its bytes, are left where they are. Then `vocab.json`, by the same recipe: sha256 over
`number NUL token LF` in UTF-8, ascending by number; its first sixteen hexadecimal digits. Tokens that a model lists as
added too are left out: whether they stand in the vocabulary as well is a habit of converters. The half of a surrogate
pair in `tokenizer.json`, which JSON allows, counts as a question mark.

Of sentencepiece's `tokenizer.model`, tiktoken's ranks and Mistral's `tekken.json` the hash of the file stands for that
of the vocabulary, and compares with no other kind of hash: publishers copy these files as they are.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from speculative_operator.domain.models import TokenizerFacts
from speculative_operator.weights import reading
from speculative_operator.weights.source import Entry, Source

DIGITS = 16
_SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")
_MOST_CONFIG = 16 << 20
_MOST_MODEL = 64 << 20
_FILES = (("tokenizer.model", "sentencepiece"), (".tiktoken", "tiktoken"), ("tiktoken.model", "tiktoken"),
          ("tekken.json", "tekken"))  # fmt: skip
"""End of a file's name -> the kind of tokenizer in it."""
_TOLD = ("model.type", "model.merges", "added_tokens", "added_tokens.item.content", "added_tokens.item.id")
"""Parts of `tokenizer.json` beside the vocabulary that are looked at."""

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
    file_hash: str = ""
    """Hash that stands for that of `vocabulary`, which was not read."""


def facts_of(source: Source, files: Mapping[str, Entry]) -> TokenizerFacts:
    """Facts of a model's tokenizer. `files`: entries of `source` by path. Raises WeightsError where a file cannot be
    read or understood."""
    config = _object(source, files, "tokenizer_config.json")
    tokens = _tokens(source, files, config)
    count, digest = count_and_hash(tokens.vocabulary, {encode(token) for token in tokens.added})
    return TokenizerFacts(
        kind=tokens.kind,
        tokens=0 if tokens.file_hash else count + len(tokens.added),
        vocabulary_hash=tokens.file_hash or digest,
        added_hash=hash_of(tokens.added),
        special=_special({**_object(source, files, "special_tokens_map.json"), **config}),
        chat_template_hash=_template_hash(source, files, config),
    )


def _tokens(source: Source, files: Mapping[str, Entry], config: Mapping[str, Any]) -> _Tokens:
    if "tokenizer.json" in files:
        return _of_tokenizer_json(source, files["tokenizer.json"])
    ends = ((path, kind) for end, kind in _FILES for path in files if "/" not in path and path.endswith(end))
    if found := next(ends, None):
        content = reading.whole(source, files[found[0]], _MOST_MODEL)
        tokens = _Tokens(found[1], file_hash=hashlib.sha256(content).hexdigest()[:DIGITS])
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
