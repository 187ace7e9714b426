"""Cleans and tokenises raw pairs, chunk by chunk in several processes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rskip.corpora.chunks import Chunk, SplitText, read_chunks
from rskip.corpora.cleaning import CleaningReport, HeldOut, PairCleaner, SentenceCleaner, pair_digest
from rskip.corpora.corpus import CleaningOptions, Pair
from rskip.corpora.record import write_json
from rskip.corpora.stages.setting import Setting
from rskip.files.whole import atomic_file
from rskip.text.pipeline import LanguageText, TextConfig
from rskip.text.words import MosesTokeniser, PlainTokeniser

WORDS, DIGESTS, REPORTS, REFERENCE = "words", "digests", "reports", "reference"


def tokenise_held_out(setting: Setting, texts: Sequence[SplitText], split: str) -> None:
    """Writes the words and the raw sentences of a split that is not cleaned: valid or test.

    Of `CleaningOptions` only `entities` applies, and only to text that is tokenised already: there the escapes of
    Moses' tokeniser are part of the spelling.
    """
    files = [*setting.sides(REFERENCE, split), *setting.sides(WORDS, split)]
    if all(path.exists() for path in files):
        return
    clean = SentenceCleaner(CleaningOptions(entities=setting.cleaning.entities if setting.tokenised else "keep"))
    tokeniser = PairTokeniser(setting.config, tokenised=setting.tokenised)
    lines: list[list[str]] = [[], [], [], []]
    for pair in _pairs(texts, split):
        tokenised = tokeniser.words((clean(pair[0]), clean(pair[1])))
        for side, sentence in zip(lines, (*tokeniser.raw(pair), *tokenised), strict=True):
            side.append(sentence)
    for path, sentences in zip(files, lines, strict=True):
        write_lines(path, sentences)


def _pairs(texts: Sequence[SplitText], split: str) -> Iterator[Pair]:
    return (pair for text in texts if text.split == split for pair in text.pairs())


def tokenise_train(
    setting: Setting, texts: Sequence[SplitText], chunks: Sequence[Chunk], *, held_out_splits: Collection[str]
) -> None:
    """Writes the words of the remaining pairs of train's chunks, and their digests if duplicates are to be dropped."""
    reports = setting.work.folder(REPORTS)
    left = [chunk for chunk in chunks if not (reports / f"{chunk.name}.json").exists()]
    if left:
        cleans = setting.cleaning != CleaningOptions()
        job = Tokenise(setting, held_out=_held_out(setting, texts, held_out_splits) if cleans else None)
        tasks = read_chunks([text for text in texts if text.split == "train"], left)
        setting.run("tokenise", job, left, everything=chunks, tasks=tasks)


def _held_out(setting: Setting, texts: Sequence[SplitText], splits: Collection[str]) -> HeldOut:
    """The pairs of valid and test, cleaned like those of train so that they can be compared."""
    clean = SentenceCleaner(setting.cleaning)
    tokeniser = PairTokeniser(setting.config, tokenised=setting.tokenised)
    return HeldOut(
        tokeniser.words((clean(source), clean(target))) for split in splits for source, target in _pairs(texts, split)
    )


class PairTokeniser:
    """Tokenises pairs with a text pipeline. The text may be tokenised already.

    :param tokenised: whether the text is tokenised by Moses' rules. If so, a pipeline with a tokeniser takes its words
        unchanged, and one without (SentencePiece) gets the detokenised sentences.
    """

    def __init__(self, config: TextConfig, *, tokenised: bool) -> None:
        languages = (config.source_language, config.target_language)
        self._texts = [LanguageText(config, language) for language in languages]
        self._moses = [MosesTokeniser(language) for language in languages] if tokenised else []
        self._take_words = tokenised and config.tokeniser != "none"
        self._spaces, self._lowercase = PlainTokeniser(raw=False), config.lowercase

    def words(self, pair: Pair) -> Pair:
        """Both sides, as words joined by single spaces."""
        source, target = self._texts
        if self._take_words:
            words = self._spaces.tokenise(pair[0]), self._spaces.tokenise(pair[1])
            return (words[0].lower(), words[1].lower()) if self._lowercase else words
        if self._moses:
            pair = self.raw(pair)
        return source.words(pair[0]), target.words(pair[1])

    def raw(self, pair: Pair) -> Pair:
        """The sentences as a translator reads and writes them: without tokenisation and Moses' escapes."""
        if not self._moses:
            return pair
        source, target = self._moses
        return source.detokenise(pair[0]), target.detokenise(pair[1])


@dataclass(frozen=True)
class Tokenise:
    """Writes one chunk's files to three folders. The report comes last: if it exists, all files are complete.

    :param held_out: the pairs of valid and test; None: not searched for.
    """

    setting: Setting
    held_out: HeldOut | None

    @cached_property
    def _tokeniser(self) -> PairTokeniser:
        return PairTokeniser(self.setting.config, tokenised=self.setting.tokenised)

    @cached_property
    def _cleaner(self) -> PairCleaner:
        return PairCleaner(self.setting.cleaning, languages=self.setting.languages, held_out=self.held_out)

    def __call__(self, task: tuple[Chunk, list[Pair]]) -> None:
        """:raises ValueError: a pair can't be tokenised. The error names file and sentence."""
        chunk, pairs = task
        setting, cleaning = self.setting, self.setting.cleaning
        report = CleaningReport.of(cleaning)
        kept: list[Pair] = []
        clean, words_of, cleaner = SentenceCleaner(cleaning), self._tokeniser.words, self._cleaner
        for number, (source, target) in enumerate(pairs, start=chunk.first):
            try:
                words = words_of((clean(source), clean(target)))
            except (MemoryError, OSError):
                raise  # the sentence is not the cause
            except Exception as error:
                raise ValueError(f"{chunk.place}: sentence {number} can't be tokenised: {error!r}") from error
            reason = cleaner.reason(words)
            report.count(
                chunk.text,
                reason,
                held_out_sides=(False, False) if reason else cleaner.held_out_sides(words),
                left_in=None if cleaning.leaks or self.held_out is None else words in self.held_out,
            )
            if reason is None:
                kept.append(words)
            else:
                report.show(reason, (source, target))
        for side, path in enumerate(setting.sides(WORDS, chunk.name)):
            write_lines(path, [pair[side] for pair in kept])
        if cleaning.duplicates:
            with atomic_file(setting.work.folder(DIGESTS) / chunk.name) as temporary:
                temporary.write_bytes(b"".join(map(pair_digest, kept)))
        write_json(setting.work.folder(REPORTS) / f"{chunk.name}.json", report.to_dict())


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """Writes a file atomically. Only a line feed ends a line."""
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(line + "\n" for line in lines)
