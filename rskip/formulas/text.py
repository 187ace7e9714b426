"""A formula in words and symbols, as `rskip connections` and the documentation show it."""

from __future__ import annotations

from rskip.formulas.terms import (
    Coefficient,
    F,
    Formula,
    Learned,
    Map,
    Mixture,
    Norm,
    Number,
    Rest,
    StackFormula,
    Sum,
    Symbol,
    Term,
    X,
    members,
)

_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def text_of(formula: Formula, stack: StackFormula | None = None, *, closed: bool = False) -> str:
    """The formula, such as "x + F(norm(x)), and one normalisation closes the stack".

    :param closed: whether a normalisation closes the stack.
    """
    streams = formula.becomes
    terms = [*formula.keeps.values(), formula.reads, *(streams.values() if streams else [formula.y])]
    write = _Writer(terms)
    sentences = [f"{name} ← {write.term(kept)}" for name, kept in formula.keeps.items()]
    if streams:
        sentences.append(f"f = F({write.term(formula.reads)})")
        sentences += [f"{name} ← {write.term(term)}" for name, term in streams.items()]
    elif formula.reads == X:
        sentences.append(write.term(formula.y))
    elif _count(formula.y) == 1:
        write.branch = f"F({write.term(formula.reads)})"
        sentences.append(write.term(formula.y))
    else:
        reads = write.term(formula.reads)
        sentences += [write.term(formula.y), f"f = F({reads})"]
    sentences += [f"{' and '.join(symbols)} {meaning}" for meaning, symbols in write.meanings.items()]
    if stack is not None and isinstance(stack.enters, Norm):
        return ", ".join(sentences) + ", and one normalisation opens the stack, one closes it"
    if stack is not None and stack.leaves is not None:
        sentences.append(f"the stack's output is {_Writer([stack.leaves]).term(stack.leaves)}")
    return ", ".join(sentences) + ", and one normalisation closes the stack" * closed


def _count(term: Term) -> int:
    """How often the branch's output occurs."""
    if isinstance(term, Sum):
        return sum(_count(part) for _, part in term.parts)
    if isinstance(term, Mixture):
        return sum(map(_count, term.of))
    return _count(term.of) if isinstance(term, (Norm, Map)) else int(term == F)


class _Writer:
    """Writes the terms of one formula. `meanings` has the symbols by what they mean, such as "learned"."""

    def __init__(self, terms: list[Term]) -> None:
        found = list(members(*terms))
        norms = [each for each in found if isinstance(each, Norm)]
        numbers = [_subscript(number) if len(norms) > 1 else "" for number, _ in enumerate(norms, start=1)]
        self._norms = {each: f"norm{number}" for each, number in zip(norms, numbers, strict=True)}
        self.branch = "f"
        self.meanings: dict[str, list[str]] = {}

    def term(self, term: Term) -> str:
        if term == F:
            return self.branch
        if isinstance(term, Symbol):
            return term.name
        if isinstance(term, Norm):
            return f"{self._norms[term]}({self.term(term.of)})"
        if isinstance(term, Map):
            return f"{term.name}·{self.term(term.of)}"
        if isinstance(term, Mixture):
            self._mean("s", "the softmax of learned logits")
            parts = (f"({self.term(each)})" if isinstance(each, Sum) else self.term(each) for each in term.of)
            return " + ".join(f"s{_subscript(number)} {part}" for number, part in enumerate(parts, start=1))
        assert isinstance(term, Sum)
        return " + ".join(self._product(coefficient, part) for coefficient, part in term.parts)

    def _product(self, coefficient: Coefficient, part: Term) -> str:
        written = self.term(part)
        if isinstance(part, Sum):
            written = f"({written})"
        if isinstance(coefficient, (int, float)):
            return written if coefficient == 1 else f"{coefficient:g}{written}"
        if isinstance(coefficient, Number):
            if coefficient.meaning:
                self._mean(coefficient.symbol.strip(), coefficient.meaning)
            return _joined(coefficient.symbol, written)
        if isinstance(coefficient, Learned):
            self._mean(coefficient.symbol, "learned")
            symbol = coefficient.symbol
            return f"{symbol} ⊙ {written}" if coefficient.size is None else _joined(symbol, written)
        gates = coefficient.gates if isinstance(coefficient, Rest) else (coefficient,)
        for gate in gates:
            self._mean(gate.symbol, f"from gates over {'x' if gate.over == (X,) else '[x; f]'}")
        if not isinstance(coefficient, Rest):
            return gates[0].symbol + (written if gates[0].scalar else f" ⊙ {written}")
        factors = "".join(f"(1-{each.symbol})" for each in gates)
        return f"{factors} {written}" if gates[0].scalar else f"{factors} ⊙ {written}"

    def _mean(self, symbol: str, meaning: str) -> None:
        symbols = self.meanings.setdefault(meaning, [])
        if symbol not in symbols:
            symbols.append(symbol)


def _subscript(number: int) -> str:
    return str(number).translate(_SUBSCRIPTS)


def _joined(symbol: str, written: str) -> str:
    return f"{symbol}·{written}" if written.startswith("norm") else symbol + written
