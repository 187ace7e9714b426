"""What `rskip prepare --list` says of a corpus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rskip.corpora.corpus import (
    CaptionCorpus,
    CleaningOptions,
    Corpus,
    GeneratedCorpus,
    ParallelText,
    PublishedCorpus,
    UpstreamFile,
)


def describe(corpus: Corpus | CaptionCorpus) -> str:
    """Lines without a last line end: name and homepage, and indented below, the terms of use, the paper to cite, the
    texts of each split, how it is prepared by default, and for a published corpus the files that are downloaded.

    `rskip prepare --list` prints it of every corpus.
    """
    lines = [f"{corpus.name}: {corpus.homepage}", f"terms: {corpus.licence}", f"source: {corpus.citation}"]
    if isinstance(corpus, CaptionCorpus):
        counts = ", ".join(f"{split} {count:,}" for split, count in corpus.images.items())
        lines.append(f"captioned pictures: {counts}")
        lines.append(f"images: not downloaded; get them from {corpus.pictures}")
        return "\n  ".join([*lines, _files([corpus.archive])])
    lines.append(f"languages: {corpus.source} to {corpus.target}")
    if isinstance(corpus, GeneratedCorpus):
        lines.append(f"train: {corpus.pairs:,} pairs by default")
    if isinstance(corpus, PublishedCorpus):
        lines += [_split(split, texts) for split, texts in corpus.splits.items()]
    lines.append(f"prepared: {', '.join(_steps(corpus))}")
    if isinstance(corpus, PublishedCorpus):
        lines.append(_files(corpus.upstream_files()))
    return "\n  ".join(lines)


def _pairs(texts: Iterable[ParallelText]) -> int | None:
    """How many pairs the texts give, before cleaning; None where it is not known."""
    total = 0
    for text in texts:
        if text.sentences is None:
            return None
        if text.every is not None:
            total += text.sentences // text.every
        elif text.except_every is not None:
            total += text.sentences - text.sentences // text.except_every
        else:
            total += text.sentences
    return total


def _split(split: str, texts: tuple[ParallelText, ...]) -> str:
    pairs = _pairs(texts)
    names = (text.name + _chosen(text) for text in texts)
    return f"{split}: {'' if pairs is None else f'{pairs:,} pairs: '}{', '.join(names)}"


def _chosen(text: ParallelText) -> str:
    if text.every is not None:
        return f" (1 pair in {text.every})"
    return "" if text.except_every is None else f" (all but 1 pair in {text.except_every})"


def _steps(corpus: Corpus) -> Iterator[str]:
    """The steps of preparation and their settings, in their order."""
    cleaning = corpus.defaults.cleaning
    if cleaning.entities == "unescape":
        yield "HTML entities unescaped"
    if cleaning.remove_non_printing:
        yield "non-printing characters removed"
    yield (
        "tokenised by its publisher" if corpus.defaults.tokenised else "punctuation normalised, tokenised as Moses does"
    )
    if dropped := ", ".join(_dropped(cleaning)):
        yield f"training pairs dropped ({dropped})"
    yield f"{corpus.defaults.size:,} subword units"


def _dropped(cleaning: CleaningOptions) -> Iterator[str]:
    if cleaning.empty:
        yield "empty"
    if cleaning.max_words is not None:
        yield f"more than {cleaning.max_words} words"
    if cleaning.max_ratio is not None:
        yield f"one side over {cleaning.max_ratio:g} times the other"
    if cleaning.languages:
        yield "another language"
    if cleaning.leaks:
        yield "in valid or test"
    if cleaning.duplicates:
        yield "repeated"


def _files(files: list[UpstreamFile]) -> str:
    sizes = [file.size for file in files]
    known = sum(size for size in sizes if size is not None)
    total = _size(known) if None not in sizes else f"{_size(known)} and those of unknown size"
    named = (f"{file.name} ({'unknown' if file.size is None else _size(file.size)})" for file in files)
    return f"files: {total}: {', '.join(named)}"


def _size(count: int) -> str:
    for unit, scale in (("GB", 10**9), ("MB", 10**6)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count / 1000:.0f} kB"
