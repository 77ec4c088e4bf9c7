"""Parser of references (`steps.extract.output.urls ?? []`) and conditions (`params.full and not item in [1, 2]`)."""

from __future__ import annotations

from collections.abc import Callable

from jobyard.domain.workflow_files.nodes import (
    AllOf,
    AnyOf,
    Compare,
    Constant,
    Exists,
    Expression,
    Not,
    Operand,
    Operator,
    Reference,
)
from jobyard.domain.workflow_files.tokens import MAX_LENGTH, TokenKind, failed, read_token
from jobyard.errors import ExpressionError, did_you_mean

MAX_DEPTH = 32
ROOTS = ("params", "steps", "item", "index", "run", "failure")
_CONSTANTS = {"true": True, "false": False, "null": None}
_WORDS = ("and", "or", "not", "in", "exists")
# What other languages write, and what to write here.
_FOREIGN = {"&&": "and", "||": "or", "!": "not", "=": "==", "not": "not (a in b)"}
_OPERATORS = {str(operator): operator for operator in Operator}


def parse_condition(text: str) -> Expression:
    """The expression of a `when`. Raises ExpressionError.

    >>> parse_condition('steps.extract.status == "completed"').operator
    <Operator.EQUAL: '=='>
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"The condition has {len(text):,} characters. Use at most {MAX_LENGTH:,}.")
    parser = _Parser(text, 0, len(text))
    found = parser.any_of()
    parser.expect_end()
    return found


def parse_reference(text: str, at: int) -> tuple[Operand, int]:
    """The operand of a `${…}` whose content begins at `at`, and the position after it. Raises ExpressionError."""
    parser = _Parser(text, at, min(len(text), at + MAX_LENGTH))
    found = parser.operand()
    return found, parser.closing_brace()


class _Parser:
    """Recursive descent, one token ahead."""

    def __init__(self, source: str, at: int, limit: int) -> None:
        self._source = source
        self._limit = limit
        self._depth = 0
        self._next = read_token(source, at, limit)

    def any_of(self) -> Expression:
        found = self._joined("or", self._all_of)
        return found[0] if len(found) == 1 else AnyOf(found)

    def _all_of(self) -> Expression:
        found = self._joined("and", self._negated)
        return found[0] if len(found) == 1 else AllOf(found)

    def _joined(self, word: str, part: Callable[[], Expression]) -> tuple[Expression, ...]:
        found = [part()]
        while self._take(word):
            found.append(part())
        return tuple(found)

    def _negated(self) -> Expression:
        if not self._is("not"):
            return self._comparison()
        self._enter()
        self._advance()
        operand = self._negated()
        self._depth -= 1
        return Not(operand)

    def _comparison(self) -> Expression:
        left = self._primary()
        operator = self._operator()
        if operator is None:
            return left
        self._advance()
        right = self._primary()
        if self._operator() is not None:
            raise self._failed("comparisons cannot be chained", " Join them with and.")
        return Compare(left, operator, right)

    def _operator(self) -> Operator | None:
        return _OPERATORS.get(self._next.value) if self._next.kind in (TokenKind.SYMBOL, TokenKind.NAME) else None

    def _primary(self) -> Expression:
        if self._take("exists"):
            self._expect("(")
            reference = self._path()
            self._expect(")")
            return Exists(reference)
        if self._is("("):
            self._enter()
            self._advance()
            found = self.any_of()
            self._expect(")")
            self._depth -= 1
            return found
        return self.operand()

    def operand(self) -> Operand:
        """A literal, or a path with an optional default."""
        token = self._next
        if token.kind is TokenKind.NAME and token.value not in _CONSTANTS:
            path = self._path()
            return Reference(path.root, path.keys, self._constant()) if self._take("??") else path
        return self._constant()

    def _path(self) -> Reference:
        token = self._next
        if token.kind is not TokenKind.NAME or token.value in _WORDS or token.value in _CONSTANTS:
            raise self._unexpected("a path such as params.name")
        if token.value not in ROOTS:
            word = token.value[:50]
            raise self._failed(f'"{word}" is not one of {", ".join(ROOTS)}', did_you_mean(word, ROOTS))
        self._advance()
        keys: list[str | int] = []
        while self._is(".") or self._is("["):
            keys.append(self._key())
        return Reference(token.value, tuple(keys))

    def _key(self) -> str | int:
        is_name = self._is(".")
        self._advance()
        token = self._next
        if is_name:
            if token.kind is not TokenKind.NAME:
                raise self._unexpected('a name (write any other key as ["key"])')
        elif token.kind is TokenKind.TEXT:
            pass
        elif token.kind is not TokenKind.NUMBER or not isinstance(token.value, int) or token.source.startswith("-"):
            raise self._unexpected('an index from 0 or a key such as ["key"]')
        self._advance()
        if not is_name:
            self._expect("]")
        key: str | int = token.value
        return key

    def _constant(self) -> Constant:
        token = self._next
        if token.kind in (TokenKind.TEXT, TokenKind.NUMBER):
            self._advance()
            return Constant(token.value)
        if token.kind is TokenKind.NAME and token.value in _CONSTANTS:
            self._advance()
            return Constant(_CONSTANTS[token.value])
        if self._is("["):
            return self._list()
        raise self._unexpected("a value")

    def _list(self) -> Constant:
        self._enter()
        self._advance()
        found = []
        while not self._is("]"):
            found.append(self._constant().value)
            if not self._take(","):
                break
        self._expect("]")
        self._depth -= 1
        return Constant(found)

    def expect_end(self) -> None:
        if self._next.kind is not TokenKind.END:
            raise self._unexpected("and, or, a comparison, or the end")

    def closing_brace(self) -> int:
        """The position after the brace, which must come next."""
        if not self._is("}"):
            if self._next.kind is TokenKind.END and self._limit < len(self._source):
                raise self._failed(f"a reference has more than {MAX_LENGTH:,} characters")
            raise self._unexpected("}")
        return self._next.end

    def _is(self, word: str) -> bool:
        return self._next.kind in (TokenKind.SYMBOL, TokenKind.NAME) and self._next.value == word

    def _take(self, word: str) -> bool:
        found = self._is(word)
        if found:
            self._advance()
        return found

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise self._unexpected(word)

    def _advance(self) -> None:
        self._next = read_token(self._source, self._next.end, self._limit)

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._failed(f"nested deeper than {MAX_DEPTH}")

    def _unexpected(self, expected: str) -> ExpressionError:
        token = self._next
        if token.kind is TokenKind.END:
            return self._failed(f"expected {expected}, found the end")
        remedy = f" Write {_FOREIGN[token.source]}." if token.source in _FOREIGN else ""
        return self._failed(f"expected {expected}, found {token.source[:50]}", remedy)

    def _failed(self, why: str, remedy: str = "") -> ExpressionError:
        return failed(self._source, self._next.at, why, remedy)
