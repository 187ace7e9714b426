"""The stages of a preparation: clean and tokenise, drop duplicates, learn subword units, segment.

Train is processed in blocks of pairs, in worker processes. The results are written in the order of the blocks, so the
number of workers does not change them.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property
from itertools import count, islice
from pathlib import Path
from typing import Any

import msgspec

from rskip.corpora.cleaning import CleaningReport, PairCleaner
from rskip.corpora.cleaning.pairs import DUPLICATE, find_duplicates, pair_digest
from rskip.corpora.cleaning.report import LEFT_IN, PAIRS, SOURCE_HELD_OUT, TARGET_HELD_OUT
from rskip.corpora.cleaning.sentence import clean_sentence
from rskip.corpora.corpus import CleaningOptions, Pair
from rskip.corpora.options import PrepareOptions
from rskip.corpora.record import write_json
from rskip.corpora.splits import SplitText, read_blocks
from rskip.extras import extra
from rskip.files.whole import atomic_file
from rskip.machine.progress import Progress
from rskip.machine.workers import in_order
from rskip.settings.errors import SettingError
from rskip.text.dictionary import BOS, EOS, PAD, UNK, Dictionary
from rskip.text.pipeline import LanguageText, TextConfig, TextPipeline
from rskip.text.subwords import BytePairEncoding, Subwords, subwords_class
from rskip.text.tokenizer import Tokenizer
from rskip.text.words import MosesTokeniser, PlainTokeniser

with extra("translation", what="a corpus of text"):
    import numpy as np
    from numpy.typing import NDArray

CLEANED, DICTIONARY = "cleaned.json", "dict.txt"
SPECIAL_TOKENS = (BOS, PAD, EOS, UNK)
PADDED_TO = 8

LARGEST_SAMPLE, LARGEST_SAMPLE_OF_SENTENCEPIECE = 5_000_000, 500_000
"""Default maximum number of pairs for learning units. Of a larger corpus every k-th pair is used. The limit bounds
memory: subword-nmt holds every word with its pairs of letters, and SentencePiece all sentences."""

ROUND_TRIP = 1_000
"""Maximum number of sentences that are encoded and decoded to see whether they stay the same."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One preparation.

    :param options: the resolved options.
    :param config: settings of the text pipeline.
    :param tokenised: whether the corpus's text is tokenised already.
    :param work: the folder for the files of the stages.
    :param workers: number of processes; it does not change the result.
    :param like: the model whose units and dictionary are used; None: they are learnt.
    """

    options: PrepareOptions
    config: TextConfig
    tokenised: bool
    work: Path
    workers: int
    like: Tokenizer | None = None

    @property
    def languages(self) -> tuple[str, str]:
        return self.config.source_language, self.config.target_language

    @property
    def cleaning(self) -> CleaningOptions:
        return self.options.cleaning

    @property
    def texts(self) -> Path:
        """The folder with the dictionary and, by shard, the texts that fairseq-preprocess reads."""
        return self.work / "texts"

    def sides(self, folder: str, name: str) -> list[Path]:
        """The files of the source and target side of a split."""
        return [self.work / folder / f"{name}.{language}" for language in self.languages]


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """What a stage made of a block of pairs.

    :param contents: its lines for each file of the stage.
    :param size: its number of pairs after the stage.
    :param counts: the counts of its report, or of its tokens.
    :param text: the name of its text.
    :param examples: a dropped pair for each reason.
    """

    contents: list[bytes]
    size: int
    counts: dict[str, int]
    text: str = ""
    examples: dict[str, Pair] = {}


def run_blocks(
    name: str, folder: Path, job: Callable[[Any], Block], tasks: Iterable[Any], sizes: Sequence[int], workers: int
) -> list[Path]:
    """Runs the job for each block in worker processes, and keeps each result in a file. Returns the files, in order.

    Blocks whose files exist are not repeated. The progress is shown in pairs.

    :param tasks: the arguments of the job, for all blocks.
    :param sizes: number of pairs in each task.
    """
    files = [folder / f"block{number:06}" for number in range(len(sizes))]
    done = next((number for number, path in enumerate(files) if not path.exists()), len(files))
    if left := sizes[done:]:
        total = sum(sizes)
        with (
            Progress(name, total=total, done=total - sum(left), unit=" pairs", log=30.0) as bar,
            closing(in_order(job, islice(tasks, done, None), workers=min(workers, len(left)))) as results,
        ):
            for path, size, result in zip(files[done:], left, results, strict=True):
                with atomic_file(path) as temporary:
                    temporary.write_bytes(msgspec.msgpack.encode(result))
                bar.update(size)
    return files


def _read_block(path: Path) -> Block:
    return msgspec.msgpack.decode(path.read_bytes(), type=Block)


def tokenise(setting: Setting, texts: Sequence[SplitText], counts: Sequence[int]) -> None:
    """Writes reference/, and words/ with the words of valid and test and the blocks of train.

    A block holds the words of both sides and the digests of the pairs. Pairs that cleaning drops are left out, but not
    duplicates.

    :param counts: number of pairs of each text.
    """
    held_out = dict.fromkeys(text.split for text in texts if text.split != "train")
    for split in held_out:
        _tokenise_held_out(setting, texts, split)
    train = [(text, count) for text, count in zip(texts, counts, strict=True) if text.split == "train"]
    sizes, tasks = read_blocks(train)
    tokeniser = PairTokeniser(setting.config, tokenised=setting.tokenised)
    pairs = (tokeniser.cleaned_words(pair, setting.cleaning) for pair in _pairs(texts, held_out))
    job = Tokenise(setting, held_out=frozenset(pairs) if setting.cleaning != CleaningOptions() else None)
    run_blocks("tokenise", setting.work / "words", job, tasks, sizes, setting.workers)


def _tokenise_held_out(setting: Setting, texts: Sequence[SplitText], split: str) -> None:
    """Writes the words and the raw sentences of a split that is not cleaned: valid or test.

    Of `CleaningOptions` only `entities` applies, and only to text that is tokenised already: there the escapes of
    Moses' tokeniser are part of the spelling.
    """
    cleaning = CleaningOptions(entities=setting.cleaning.entities if setting.tokenised else "keep")
    tokeniser = PairTokeniser(setting.config, tokenised=setting.tokenised)
    lines: list[list[str]] = [[], [], [], []]
    for pair in _pairs(texts, [split]):
        words = tokeniser.cleaned_words(pair, cleaning)
        for side, sentence in zip(lines, (*tokeniser.raw(pair), *words), strict=True):
            side.append(sentence)
    files = [*setting.sides("reference", split), *setting.sides("words", split)]
    for path, sentences in zip(files, lines, strict=True):
        with atomic_file(path) as temporary:
            temporary.write_bytes(_joined(sentences))


def _pairs(texts: Sequence[SplitText], splits: Iterable[str]) -> Iterator[Pair]:
    return (pair for split in splits for text in texts if text.split == split for pair in text.pairs())


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

    def cleaned_words(self, pair: Pair, cleaning: CleaningOptions) -> Pair:
        """The words of both sides, whose sentences are cleaned first."""
        return self.words((clean_sentence(pair[0], cleaning), clean_sentence(pair[1], cleaning)))

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
    """Cleans and tokenises a block of raw pairs.

    :param held_out: the pairs of valid and test; None: not searched for.
    """

    setting: Setting
    held_out: frozenset[Pair] | None

    @cached_property
    def _tokeniser(self) -> PairTokeniser:
        return PairTokeniser(self.setting.config, tokenised=self.setting.tokenised)

    @cached_property
    def _cleaner(self) -> PairCleaner:
        held_out = self.held_out or frozenset()
        return PairCleaner(self.setting.cleaning, languages=self.setting.languages, held_out=held_out)

    def __call__(self, task: tuple[SplitText, int, list[Pair]]) -> Block:
        """:raises ValueError: a pair can't be tokenised. The error names file and sentence."""
        text, first, pairs = task
        cleaning = self.setting.cleaning
        counts, examples = Counter({PAIRS: len(pairs)}), dict[str, Pair]()
        kept: list[Pair] = []
        tokeniser, cleaner = self._tokeniser, self._cleaner
        for number, pair in enumerate(pairs, start=first):
            try:
                words = tokeniser.cleaned_words(pair, cleaning)
            except (MemoryError, OSError):
                raise  # the sentence is not the cause
            except Exception as error:
                raise ValueError(f"{text.sides[0]}: sentence {number} can't be tokenised: {error!r}") from error
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
        sides = [_joined([pair[side] for pair in kept]) for side in (0, 1)]
        return Block(contents=[*sides, digests], size=len(kept), counts=counts, text=text.name, examples=examples)


def _joined(lines: Sequence[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode()


@dataclass(frozen=True)
class KeptWords:
    """The words of train without duplicates.

    :param files: the blocks that `tokenise` made.
    :param sizes: number of pairs in each block, with duplicates.
    :param duplicates: the rows of the duplicates in train, ascending, from 0.
    """

    files: list[Path]
    sizes: list[int]
    duplicates: NDArray[np.int64]

    def __len__(self) -> int:
        return sum(self.sizes) - len(self.duplicates)

    def blocks(self) -> Iterator[tuple[list[str], list[str]]]:
        """The source and target lines of each block, without line ends."""
        start = 0
        for path, size in zip(self.files, self.sizes, strict=True):
            first, last = np.searchsorted(self.duplicates, (start, start + size))
            dropped = set((self.duplicates[first:last] - start).tolist())
            start += size
            source, target = (
                [line for row, line in enumerate(_lines(content)) if row not in dropped]
                for content in _read_block(path).contents[:2]
            )
            yield source, target

    def sample(self, step: int) -> Iterator[tuple[list[str], list[str]]]:
        """The blocks with only every `step`-th remaining pair."""
        start = 0
        for source, target in self.blocks():
            first = -start % step
            start += len(source)
            yield source[first::step], target[first::step]


def _lines(content: bytes) -> list[str]:
    return content.decode().split("\n")[:-1]


def deduplicate(setting: Setting) -> KeptWords:
    """Drops every pair that equals an earlier one, and writes the report of all dropped pairs to CLEANED."""
    report, texts, sizes, digests = CleaningReport.of(setting.cleaning), list[str](), list[int](), bytearray()
    files = sorted((setting.work / "words").glob("block*"))
    for block in map(_read_block, files):
        report.add(block.text, block.counts, block.examples)
        texts.append(block.text)
        sizes.append(block.size)
        digests += block.contents[2]  # nothing without options.duplicates
    duplicates = find_duplicates(digests)
    words = KeptWords(files, sizes, duplicates)
    if not len(words):
        raise ValueError(f"no training pairs are left: cleaning dropped all {report.total[PAIRS]:,} pairs")
    ends = np.cumsum(sizes)
    for text, dropped in zip(texts, np.diff(np.searchsorted(duplicates, ends), prepend=0).tolist(), strict=True):
        report.add(text, {DUPLICATE: dropped})
    if len(duplicates):
        number = int(np.searchsorted(ends, duplicates[0], side="right"))
        row = int(duplicates[0] - ends[number])  # from the block's end
        source, target = (_lines(content)[row] for content in _read_block(files[number]).contents[:2])
        report.add(texts[number], {}, {DUPLICATE: (source, target)})
    write_json(setting.work / CLEANED, report.to_dict())
    return words


def learn(setting: Setting, words: KeptWords) -> TextPipeline:
    """Learns the units, saves the text pipeline in the work folder's `text` and returns it.

    The units are learnt from both languages together: from every k-th remaining pair, with the smallest k that gives
    at most the sample's size.
    """
    folder = setting.work / "text"
    if (folder / "pipeline.json").exists():  # `save` writes it last
        return TextPipeline.load(folder)
    if setting.like is not None:
        pipeline = setting.like.text
        assert isinstance(pipeline, TextPipeline)  # as `read_like` has checked
        pipeline.save(folder)
        return pipeline
    kind, size = setting.options.subwords, setting.options.size
    assert kind is not None and size is not None
    largest = LARGEST_SAMPLE if kind == "bpe" else LARGEST_SAMPLE_OF_SENTENCEPIECE
    step = -(-len(words) // (setting.options.learn_sample or largest))
    subwords: Subwords
    if kind == "bpe":
        counts: Counter[str] = Counter()
        with Progress("count words", total=len(words), unit=" pairs", log=30.0) as bar:
            for block in words.sample(step):
                for line in (*block[0], *block[1]):
                    counts.update(line.split(" "))
                bar.update(step * len(block[0]))
        counts.pop("", None)
        subwords = BytePairEncoding.learn_from_counts(counts, size=size)
    else:
        sentences = (line for side in range(2) for block in words.sample(step) for line in block[side])
        subwords = subwords_class(kind).learn(sentences, size=size)
    pipeline = TextPipeline(setting.config, subwords)
    pipeline.save(folder)
    return pipeline


def segment(setting: Setting, words: KeptWords, pipeline: TextPipeline) -> None:
    """Writes `texts`: shard1/train.<language> and so on, and dict.txt, which comes last.

    The n-th of N shards gets the pairs n, n + N, n + 2N and so on, so each shard is a fair sample.
    """
    shards = setting.options.shards
    if len(words) < shards:
        raise SettingError.of_value("shards", shards, f"at most the {len(words):,} training pairs")
    counts: Counter[str] = Counter()
    if setting.options.subwords == "sentencepiece-bytes":
        pieces: Any = pipeline.subwords
        counts.update(dict.fromkeys(pieces.units(), 0))
    ends = np.cumsum(words.sizes)
    starts = [0, *(ends - np.searchsorted(words.duplicates, ends)).tolist()]  # without duplicates
    tasks, sizes = zip(count(), starts, words.blocks(), strict=False), np.diff(starts).tolist()
    made = run_blocks("segment", setting.work / "tokens", Segment(setting), tasks, sizes, setting.workers)
    with ExitStack() as stack:
        files = []
        for path in (path for shard in range(shards) for path in setting.sides(f"texts/shard{shard + 1}", "train")):
            path.parent.mkdir(parents=True, exist_ok=True)
            files.append(stack.enter_context(path.open("wb")))
        for block in map(_read_block, made):
            counts.update(block.counts)
            for file, content in zip(files, block.contents, strict=True):
                file.write(content)
    if setting.like is not None:
        dictionary = setting.like.source
        if unknown := sum(number for token, number in counts.items() if token not in dictionary):
            tokens = f"{unknown:,} of {counts.total():,} training tokens"
            print(f"{tokens} are unknown to the model, which can't learn them", file=sys.stderr)
        dictionary.save(setting.texts / DICTIONARY)
        return
    with atomic_file(setting.texts / DICTIONARY) as temporary:
        lines = [f"{token} {count}" for token, count in dictionary_entries(counts)]
        temporary.write_bytes(_joined(lines))


def round_trip(setting: Setting) -> dict[str, int]:
    """How many of the first target sentences of the validation set decode to what was encoded, apart from white space.

    :returns: `sentences`, their number, and `equal`.
    """
    dictionary = Dictionary.load(setting.texts / DICTIONARY)
    tokenizer = Tokenizer(TextPipeline.load(setting.work / "text"), dictionary, dictionary)
    with open(setting.sides("reference", "valid")[1], encoding="utf-8", newline="\n") as lines:
        sentences = [" ".join(line.split()) for line in islice(lines, ROUND_TRIP)]
    equal = sum(tokenizer.decode(tokenizer.encode_prefix(sentence)) == sentence for sentence in sentences)
    return {"sentences": len(sentences), "equal": equal}


@dataclass(frozen=True)
class Segment:
    """Segments a block of words, and deals its lines to the shards.

    The block's number is the seed of BPE dropout, so the number and order of workers do not change the result.
    """

    setting: Setting

    @cached_property
    def _pipeline(self) -> TextPipeline:
        return TextPipeline.load(self.setting.work / "text")

    def __call__(self, task: tuple[int, int, Sequence[list[str]]]) -> Block:
        number, start, sides = task
        options = self.setting.options
        segments = self._pipeline.segments
        if options.bpe_dropout:
            subwords: Any = self._pipeline.subwords
            segments = (subwords.with_dropout(options.bpe_dropout, seed=number),) * 2
        tokens = [[segment(line) for line in lines] for segment, lines in zip(segments, sides, strict=True)]
        counts: Counter[str] = Counter()
        for line in (*tokens[0], *tokens[1]):
            counts.update(line.split())
        shards = options.shards
        contents = [_joined(lines[(n - start) % shards :: shards]) for n in range(shards) for lines in tokens]
        return Block(contents=contents, size=len(tokens[0]), counts=counts)


def segment_held_out(setting: Setting, pipeline: TextPipeline, split: str) -> None:
    """Writes the tokens of a split that is not cleaned to the first shard."""
    folders = setting.sides("words", split), setting.sides("texts/shard1", split)
    for source, target, segment in zip(*folders, pipeline.segments, strict=True):
        target.parent.mkdir(parents=True, exist_ok=True)
        with source.open(encoding="utf-8", newline="\n") as lines:
            target.write_bytes(_joined([segment(line.removesuffix("\n")) for line in lines]))


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
