"""Evaluates the rules of the API as they stand in CEL, for objects that no API server has checked with them: files that
the command line reads, and objects that were stored before a rule existed.

Called by `convert`, and by `wire` for the forms of texts. Knows as much of CEL as rules use: field access, `has`,
operators, lists, strings, durations and macros on lists. Tests hold it to the answers of a real API server.
"""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any

LONGEST = 120
"""Characters of a value in a message."""

Scope = Mapping[str, Any]
Expression = Callable[[Scope], Any]

_TOKEN = re.compile(r"\s*(?:(\d+)|'((?:\\.|[^'\\])*)'|(\w+)|(&&|\|\||[=!<>]=|.))", re.DOTALL)
_UNIT_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


def seconds(duration: str) -> float:
    """Seconds of a duration such as `40ms` or `1m30s`."""
    return sum(float(n) * _UNIT_SECONDS[unit] for n, unit in re.findall(r"([0-9.]+)(us|ms|s|m)", duration))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "size": len,
    "duration": seconds,
    "substring": lambda text, first, end=None: text[first:end],
    "startsWith": str.startswith,
    "matches": lambda text, pattern: re.search(re.sub(r"\$$", r"\\Z", pattern), text) is not None,
    "isSorted": lambda items: all(one <= other for one, other in itertools.pairwise(items)),
}
_MACROS: dict[str, Callable[[list[Any], Iterator[Any]], Any]] = {
    "all": lambda items, found: all(found),
    "exists": lambda items, found: any(found),
    "exists_one": lambda items, found: sum(map(bool, found)) == 1,
    "filter": lambda items, found: [item for item, keep in zip(items, found, strict=True) if keep],
    "map": lambda items, found: list(found),
}
"""Name -> what it makes of the items and of the expression's value for each."""


def evaluate(text: str, **scope: Any) -> Any:
    """The value of a CEL expression with these variables."""
    return _parsed(text)(scope)


def render(text: str, **scope: Any) -> str:
    """A text with CEL expressions in braces, as `wire.Rule` has it, with their values in place, each cut to LONGEST."""
    parts = re.split(r"[{}]", text)
    values = [str(evaluate(part.removeprefix("#"), **scope)) for part in parts[1::2]]
    parts[1::2] = [value if len(value) <= LONGEST else f"{value[: LONGEST - 3]}..." for value in values]
    return "".join(parts)


@cache
def _parsed(text: str) -> Expression:
    return _Parser(text).parse()


class _Parser:
    """A parser by recursive descent, which makes a function of each expression. Raises ValueError."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = list(_tokens(text))

    def parse(self) -> Expression:
        """The expression that all of the text is. Raises ValueError where something is left."""
        found = self._binary()
        if self._tokens:
            raise ValueError(f"{self._tokens[0][1]!r} was not expected in {self._text}")
        return found

    def _take(self, *wanted: str) -> str:
        """The next token, where it is one of the wanted ones; else an empty text."""
        if self._tokens and self._tokens[0][0] != "text" and self._tokens[0][1] in wanted:
            return self._tokens.pop(0)[1]
        return ""

    def _expect(self, wanted: str) -> None:
        if not self._take(wanted):
            raise ValueError(f"{wanted!r} is missing in {self._text}")

    def _binary(self, level: int = 0) -> Expression:
        if level == len(_LEVELS):
            return self._unary()
        left = self._binary(level + 1)
        while symbol := self._take(*_LEVELS[level]):
            left = _LEVELS[level][symbol](left, self._binary(level + 1))
        return left

    def _unary(self) -> Expression:
        if self._take("!"):
            return _apply(operator.not_, self._unary())
        found = self._atom()
        while symbol := self._take(".", "["):
            if symbol == "[":
                found = _apply(operator.getitem, found, self._binary())
                self._expect("]")
                continue
            name = self._tokens.pop(0)[1]
            found = self._call(name, found) if self._take("(") else _field(found, name)
        return found

    def _atom(self) -> Expression:
        kind, word = self._tokens.pop(0)
        if kind == "number":
            return lambda scope: int(word)
        if kind == "text":
            return lambda scope: word
        if word == "(":
            found = self._binary()
            self._expect(")")
            return found
        if word == "[":
            items = self._list("]")
            return lambda scope: [item(scope) for item in items]
        if word in ("true", "false"):
            return lambda scope: word == "true"
        return self._call(word) if self._take("(") else lambda scope: scope[word]

    def _call(self, name: str, target: Expression | None = None) -> Expression:
        """A function, a method of `target`, or a macro; its parenthesis is open."""
        if name in _MACROS and target is not None:
            variable = self._tokens.pop(0)[1]
            self._expect(",")
            body = self._binary()
            self._expect(")")
            return _over(name, target, variable, body)
        given = self._list(")")
        if name == "has":
            return _present(given[0])
        return _apply(_FUNCTIONS[name], *([target] if target is not None else []), *given)

    def _list(self, end: str) -> list[Expression]:
        items: list[Expression] = []
        while not self._take(end):
            items.append(self._binary())
            self._take(",")
        return items


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    for number, quoted, word, symbol in _TOKEN.findall(text.strip()):
        if number:
            yield "number", number
        elif word or symbol:
            yield "symbol", word or symbol
        else:
            yield "text", re.sub(r"\\(.)", r"\1", quoted)


def _apply(function: Callable[..., Any], *given: Expression) -> Expression:
    return lambda scope: function(*(one(scope) for one in given))


def _field(target: Expression, name: str) -> Expression:
    return lambda scope: target(scope)[name]


def _present(field: Expression) -> Expression:
    def present(scope: Scope) -> bool:
        try:
            field(scope)
        except KeyError:
            return False
        return True

    return present


def _over(name: str, target: Expression, variable: str, body: Expression) -> Expression:
    def over(scope: Scope) -> Any:
        items = list(target(scope))
        return _MACROS[name](items, (body({**scope, variable: item}) for item in items))

    return over


_COMPARE = {
    "==": operator.eq, "!=": operator.ne, "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt,
    "in": lambda one, many: one in many,
}  # fmt: skip
_LEVELS: tuple[dict[str, Callable[[Expression, Expression], Expression]], ...] = (
    {"||": lambda left, right: lambda scope: left(scope) or right(scope)},
    {"&&": lambda left, right: lambda scope: left(scope) and right(scope)},
    {symbol: partial(_apply, function) for symbol, function in _COMPARE.items()},
    {"+": partial(_apply, operator.add)},
    {"*": partial(_apply, operator.mul), "%": partial(_apply, operator.mod)},
)
"""Binary operators, those that bind weaker first."""
