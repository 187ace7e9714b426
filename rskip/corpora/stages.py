"""The stages of a preparation: read, clean and tokenise, drop duplicates, learn subword units, segment, binarise.

The pairs of train are processed in blocks, in worker processes. Each block's result is a file, so a repeated command
skips the blocks that exist. The results are used in the order of the blocks, so the number of workers does not matter.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property
from itertools import count, islice
from pathlib import Path
from typing import Any

import msgspec

from rskip.corpora.binarised import MmapWriter
from rskip.corpora.cleaning import CleaningReport, PairCleaner
from rskip.corpora.cleaning.pairs import DUPLICATE, find_duplicates, pair_digest
from rskip.corpora.cleaning.report import LEFT_IN, PAIRS, SOURCE_HELD_OUT, TARGET_HELD_OUT
from rskip.corpora.cleaning.sentence import clean_sentence
from rskip.corpora.corpus import CleaningOptions, Pair
from rskip.corpora.like import Like
from rskip.corpora.options import PrepareOptions
from rskip.corpora.splits import SplitPair
from rskip.extras import extra
from rskip.files.whole import atomic_file, whole_folder
from rskip.machine.progress import Progress
from rskip.machine.workers import in_order
from rskip.settings.errors import SettingError
from rskip.text.dictionary import BOS, EOS, PAD, UNK, Dictionary
from rskip.text.pipeline import LanguageText, TextConfig, TextPipeline
from rskip.text.subwords import BytePairEncoding, Subwords, subwords_class
from rskip.text.words import MosesTokeniser, PlainTokeniser

with extra("translation", what="a corpus of text"):
    import numpy as np

PAIRS_IN_BLOCK = 20_000
"""Small enough that a killed run loses little and several blocks fit into memory. BPE dropout depends on it."""

SPECIAL_TOKENS = (BOS, PAD, EOS, UNK)
PADDED_TO = 8

LARGEST_SAMPLE, LARGEST_SAMPLE_OF_SENTENCEPIECE = 5_000_000, 500_000
"""Default maximum number of pairs for learning units. Of a larger corpus every k-th pair is used. The limit bounds
memory: subword-nmt holds every word with its pairs of letters, and SentencePiece all sentences."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One preparation.

    :param options: the resolved options.
    :param config: settings of the text pipeline.
    :param tokenised: whether the corpus's text is tokenised already.
    :param work: the folder for the files of the stages.
    :param workers: number of processes; it does not change the result.
    :param like: what is taken from a model; None: units and dictionary are learnt.
    """

    options: PrepareOptions
    config: TextConfig
    tokenised: bool
    work: Path
    workers: int
    like: Like | None = None

    @property
    def languages(self) -> tuple[str, str]:
        return self.config.source_language, self.config.target_language


class RawBlock(msgspec.Struct, frozen=True):
    """Consecutive pairs of a text. `first` is the number of the first one in its text, from 1."""

    text: str
    first: int
    pairs: list[Pair]


class WordBlock(msgspec.Struct, frozen=True):
    """The pairs of a raw block that cleaning keeps, as words joined by spaces. Duplicates are still there.

    :param digests: of all pairs, if duplicates are dropped.
    :param counts: the counts of the block's report.
    :param examples: a dropped pair for each reason.
    """

    text: str
    pairs: list[Pair]
    digests: bytes
    counts: dict[str, int]
    examples: dict[str, Pair]


class TokenBlock(msgspec.Struct, frozen=True):
    """The segmented pairs of a word block.

    :param tokens: the different tokens.
    :param counts: how often each of them occurs.
    :param parts: for each shard, first the source and then the target side: the length of each sentence, and its
        tokens as rows of `tokens`. Both are 32-bit integers.
    """

    tokens: list[str]
    counts: list[int]
    parts: list[tuple[bytes, bytes]]


@dataclass(frozen=True)
class KeptBlock:
    """A word block of train without duplicates.

    :param start: the number of pairs that stay in the blocks before it.
    :param size: the number of pairs that stay in it.
    :param dropped: the rows of the duplicates.
    """

    number: int
    path: Path
    start: int
    size: int
    dropped: list[int]

    def sides(self) -> tuple[Sequence[str], Sequence[str]]:
        """The words of source and target."""
        dropped = set(self.dropped)
        pairs = [pair for row, pair in enumerate(_read(self.path, WordBlock).pairs) if row not in dropped]
        return [source for source, _ in pairs], [target for _, target in pairs]


def _read(path: Path, kind: type[Any]) -> Any:
    return msgspec.msgpack.decode(path.read_bytes(), type=kind)


def write_raw(pairs: Iterable[SplitPair], folder: Path) -> None:
    """Writes raw blocks to `folder`, atomically. Their names say split, text, number and pairs.

    All pairs are read, so that bad input is found before the long work.
    """
    with whole_folder(folder) as building, Progress("read", unit=" pairs") as bar:
        blocks: dict[tuple[str, str], list[Pair]] = {}
        firsts = Counter[tuple[str, str]]()
        numbers: dict[tuple[str, str], int] = defaultdict(lambda: len(numbers))

        def write(text: tuple[str, str]) -> None:
            block = RawBlock(text[1], firsts[text] + 1, blocks.pop(text))
            name = f"{text[0]}-{numbers[text]:06}-{firsts[text]:012}-{len(block.pairs)}"
            (building / name).write_bytes(msgspec.msgpack.encode(block))
            firsts[text] += len(block.pairs)

        for split, name, pair in pairs:
            block = blocks.setdefault((split, name), [])
            block.append(pair)
            bar.update()
            if len(block) == PAIRS_IN_BLOCK:
                write((split, name))
        for text in list(blocks):
            write(text)


def raw_blocks(folder: Path, split: str) -> dict[Path, int]:
    """The raw blocks of a split in order, with their numbers of pairs."""
    return {path: int(path.name.rpartition("-")[2]) for path in sorted(folder.glob(f"{split}-*"))}


def raw_pairs(folder: Path, splits: Iterable[str]) -> Iterator[Pair]:
    """The raw pairs of some splits."""
    for split in splits:
        for path in raw_blocks(folder, split):
            yield from _read(path, RawBlock).pairs


def run_blocks(
    name: str, folder: Path, job: Callable[[Any], Any], tasks: Sequence[Any], sizes: Sequence[int], workers: int
) -> list[Path]:
    """Runs the job for each task in worker processes, and keeps each result in a file. Returns the files, in order.

    Tasks whose files exist are not repeated.

    :param sizes: number of pairs of each task, for the progress.
    """
    files = [folder / f"{number:06}" for number in range(len(tasks))]
    done = next((number for number, path in enumerate(files) if not path.exists()), len(files))
    if left := files[done:]:
        with (
            Progress(name, total=sum(sizes), done=sum(sizes[:done]), unit=" pairs", log=30.0) as bar,
            closing(in_order(job, tasks[done:], workers=min(workers, len(left)))) as results,
        ):
            for path, size, result in zip(left, sizes[done:], results, strict=True):
                with atomic_file(path) as temporary:
                    temporary.write_bytes(msgspec.msgpack.encode(result))
                bar.update(size)
    return files


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

    def words(self, pair: Pair, cleaning: CleaningOptions) -> Pair:
        """Both sides, cleaned, as words joined by single spaces."""
        pair = clean_sentence(pair[0], cleaning), clean_sentence(pair[1], cleaning)
        source, target = self._texts
        if self._take_words:
            words = self._spaces.tokenise(pair[0]), self._spaces.tokenise(pair[1])
            return (words[0].lower(), words[1].lower()) if self._lowercase else words
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
    """Cleans and tokenises a raw block.

    :param held_out: the pairs of valid and test; None: not searched for.
    """

    setting: Setting
    held_out: frozenset[Pair] | None

    @cached_property
    def _tools(self) -> tuple[PairTokeniser, PairCleaner]:
        setting = self.setting
        cleaner = PairCleaner(
            setting.options.cleaning, languages=setting.languages, held_out=self.held_out or frozenset()
        )
        return PairTokeniser(setting.config, tokenised=setting.tokenised), cleaner

    def __call__(self, path: Path) -> WordBlock:
        """:raises ValueError: a pair can't be tokenised. The error names text and sentence."""
        block: RawBlock = _read(path, RawBlock)
        cleaning = self.setting.options.cleaning
        counts, examples = Counter({PAIRS: len(block.pairs)}), dict[str, Pair]()
        kept: list[Pair] = []
        tokeniser, cleaner = self._tools
        for number, pair in enumerate(block.pairs, start=block.first):
            try:
                words = tokeniser.words(pair, cleaning)
            except (MemoryError, OSError):
                raise  # the sentence is not the cause
            except Exception as error:
                raise ValueError(f"{block.text}: sentence {number} can't be tokenised: {error!r}") from error
            if reason := cleaner.reason(words):
                counts[reason] += 1
                examples.setdefault(reason, pair)
                continue
            kept.append(words)
            for name, held_out in zip((SOURCE_HELD_OUT, TARGET_HELD_OUT), cleaner.held_out_sides(words), strict=True):
                counts[name] += held_out
            if not cleaning.leaks and self.held_out is not None:
                counts[LEFT_IN] += words in self.held_out
        digests = b"".join(map(pair_digest, kept)) if cleaning.duplicates else b""
        return WordBlock(block.text, kept, digests, counts, examples)


def tokenise(setting: Setting, raw: Path, held_out: Iterable[str]) -> list[Path]:
    """Cleans and tokenises the raw blocks of train. Returns the files of the word blocks.

    :param held_out: the names of the other splits.
    """
    cleaning, pairs = setting.options.cleaning, None
    if cleaning != CleaningOptions():
        tokeniser = PairTokeniser(setting.config, tokenised=setting.tokenised)
        pairs = frozenset(tokeniser.words(pair, cleaning) for pair in raw_pairs(raw, held_out))
    blocks = raw_blocks(raw, "train")
    job = Tokenise(setting, pairs)
    return run_blocks("tokenise", setting.work / "words", job, [*blocks], [*blocks.values()], setting.workers)


def deduplicate(cleaning: CleaningOptions, files: Iterable[Path]) -> tuple[list[KeptBlock], dict[str, Any]]:
    """Drops every pair that equals an earlier one.

    :param files: the word blocks.
    :returns: the blocks without duplicates, and the content of cleaning.json.
    """
    report, blocks, digests = CleaningReport(cleaning), list[tuple[Path, str, int]](), bytearray()
    for path in files:
        block: WordBlock = _read(path, WordBlock)
        report.add(block.text, block.counts, block.examples)
        blocks.append((path, block.text, len(block.pairs)))
        digests += block.digests
    duplicates = find_duplicates(digests)
    kept, row, start, shown = list[KeptBlock](), 0, 0, False
    for number, (path, text, size) in enumerate(blocks):
        first, last = np.searchsorted(duplicates, (row, row + size))
        dropped: list[int] = (duplicates[first:last] - row).tolist()
        if dropped:
            examples = {} if shown else {DUPLICATE: _read(path, WordBlock).pairs[dropped[0]]}
            report.add(text, {DUPLICATE: len(dropped)}, examples)
            shown = True
        kept.append(KeptBlock(number, path, start, size - len(dropped), dropped))
        row, start = row + size, start + size - len(dropped)
    if not start:
        total = report.to_dict()["total"]
        raise ValueError(f"no training pairs are left: cleaning dropped all {total[PAIRS]:,} pairs")
    return kept, report.to_dict()


def learn(setting: Setting, blocks: Sequence[KeptBlock]) -> TextPipeline:
    """Learns the units, saves the text pipeline in the work folder's `text` and returns it.

    The units are learnt from both languages together: from every k-th remaining pair, with the smallest k that gives
    at most the sample's size.
    """
    folder = setting.work / "text"
    if (folder / "pipeline.json").exists():  # `save` writes it last
        return TextPipeline.load(folder)
    if setting.like is not None:
        setting.like.text.save(folder)
        return setting.like.text
    kind, size = setting.options.subwords, setting.options.size
    assert kind is not None and size is not None
    pairs = sum(block.size for block in blocks)
    largest = LARGEST_SAMPLE if kind == "bpe" else LARGEST_SAMPLE_OF_SENTENCEPIECE
    step = -(-pairs // (setting.options.learn_sample or largest))
    subwords: Subwords
    if kind == "bpe":
        counts = Counter[str]()
        with Progress("count words", total=pairs, unit=" pairs", log=30.0) as bar:
            for block in blocks:
                for side in block.sides():
                    for line in side[-block.start % step :: step]:
                        counts.update(line.split(" "))
                bar.update(block.size)
        counts.pop("", None)
        subwords = BytePairEncoding.learn_from_counts(counts, size=size)
    else:
        sentences = (
            line for side in (0, 1) for block in blocks for line in block.sides()[side][-block.start % step :: step]
        )
        subwords = subwords_class(kind).learn(sentences, size=size)
    pipeline = TextPipeline(setting.config, subwords)
    pipeline.save(folder)
    return pipeline


@dataclass(frozen=True)
class Segment:
    """Segments a block of words, and deals its pairs to the shards.

    The n-th of N shards gets the pairs n, n + N, n + 2N and so on, so each shard is a fair sample. The block's number
    is the seed of BPE dropout.
    """

    setting: Setting

    @cached_property
    def _pipeline(self) -> TextPipeline:
        return TextPipeline.load(self.setting.work / "text")

    def __call__(self, block: KeptBlock) -> TokenBlock:
        options, segments = self.setting.options, self._pipeline.segments
        if options.bpe_dropout:
            subwords: Any = self._pipeline.subwords
            segments = (subwords.with_dropout(options.bpe_dropout, seed=block.number),) * 2
        rows: dict[str, int] = defaultdict(lambda: len(rows))
        end = rows[EOS]
        sides = []
        for segment, lines in zip(segments, block.sides(), strict=True):
            sides.append([np.array([*map(rows.__getitem__, segment(line).split()), end], "<i4") for line in lines])
        parts = []
        for shard in range(options.shards):
            for side in sides:
                dealt = side[(shard - block.start) % options.shards :: options.shards]
                sizes = np.array([len(sentence) for sentence in dealt], "<i4")
                parts.append((sizes, np.concatenate(dealt) if dealt else np.empty(0, "<i4")))
        counts = np.bincount(np.concatenate([tokens for _, tokens in parts]), minlength=len(rows))
        counts[end] -= 2 * block.size
        return TokenBlock([*rows], counts.tolist(), [(sizes.tobytes(), tokens.tobytes()) for sizes, tokens in parts])


def segment(setting: Setting, blocks: Sequence[KeptBlock]) -> list[Path]:
    """Segments the remaining pairs. Returns the files of the token blocks."""
    pairs, sizes = sum(block.size for block in blocks), [block.size for block in blocks]
    if pairs < (shards := setting.options.shards):
        raise SettingError.of_value("shards", shards, f"at most the {pairs:,} training pairs")
    return run_blocks("segment", setting.work / "tokens", Segment(setting), blocks, sizes, setting.workers)


def write_dictionary(setting: Setting, pipeline: TextPipeline, files: Iterable[Path], path: Path) -> Dictionary:
    """Writes the dictionary of the token blocks, or that of `setting.like`, and returns it."""
    counts = Counter[str]()
    if setting.options.subwords == "sentencepiece-bytes":
        pieces: Any = pipeline.subwords
        counts.update(dict.fromkeys(pieces.units(), 0))
    for file in files:
        block: TokenBlock = _read(file, TokenBlock)
        counts.update(dict(zip(block.tokens, block.counts, strict=True)))
    if setting.like is None:
        path.write_bytes("".join(f"{token} {number}\n" for token, number in dictionary_entries(counts)).encode())
        return Dictionary.load(path)
    dictionary = setting.like.dictionary
    if unknown := sum(number for token, number in counts.items() if token not in dictionary):
        tokens = f"{unknown:,} of {counts.total():,} training tokens"
        print(f"{tokens} are unknown to the model, which can't learn them", file=sys.stderr)
    dictionary.save(path)
    return dictionary


def dictionary_entries(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """The tokens and their counts, in the order of the dictionary that fairseq-preprocess would write.

    The most frequent tokens come first, and equally frequent ones in alphabetical order. fairseq's own tokens are not
    listed. The dictionary is padded to a multiple of eight.
    """
    entries = sorted(
        ((token, count) for token, count in counts.items() if token not in SPECIAL_TOKENS),
        key=lambda entry: (-entry[1], entry[0]),
    )
    padding = -(len(entries) + len(SPECIAL_TOKENS)) % PADDED_TO
    unused = (name for number in count() if (name := f"madeupword{number:04d}") not in counts)
    return entries + [(name, 0) for name in islice(unused, padding)]


def binarise(setting: Setting, files: Iterable[Path], dictionary: Dictionary, folders: Iterable[Path]) -> None:
    """Writes train in fairseq's format.

    :param files: the token blocks.
    :param folders: the folder of each shard.
    """
    source, target = setting.languages
    with ExitStack() as stack:
        prefixes = [folder / f"train.{source}-{target}.{side}" for folder in folders for side in (source, target)]
        writers = [stack.enter_context(MmapWriter(prefix, len(dictionary))) for prefix in prefixes]
        for file in files:
            block: TokenBlock = _read(file, TokenBlock)
            indices = np.array([dictionary.index(token) for token in block.tokens])
            for writer, (sizes, tokens) in zip(writers, block.parts, strict=True):
                writer.add(indices[np.frombuffer(tokens, "<i4")], np.frombuffer(sizes, "<i4"))


def binarise_held_out(
    setting: Setting, pipeline: TextPipeline, dictionary: Dictionary, raw: Path, split: str, folders: tuple[Path, Path]
) -> int:
    """Writes a split that is not cleaned in fairseq's format, and its raw sentences. Returns the number of pairs.

    Of `CleaningOptions` only `entities` applies, and only to text that is tokenised already: there the escapes of
    Moses' tokeniser are part of the spelling.

    :param folders: those of the binarised files and of the raw sentences.
    """
    cleaning = CleaningOptions(entities=setting.options.cleaning.entities if setting.tokenised else "keep")
    tokeniser = PairTokeniser(setting.config, tokenised=setting.tokenised)
    pairs = list(raw_pairs(raw, [split]))
    sides = zip(setting.languages, pipeline.segments, strict=True)
    sentences = zip(*map(tokeniser.raw, pairs), strict=True)
    words = zip(*(tokeniser.words(pair, cleaning) for pair in pairs), strict=True)
    for (language, segment), raw_side, side in zip(sides, sentences, words, strict=True):
        (folders[1] / f"{split}.{language}").write_bytes("".join(f"{sentence}\n" for sentence in raw_side).encode())
        with MmapWriter(folders[0] / f"{split}.{'-'.join(setting.languages)}.{language}", len(dictionary)) as writer:
            for line in side:
                indices = dictionary.encode_line(segment(line))
                writer.add(indices, [len(indices)])
    return len(pairs)
