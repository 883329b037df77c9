"""Do tokens mean the same to both? Tokenizers, sizes of vocabularies, maps of heads that draft from a part, and turns.

A speculator hands token ids to the verifier. Where ids stand for other text, the verifier accepts them by chance only;
where they are beyond the verifier's embedding, the engine fails. Called by `judge`, which also tells by `differ` how
the two models are related.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from speculative_operator.domain.spec import Method
from speculative_operator.pairing import reading, speculator_files
from speculative_operator.pairing.findings import Code, Finding, error, info, warning
from speculative_operator.pairing.pair import INNER, Fact, Pair

PADDING = 0.02
"""Share by which two embeddings of one vocabulary may differ: rows are padded to multiples of 64, 128 or more. Qwen2.5
has 151,936 and 152,064 rows for one vocabulary, which is 0.08 %."""
_MAP = ("d2t", "draft_id_to_target_id")
_ENDS = ("bos_token", "eos_token")
_HASHED_WHOLE = {"sentencepiece", "tiktoken", "tekken"}
"""Kinds of tokenizers whose hash is that of their file, which compares with no other kind of hash."""


def findings(pair: Pair) -> Iterator[Finding]:
    if pair.inside:
        return
    yield from _tokenizers(pair)
    if pair.method is Method.DRAFT_MODEL:
        yield from _sizes_of_models(pair)
    else:
        yield from _size_of_head(pair)
    if pair.method in INNER:
        yield from _draft_vocabulary(pair)


def turns(pair: Pair) -> Iterator[Finding]:
    """Findings on added tokens, ends of texts and the chat template: the turns of a conversation.

    No such difference keeps an engine from starting: it applies the tokenizer and template of the verifier, whose
    tokens count. A speculator that was trained with others drafts worse around them.
    """
    ours, theirs = pair.verifier.tokenizer, pair.speculator.tokenizer
    if pair.inside or differ(pair):
        return
    if ours.added_hash and theirs.added_hash and ours.added_hash != theirs.added_hash:
        yield warning(
            Code.ADDED_TOKENS_DIFFER, "speculator tokenizer.json added_tokens", (ours.added_hash, theirs.added_hash),
            "tokens for roles, tools or thinking differ: the verifier rejects drafts around them",
            "prefer a speculator of the verifier's own generation",
        )  # fmt: skip
    if pair.method is not Method.DRAFT_MODEL:
        return
    yield from _ends(ours.special, theirs.special)
    if ours.chat_template_hash and theirs.chat_template_hash and ours.chat_template_hash != theirs.chat_template_hash:
        values = (ours.chat_template_hash, theirs.chat_template_hash)
        message = "the engine applies the verifier's template, but the draft model was trained with another one"
        yield info(Code.CHAT_TEMPLATE_DIFFERS, "speculator tokenizer_config.json chat_template", values, message)


def differ(pair: Pair) -> bool | None:
    """True when the vocabularies are known to differ, False when known to be one; None when unknown."""
    ours, theirs = pair.verifier.tokenizer, pair.speculator.tokenizer
    if not ours.vocabulary_hash or not theirs.vocabulary_hash:
        return None
    if ours.kind != theirs.kind and {ours.kind, theirs.kind} & _HASHED_WHOLE:
        return None
    return ours.vocabulary_hash != theirs.vocabulary_hash


def differ_by_padding(one: int, other: int) -> bool:
    """True when two sizes may be one vocabulary with different padding."""
    return abs(one - other) <= PADDING * max(one, other)


def _tokenizers(pair: Pair) -> Iterator[Finding]:
    ours, theirs = pair.verifier.tokenizer, pair.speculator.tokenizer
    field, values = (
        "speculator tokenizer.json",
        (_token_list(ours.kind, ours.tokens), _token_list(theirs.kind, theirs.tokens)),
    )
    different = differ(pair)
    if pair.requested.heterogeneous_vocabulary:
        yield from _mapping_findings(pair, different, values)
        return
    if not different:
        return
    if _akin(pair):
        yield warning(
            Code.VOCABULARY_DIFFERS, field, values,
            "family and size are the same, but some tokens differ; the verifier rejects drafts of those",
            "compare the two tokenizers, and use the speculator made for this verifier",
        )  # fmt: skip
        return
    remedy = "use a speculator with the verifier's tokenizer"
    if pair.method is Method.DRAFT_MODEL and pair.rules.has(Fact.HETEROGENEOUS):
        remedy += ", or set spec.speculator.heterogeneousVocabulary: true"
    message = "token ids mean other text than the verifier's: drafts would be accepted only by chance"
    yield error(Code.VOCABULARY_DIFFERS, field, values, message, remedy)


def _mapping_findings(pair: Pair, different: bool | None, values: tuple[object, object]) -> Iterator[Finding]:
    field = "spec.speculator.heterogeneousVocabulary"
    if different is False and reading.vocabulary_size(pair.verifier) == reading.vocabulary_size(pair.speculator):
        message = (
            "both models have the same vocabulary; mapping it costs time in every step and excludes faster runners"
        )
        yield warning(Code.MAPPING_UNNEEDED, field, values, message, "set it to false")
    elif different:
        message = "vLLM maps the vocabularies; tokens that only one of them has are never drafted"
        yield info(Code.VOCABULARY_MAPPED, field, values, message)


def _sizes_of_models(pair: Pair) -> Iterator[Finding]:
    ours, theirs = reading.vocabulary_size(pair.verifier), reading.vocabulary_size(pair.speculator)
    if ours is None or theirs is None or ours == theirs or pair.requested.heterogeneous_vocabulary:
        return
    field, values = "speculator config.json vocab_size", (ours, theirs)
    if pair.rules.has(Fact.SAME_VOCABULARY_SIZE):
        padding = " (the same tokenizer with other padding)" if differ(pair) is False else ""
        remedy = "use a speculator with the verifier's vocab_size"
        if pair.rules.has(Fact.HETEROGENEOUS):
            remedy += ", or set spec.speculator.heterogeneousVocabulary: true"
        message = f"{pair.rules.engine} refuses a draft model of another vocab_size{padding}"
        yield error(Code.VOCABULARY_SIZE_DIFFERS, field, values, message, remedy)
    elif not differ_by_padding(ours, theirs) and differ(pair) is None:
        message = "sizes differ by more than padding: the tokenizers are probably different"
        yield warning(Code.VOCABULARY_SIZE_DIFFERS, field, values, message, "use a speculator of the same family")
    elif differ_by_padding(ours, theirs):
        yield info(Code.VOCABULARY_SIZE_DIFFERS, field, values, "one is padded further than the other")


def _size_of_head(pair: Pair) -> Iterator[Finding]:
    ours = reading.vocabulary_size(pair.verifier)
    if (own := _size_without_map(pair)) is not None:
        message = (
            f"the head drafts {ours} tokens, as many as the verifier has, of a vocabulary of {own}: "
            f"{pair.rules.engine} then reads no map, and ends at the first draft"
        )
        remedy = "set its vocab_size to its draft_vocab_size, or use a speculator that was trained for this verifier"
        yield error(Code.VOCABULARY_SIZE_DIFFERS, "speculator config.json vocab_size", (ours, own), message, remedy)
        return
    for field, theirs in _sizes_of_head(pair):
        if ours is None or ours == theirs:
            continue
        if differ_by_padding(ours, theirs):
            message = "probably of one vocabulary with other padding"
            yield info(Code.VOCABULARY_SIZE_DIFFERS, field, (ours, theirs), message)
            continue
        message = "the head was trained for another vocabulary: its token ids are not the verifier's"
        remedy = "use a speculator that was trained for this verifier"
        yield error(Code.VOCABULARY_SIZE_DIFFERS, field, (ours, theirs), message, remedy)
        return


def _size_without_map(pair: Pair) -> int | None:
    """The head's `vocab_size` where it is another than its `draft_vocab_size`, and that is the verifier's."""
    ours, own = reading.vocabulary_size(pair.verifier), reading.vocabulary_size(pair.speculator)
    drafts = speculator_files.draft_vocabulary_size(pair.speculator)
    whole = pair.method is Method.EAGLE3 and pair.rules.has(Fact.WHOLE_HEADS) and drafts is not None and drafts == ours
    return own if whole and own != drafts else None


def _sizes_of_head(pair: Pair) -> Iterator[tuple[str, int]]:
    """(field, tokens) of what tells the size of the vocabulary that the head was trained for."""
    if size := reading.vocabulary_size(pair.speculator):
        yield "speculator config.json vocab_size", size
    mask = reading.shape(pair.speculator, "t2d")
    if mask is not None and len(mask[1]) == 1 and mask[1][0] > 0:
        yield f"speculator tensor {mask[0]}", mask[1][0]


def _draft_vocabulary(pair: Pair) -> Iterator[Finding]:
    ours = reading.vocabulary_size(pair.verifier)
    drafts = speculator_files.draft_vocabulary_size(pair.speculator)
    if drafts is None:
        return
    field = "speculator config.json draft_vocab_size"
    if ours is not None and drafts > ours and not differ_by_padding(drafts, ours):
        message = "the head may draft ids beyond the verifier's vocabulary, which have no embedding"
        remedy = "use a speculator that was trained for this verifier"
        yield error(Code.DRAFT_VOCABULARY_TOO_LARGE, field, (ours, drafts), message, remedy)
        return
    found = reading.shape(pair.speculator, *_MAP)
    if found is not None and found[1] != (drafts,):
        yield _shape_finding(f"speculator tensor {found[0]}", (drafts,), found[1])
    partial = ours is not None and drafts < ours and not differ_by_padding(drafts, ours)
    if found is None and partial and reading.headers_read(pair.speculator):
        message = f"the head drafts {drafts} of {ours} tokens, without a tensor d2t that says which"
        remedy = "export the speculator again with its d2t map, or use another"
        yield error(Code.DRAFT_MAP_MISSING, "speculator tensor d2t", (ours, drafts), message, remedy)
    head = reading.shape(pair.speculator, "lm_head.weight")
    if head is not None and len(head[1]) == 2 and not reading.quantization(pair.speculator) and head[1][0] != drafts:
        yield _shape_finding(f"speculator tensor {head[0]}", (drafts,), head[1])


def _shape_finding(field: str, wanted: tuple[int, ...], found: tuple[int, ...]) -> Finding:
    message = f"config.json promises {wanted[0]} drafted tokens (draft_vocab_size), which the tensor does not have"
    remedy = "use config.json and weights of the same version of the speculator"
    return error(Code.DRAFT_MAP_SHAPE, field, (None, found), message, remedy)


def _akin(pair: Pair) -> bool:
    """True when the tokenizers may differ by a few tokens only: one family, kind, number of tokens and rows."""
    ours, theirs = pair.verifier.tokenizer, pair.speculator.tokenizer
    family = reading.model_type(pair.verifier)
    head = pair.method is not Method.DRAFT_MODEL
    return (
        ours.kind == theirs.kind
        and ours.tokens == theirs.tokens
        and reading.vocabulary_size(pair.verifier) == reading.vocabulary_size(pair.speculator)
        and (head or (family != "" and family == reading.model_type(pair.speculator)))
    )


def _token_list(kind: str, tokens: int) -> str:
    return f"{kind or 'unknown kind'}, {tokens} tokens" if tokens else kind


def _ends(ours: Mapping[str, str], theirs: Mapping[str, str]) -> Iterator[Finding]:
    for name in _ENDS:
        one, other = ours.get(name), theirs.get(name)
        if one and other and one != other:
            yield info(
                Code.SPECIAL_TOKENS_DIFFER, f"speculator tokenizer_config.json {name}", (one, other),
                "the draft model begins or ends texts with other tokens; the verifier rejects drafts there",
            )  # fmt: skip
