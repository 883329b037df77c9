"""Do verifier and speculator know the same turns of a conversation? Added tokens, ends of texts, chat template.

No such difference keeps an engine from starting: it applies the tokenizer and template of the verifier, whose tokens
count. A speculator that was trained with others drafts worse around them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from speculative_operator.domain.spec import Method
from speculative_operator.pairing.codes import Code
from speculative_operator.pairing.compared import vocabulary
from speculative_operator.pairing.findings import Finding
from speculative_operator.pairing.pair import Pair, info, warning

_ENDS = ("bos_token", "eos_token")


def findings(pair: Pair) -> Iterator[Finding]:
    ours, theirs = pair.verifier.tokenizer, pair.speculator.tokenizer
    if pair.inside or vocabulary.differ(pair):
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


def _ends(ours: Mapping[str, str], theirs: Mapping[str, str]) -> Iterator[Finding]:
    for name in _ENDS:
        one, other = ours.get(name), theirs.get(name)
        if one and other and one != other:
            yield info(
                Code.SPECIAL_TOKENS_DIFFER, f"speculator tokenizer_config.json {name}", (one, other),
                "the draft model begins or ends texts with other tokens; the verifier rejects drafts there",
            )  # fmt: skip
