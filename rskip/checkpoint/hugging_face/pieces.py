"""Subword units out of tokenizer.json, for folders that don't hold the SentencePiece model itself.

transformers 5 saves tokenizers in this way. The file has all that a SentencePiece model needs: units with scores or
merges, and the table of the characters that are replaced.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rskip.text.dictionary import BOS, EOS, PAD, UNK
from rskip.text.subwords import WholePieces, naming

_KINDS = {"Unigram": 1, "BPE": 2}
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3  # types of pieces
_MARK = "\u2581"  # SentencePiece's space


class _Model(msgspec.Struct):
    """Units with scores (Unigram), or with numbers and merges (BPE)."""

    type: Literal["Unigram", "BPE"]
    vocab: list[tuple[str, Annotated[float, Meta(ge=-3.4e38, le=3.4e38)]]] | dict[str, int]  # SentencePiece has float32
    merges: list[tuple[str, str] | str] = []
    byte_fallback: bool | None = None


class _Normaliser(msgspec.Struct):
    """The replaced characters, and rules for spaces, which SentencePiece has too."""

    type: Literal["Precompiled", "Replace", "Strip", "Sequence"]
    precompiled_charsmap: bytes = b""
    normalizers: list[_Normaliser] = []


class _Tokenizer(msgspec.Struct):
    """tokenizer.json."""

    model: _Model
    normalizer: _Normaliser | None = None


def read_units(content: Mapping[str, Any], *, special: Iterable[str], source: str) -> WholePieces:
    """The units that segment text as the tokenizer does.

    :param content: of tokenizer.json.
    :param special: tokens that text never becomes.
    :param source: the file, for errors.
    """
    with naming(source):
        found, split = _parsed(content), content.get("pre_tokenizer")
        if found.model.byte_fallback or _MARK not in str(split):
            problem = f"byte_fallback is {found.model.byte_fallback} and pre_tokenizer {split}"
            raise ValueError(f"{problem}: expected {' or '.join(_KINDS)} of SentencePiece, which marks spaces by ▁")
        rules = found.normalizer
        each_rule = [] if rules is None else [rules, *rules.normalizers]
        replaced = next((rule.precompiled_charsmap for rule in each_rule if rule.precompiled_charsmap), b"")
        drops_spaces = rules is not None or splits_at_white_space(content)
        return WholePieces(_serialised(found.model, special, replaced, drops_spaces=drops_spaces))


def vocabulary(content: Mapping[str, Any], *, source: str) -> dict[str, int]:
    """The tokens of the tokenizer's model, and their numbers."""
    with naming(source):
        vocab = _parsed(content).model.vocab
        return vocab if isinstance(vocab, dict) else {token: number for number, (token, _) in enumerate(vocab)}


def _parsed(content: Mapping[str, Any]) -> _Tokenizer:
    try:
        return msgspec.convert(content, _Tokenizer)
    except msgspec.ValidationError as error:
        raise ValueError(f"{error}: expected a tokenizer made with SentencePiece (Unigram or BPE)") from None


def splits_at_white_space(content: Mapping[str, Any]) -> bool:
    """Whether the tokenizer splits text at all white space first."""
    return "WhitespaceSplit" in str(content.get("pre_tokenizer"))


def _merge_scores(vocab: Mapping[str, int], merges: list[tuple[str, str] | str]) -> dict[str, float]:
    """SentencePiece merges units in the order of these scores: that of the first merge that makes them."""
    firsts: dict[str, set[str]] = {}  # of each unit the first halves
    scores = {token: -1e9 for token in sorted(vocab, key=vocab.__getitem__)}
    for rank, merge in reversed([*enumerate(merges)]):
        first, last = merge.split(" ") if isinstance(merge, str) else merge
        firsts.setdefault(first + last, set()).add(first)
        scores[first + last] = -float(rank)
    if lacking := firsts.keys() - vocab.keys():
        raise ValueError(f"model.merges makes {min(lacking)}, which is not in model.vocab")
    possible = {*firsts, *(unit for unit in vocab if len(unit) == 1)}
    for unit, own in firsts.items():
        splits = ((unit[:end], unit[end:]) for end in range(1, len(unit)))
        if any(first in possible and last in possible and first not in own for first, last in splits):
            problem = f"lacks a merge that makes {unit}, and SentencePiece merges any two units that are one"
            raise ValueError(f"model.merges {problem} together: expected a tokenizer made with SentencePiece")
    return scores


def _serialised(model: _Model, special: Iterable[str], replaced: bytes, *, drops_spaces: bool) -> bytes:
    """The SentencePiece model.

    :param replaced: the table of the characters that are replaced; empty if none are.
    """
    scores = _merge_scores(model.vocab, model.merges) if isinstance(model.vocab, dict) else dict(model.vocab)
    types = {**dict.fromkeys((BOS, PAD, EOS, *special), _CONTROL), UNK: _UNKNOWN}
    pieces = [
        _field(1, _field(1, token.encode("utf-8")) + _float(2, score) + _number(3, types.get(token, _NORMAL)))
        for token, score in scores.items()
    ]
    order = list(scores)
    trainer = (
        _number(3, _KINDS[model.type])
        + _number(40, order.index(UNK))
        + b"".join(
            _number(field, order.index(token) if token in scores else -1)
            for field, token in {41: BOS, 42: EOS, 43: PAD}.items()
        )
        + b"".join(_field(field, token.encode()) for field, token in {45: UNK, 46: BOS, 47: EOS, 48: PAD}.items())
    )
    normaliser = _field(1, b"tokenizer.json") + _field(2, replaced) + _number(4, int(drops_spaces))
    return b"".join(pieces) + _field(2, trainer) + _field(3, normaliser)


# protobuf's encoding


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _float(field: int, value: float) -> bytes:
    return _varint(field << 3 | 5) + struct.pack("<f", value)


def _field(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content
