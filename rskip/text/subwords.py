"""Segments words into subword units: byte-pair encoding (Sennrich et al., 2016), SentencePiece (Kudo, 2018)."""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib.util
import io
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from rskip.extras import extra
from rskip.files.text_lines import read_lines
from rskip.text.dictionary import BOS, EOS, PAD, UNK

if TYPE_CHECKING:
    from typing_extensions import Self

SubwordKind = Literal["bpe", "sentencepiece", "sentencepiece-bpe", "sentencepiece-bytes"]
ForeignKind = Literal["marian", "sentencepiece-whole"]
"""Units that rskip reads, but doesn't learn."""
_REMEMBERED_WORDS = 300_000
_LANGUAGE_TOKEN = re.compile(r">>.*?<<", re.DOTALL)
_RESERVED = frozenset((BOS, EOS, PAD, UNK))  # of dictionaries, so no unit of a text
_VERSION = re.compile(r"#version:\s*0\.[12](\.0+)*")  # versions that subword-nmt knows


class Subwords(Protocol):
    """Splits words, joined by single spaces, into subword units, and joins units.

    file_name: the name of their file.
    separator: the separator of units; None: any white space, so units can't contain white space.
    """

    file_name: str
    separator: str | None

    def segment(self, words: str) -> str: ...

    def join(self, units: str) -> str: ...

    def files(self) -> dict[str, bytes]:
        """The content of each file, by file name."""
        ...


class BytePairEncoding:
    """Byte-pair encoding in subword-nmt's notation: a unit ends in `@@` if its word continues.

    `fairseq-generate --bpe subword_nmt --bpe-codes codes.bpe` reads the same file and gives the same units.

    :param codes: text of a subword-nmt codes file: a version line, then one merge (two units) per line.
    """

    file_name = "codes.bpe"
    separator: str | None = None

    def __init__(self, codes: str) -> None:
        with extra("translate", what="translation"):
            from subword_nmt.apply_bpe import BPE

        first, *merges = codes.rstrip("\n").split("\n")
        wrong = (merge for merge in merges if len(merge.strip("\r ").split(" ")) != 2)
        if not _VERSION.fullmatch(first.rstrip()) or not merges or (first := next(wrong, "")):
            expected = "expected a line '#version: 0.2' and then one merge of two units per line"
            raise ValueError(f"not BPE codes ({first!r}): {expected}")
        self._codes = codes
        self._bpe = BPE(io.StringIO(codes))
        self._known: dict[str, str] = {}  # words and their units

    @classmethod
    def learn(cls, sentences: Iterable[str], *, size: int) -> BytePairEncoding:
        """Learns at most `size` merges from sentences of words. Learning ends when no pair of units occurs twice."""
        counts = Counter(word for sentence in sentences for word in sentence.strip("\r\n ").split(" ") if word)
        return cls.learn_from_counts(counts, size=size)

    @classmethod
    def learn_from_counts(cls, counts: Mapping[str, int], *, size: int) -> BytePairEncoding:
        """Like `learn`, from the words of a text and their counts."""
        with extra("translate", what="translation"):
            from tqdm import tqdm

        codes = io.StringIO()
        learning = _own_copy(
            "subword_nmt.learn_bpe",
            tqdm=functools.partial(tqdm, disable=None),  # None: show the bar only in a terminal
            max=_largest,
            copy=SimpleNamespace(deepcopy=copy.copy),  # of counts, in which nothing is nested
            sys=SimpleNamespace(**{**vars(sys), "stderr": io.StringIO()}),
        )
        with contextlib.suppress(ValueError):  # max() fails if there are no pairs
            learning.learn_bpe((f"{word} {count}" for word, count in counts.items()), codes, size, is_dict=True)
        if codes.getvalue().count("\n") < 2:
            raise ValueError("the training text is too small: no pair of letters to learn byte-pair encoding from")
        return cls(codes.getvalue())

    @classmethod
    def load(cls, path: Path) -> BytePairEncoding:
        with naming(path):
            return cls("".join(f"{line}\n" for line in read_lines(path, name="the BPE codes")))

    def files(self) -> dict[str, bytes]:
        return {self.file_name: self._codes.encode("utf-8")}

    def segment(self, words: str) -> str:
        """Units joined by single spaces."""
        known = self._known
        if len(known) > _REMEMBERED_WORDS:
            known = self._known = {}  # a new one, since other threads may be reading the old one
        split = words.split(" ")
        try:
            return " ".join([known[word] for word in split])
        except KeyError:
            return " ".join([known[word] if word in known else self._remember(word) for word in split if word])

    def _remember(self, word: str) -> str:
        units = self._known[word] = _unreserved(self._bpe.segment(word))
        self._bpe.cache = {}  # would store every word a second time
        return units

    def with_dropout(self, probability: float, *, seed: int) -> Callable[[str], str]:
        """Like `segment`, but skips merges at random (BPE-dropout, Provilkov et al., 2020).

        :param probability: the probability of skipping a merge, drawn for each possible merge.
        """
        applying = _own_copy("subword_nmt.apply_bpe", random=random.Random(seed))
        bpe = applying.BPE(io.StringIO(self._codes))

        def segment(words: str) -> str:
            units: str = bpe.segment(words, probability)
            bpe.cache = {}  # with a cache, a word would always get the same units
            return _unreserved(units)

        return segment

    def join(self, units: str) -> str:
        return (units + " ").replace("@@ ", "").rstrip()


def _unreserved(units: str) -> str:
    """The units, with letters instead of a reserved one."""
    return " ".join(["@@ ".join(unit) if unit in _RESERVED else unit for unit in units.split(" ")])


def _largest(counts: Any, key: object = None) -> Any:
    """`max` as subword_nmt.learn_bpe calls it, with a key for the pair of units that is most frequent and comes last.

    It compares numbers only, and pairs where they are equal, which makes learning twice as fast.
    """
    if key is None:
        return max(counts)
    highest = max(counts.values())
    return max(pair for pair, count in counts.items() if count == highest)


def _own_copy(module: str, **changes: Any) -> Any:
    """A copy of an installed module with other globals. The original stays unchanged for the rest of the process."""
    specification = importlib.util.find_spec(module)
    assert specification is not None and specification.loader is not None
    copy = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(copy)
    vars(copy).update(changes)
    return copy


class SentencePiece:
    """A SentencePiece model. Its units contain the spaces (`▁`), so it needs no tokeniser before it.

    :param model: a serialised SentencePiece model.
    """

    file_name = "sentencepiece.model"
    separator: str | None = None
    training: Mapping[str, Any] = {"model_type": "unigram", "character_coverage": 1.0}

    def __init__(self, model: bytes) -> None:
        with extra("translate", what="translation"):
            from sentencepiece import SentencePieceProcessor

        self._model = model
        self._processor = SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)  # the constructor accepts an empty model
        except RuntimeError as error:
            raise ValueError(f"not a SentencePiece model ({error}): get the file again") from error

    @classmethod
    def learn(cls, sentences: Iterable[str], *, size: int) -> SentencePiece:
        """Learns a model of at most `size` units, on one thread so that its bytes are reproducible."""
        with extra("translate", what="translation"):
            from sentencepiece import SentencePieceTrainer

        model = io.BytesIO()
        try:
            SentencePieceTrainer.train(
                sentence_iterator=iter(sentences),
                model_writer=model,
                vocab_size=size,
                hard_vocab_limit=False,
                **cls.training,
                num_threads=1,
                minloglevel=2,
            )
        except RuntimeError as error:
            needed = re.search(r"required_chars.* vs (\d+)", str(error))
            reason = f"the text's characters alone need {int(needed[1]):,}; give a larger number" if needed else error
            raise ValueError(f"SentencePiece could not learn {size} units: {reason}") from error
        return cls(model.getvalue())

    @classmethod
    def load(cls, path: Path) -> Self:
        with naming(path):
            return cls(path.read_bytes())

    def files(self) -> dict[str, bytes]:
        return {self.file_name: self._model}

    def units(self) -> list[str]:
        """All units without the unknown one and control units."""
        of = self._processor
        numbers = range(of.get_piece_size())
        return [of.id_to_piece(number) for number in numbers if not of.is_unknown(number) and not of.is_control(number)]

    def segment(self, words: str) -> str:
        """Units joined by single spaces. A unit that dictionaries reserve becomes its letters."""
        units = self._processor.encode(words, out_type=str)
        return " ".join([" ".join(unit) if unit in _RESERVED else unit for unit in units])

    def join(self, units: str) -> str:
        """The text that SentencePiece decodes. `<unk>` and units that the model doesn't have stay unchanged."""
        unknown = self._processor.id_to_piece(self._processor.unk_id())
        pieces = ["\0" if unit == unknown else unit for unit in units.split(" ")]
        return self._processor.decode(pieces).replace("\0", unknown).replace("\u2581", " ")


class SentencePieceBPE(SentencePiece):
    """A SentencePiece model whose units were learnt by byte-pair encoding."""

    training: Mapping[str, Any] = {"model_type": "bpe", "character_coverage": 1.0}


class SentencePieceBytes(SentencePiece):
    """Like `SentencePieceBPE`, but no character is replaced by a similar one, and a character without a unit becomes
    the units of its bytes, such as `<0xE2>`.

    A dictionary of all units therefore knows every character, and text decodes to what was encoded, without spaces at
    its ends and with one for several. The rarest characters of the training text, one in 2,000, get no unit, so that
    the model learns the units of bytes too.
    """

    training: Mapping[str, Any] = {
        "model_type": "bpe", "character_coverage": 0.9995, "byte_fallback": True,
        "normalization_rule_name": "identity",
    }  # fmt: skip


class WholePieces(SentencePiece):
    """Like `SentencePiece`, but units may contain white space other than spaces, as in Hugging Face's vocabularies."""

    separator: str | None = " "

    def __init__(self, model: bytes) -> None:
        super().__init__(model)
        from sentencepiece import SentencePieceNormalizer

        self._normaliser = SentencePieceNormalizer(
            model_proto=model, escape_whitespaces=False, add_dummy_prefix=False, remove_extra_whitespaces=False
        )

    def normalise(self, text: str) -> str:
        """Text in which characters are replaced as before its segmentation. Spaces stay."""
        normalised: str = self._normaliser.normalize(text)
        return normalised

    def pieces(self) -> list[str]:
        """All units in order, including the unknown one and control units."""
        return [self._processor.id_to_piece(number) for number in range(self._processor.get_piece_size())]


class MarianPieces:
    """The units of a Marian model: one SentencePiece model per language, as in Hugging Face's MarianTokenizer.

    A language token such as `>>fra<<` at the beginning of a text is a unit. Units may contain white space other than
    spaces.

    :param source: the source language's SentencePiece model.
    :param target: the same for the target language.
    """

    file_name, target_file_name = "source.spm", "target.spm"
    separator: str | None = " "

    def __init__(self, source: SentencePiece, target: SentencePiece) -> None:
        self._source, self._target = source, target

    @classmethod
    def load(cls, path: Path) -> MarianPieces:
        """Reads the source language's file, and the target language's file next to it."""
        return cls(SentencePiece.load(path), SentencePiece.load(path.with_name(cls.target_file_name)))

    def files(self) -> dict[str, bytes]:
        models = {self.file_name: self._source, self.target_file_name: self._target}
        return {name: content for name, each in models.items() for content in each.files().values()}

    def segment(self, words: str) -> str:
        """Units of the source language joined by single spaces."""
        return _after_language_token(self._source, words)

    def segment_target(self, words: str) -> str:
        """Units of the target language joined by single spaces."""
        return _after_language_token(self._target, words)

    def join(self, units: str) -> str:
        """See `SentencePiece.join`."""
        return self._target.join(units)


def _after_language_token(pieces: SentencePiece, words: str) -> str:
    if match := _LANGUAGE_TOKEN.match(words):
        token = match[0].replace(" ", "\u2581")  # one unit, which is in no dictionary
        return f"{token} {pieces.segment(words[match.end() :])}".rstrip(" ")
    return pieces.segment(words)


_CLASSES: dict[str, Any] = {
    "bpe": BytePairEncoding,
    "sentencepiece": SentencePiece,
    "sentencepiece-bpe": SentencePieceBPE,
    "sentencepiece-bytes": SentencePieceBytes,
    "marian": MarianPieces,
    "sentencepiece-whole": WholePieces,
}


def subwords_class(kind: SubwordKind) -> type[BytePairEncoding] | type[SentencePiece]:
    """The class of units that rskip learns."""
    found: type[BytePairEncoding] | type[SentencePiece] = _CLASSES[kind]
    return found


def load_subwords(kind: SubwordKind | ForeignKind, folder: Path) -> Subwords:
    """Reads units of this kind from their files in the folder."""
    found: Subwords = _CLASSES[kind].load(folder / _CLASSES[kind].file_name)
    return found


@contextlib.contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Errors of a file's content name the file."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
