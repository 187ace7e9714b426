"""Subword units out of tokenizer.json, for folders that don't hold the SentencePiece model itself.

transformers 5 saves tokenizers in this way. The file has all that a SentencePiece model needs: units with scores or
merges, and the table of the characters that are replaced.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Mapping
from typing import Any

from rskip.checkpoint.hugging_face import common
from rskip.settings.check import convert
from rskip.settings.errors import shown
from rskip.text.dictionary import BOS, EOS, PAD, UNK
from rskip.text.subwords import WholePieces, naming

_KINDS = {"Unigram": 1, "BPE": 2}
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3  # types of pieces
_MARK = "\u2581"  # SentencePiece's space
_LARGEST = 3.4e38  # SentencePiece's scores are float32


def read_units(content: Mapping[str, Any], *, special: Iterable[str], source: str) -> WholePieces:
    """The units that segment text as the tokenizer does.

    :param content: of tokenizer.json.
    :param special: tokens that text never becomes.
    :param source: the file, for errors.
    """
    with naming(source):
        model = convert(content.get("model"), dict[str, Any], name="model")
        kind, fallback, split = model.get("type"), model.get("byte_fallback"), content.get("pre_tokenizer")
        if kind not in [*_KINDS] or fallback or _MARK not in str(split):  # the type may be a list
            found = f"model.type is {shown(kind)}, byte_fallback {shown(fallback)} and pre_tokenizer {shown(split)}"
            raise ValueError(f"{found}: expected {' or '.join(_KINDS)} of SentencePiece, which marks spaces by ▁")
        scores = _unigram_scores(model) if kind == "Unigram" else _merge_scores(model)
        rules = content.get("normalizer")
        drops_spaces = rules is not None or splits_at_white_space(content)
        return WholePieces(_serialised(kind, scores, special, _replaced_characters(rules), drops_spaces=drops_spaces))


def _serialised(
    kind: str, scores: Mapping[str, float], special: Iterable[str], replaced: bytes, *, drops_spaces: bool
) -> bytes:
    """The SentencePiece model."""
    types = {**dict.fromkeys((BOS, PAD, EOS, *special), _CONTROL), UNK: _UNKNOWN}
    pieces = [
        _field(1, _field(1, token.encode("utf-8")) + _float(2, score) + _number(3, types.get(token, _NORMAL)))
        for token, score in scores.items()
    ]
    order = list(scores)
    trainer = (
        _number(3, _KINDS[kind])
        + _number(40, order.index(UNK))
        + b"".join(
            _number(field, order.index(token) if token in scores else -1)
            for field, token in {41: BOS, 42: EOS, 43: PAD}.items()
        )
        + b"".join(_field(field, token.encode()) for field, token in {45: UNK, 46: BOS, 47: EOS, 48: PAD}.items())
    )
    normaliser = _field(1, b"tokenizer.json") + _field(2, replaced) + _number(4, int(drops_spaces))
    return b"".join(pieces) + _field(2, trainer) + _field(3, normaliser)


def vocabulary(content: Mapping[str, Any], *, source: str) -> dict[str, int]:
    """The tokens of the tokenizer's model, and their numbers."""
    with naming(source):
        model = convert(content.get("model"), dict[str, Any], name="model")
        if model.get("type") == "Unigram":
            return {token: number for number, token in enumerate(_unigram_scores(model))}
        return common.token_numbers(model.get("vocab"), name="model.vocab")


def splits_at_white_space(content: Mapping[str, Any]) -> bool:
    """Whether the tokenizer splits text at all white space first."""
    return "WhitespaceSplit" in str(content.get("pre_tokenizer"))


def _unigram_scores(model: Mapping[str, Any]) -> dict[str, float]:
    entries = model.get("vocab")
    if not isinstance(entries, list) or not all(map(_is_scored, entries)) or len(dict(entries)) < len(entries):
        raise ValueError("model.vocab is damaged: expected a list of tokens and their scores")
    return {token: float(score) for token, score in entries}


def _merge_scores(model: Mapping[str, Any]) -> dict[str, float]:
    """SentencePiece merges units in the order of these scores: that of the first merge that makes them."""
    vocab = common.token_numbers(model.get("vocab"), name="model.vocab")
    firsts: dict[str, set[str]] = {}  # of each unit the first halves
    scores = {token: -1e9 for token in sorted(vocab, key=vocab.__getitem__)}
    merges = convert(model.get("merges") or [], list[Any], name="model.merges")
    for rank, merge in reversed([*enumerate(merges)]):
        match merge.split(" ") if isinstance(merge, str) else merge:
            case [str(first), str(second)] if (unit := first + second) in vocab:
                firsts.setdefault(unit, set()).add(first)
                scores[unit] = -float(rank)
            case _:
                raise ValueError(f"model.merges holds {shown(merge)}: expected two units that form a third one")
    possible = {*firsts, *(unit for unit in vocab if len(unit) == 1)}
    for unit, own in firsts.items():
        if any(
            unit[:end] in possible and unit[end:] in possible and unit[:end] not in own for end in range(1, len(unit))
        ):
            problem = f"lacks a merge that makes {unit}, and SentencePiece merges any two units that are one together"
            raise ValueError(f"model.merges {problem}: expected a tokenizer made with SentencePiece")
    return scores


def _is_scored(entry: Any) -> bool:
    return (
        isinstance(entry, list)
        and len(entry) == 2
        and isinstance(entry[0], str)
        and isinstance(entry[1], (int, float))
        and abs(entry[1]) <= _LARGEST
    )


def _replaced_characters(normaliser: Any) -> bytes:
    """SentencePiece's table of the characters that are replaced; empty if none are."""
    if not isinstance(normaliser, Mapping):
        return b""
    if (kind := normaliser.get("type")) == "Sequence":
        parts = convert(normaliser.get("normalizers") or [], list[Any], name="normalizer.normalizers")
        return next(filter(None, map(_replaced_characters, parts)), b"")
    if kind == "Precompiled":
        return base64.b64decode(str(normaliser.get("precompiled_charsmap")), validate=True)
    if kind not in ("Replace", "Strip"):  # of spaces, as SentencePiece does
        raise ValueError(f"normalizer is {shown(kind)}: expected Precompiled, as SentencePiece's")
    return b""


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
