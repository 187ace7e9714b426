"""What `rskip prepare --list` prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rskip.corpora.corpus import (
    CaptionCorpus,
    Corpus,
    ParallelText,
    PublishedCorpus,
    TextCorpus,
    UpstreamFile,
)
from rskip.corpora.options import PrepareOptions
from rskip.machine.terminal import columns


def overview(corpora: Iterable[Corpus | CaptionCorpus | TextCorpus]) -> str:
    """A table with one line per corpus: name (of both directions), training data, bytes to download, terms of use. It
    has no last line end."""
    rows: dict[object, list[str]] = {}
    for corpus in corpora:
        either, content, files = corpus.name, "text", _upstream(corpus)
        if isinstance(corpus, Corpus):
            languages = "-".join(sorted((corpus.source, corpus.target)))
            either = corpus.name.removesuffix(f"{corpus.source}-{corpus.target}") + languages
        if isinstance(corpus, CaptionCorpus):
            content = f"{corpus.images['train']:,} images"
        elif isinstance(corpus, PublishedCorpus):
            content = f"{_pairs(corpus.splits['train']) or 'unknown '}pairs"
        elif isinstance(corpus, Corpus):
            content = f"{corpus.choices['pairs']:,} pairs"
        if either in rows:
            rows[either][0] += f", {corpus.name}"
        else:
            rows[either] = [corpus.name, content, _total(files) if files else "none", corpus.licence]
    return columns([("corpus", "to train on", "download", "terms"), *rows.values()], left=(0, 3))


def describe(corpus: Corpus | CaptionCorpus | TextCorpus) -> str:
    """Describes a corpus in lines: name and homepage, then indented its terms of use, the paper to cite, the texts of
    each split, the default options of its preparation and the files to download. There is no last line end."""
    lines = [f"{corpus.name}: {corpus.homepage}", f"terms: {corpus.licence}", f"source: {corpus.citation}"]
    if isinstance(corpus, CaptionCorpus):
        counts = ", ".join(f"{split} {count:,}" for split, count in corpus.images.items())
        lines.append(f"captioned images: {counts}")
        lines.append(f"images: not downloaded; get them from {corpus.image_source}")
    elif isinstance(corpus, TextCorpus):
        lines.append("train: the first nine tenths of the text; valid: the rest; tokens: characters by default")
    else:
        lines.append(f"languages: {corpus.source} to {corpus.target}")
        if isinstance(corpus, PublishedCorpus):
            for split, texts in corpus.splits.items():
                lines.append(f"{split}: {_pairs(texts, ' pairs: ')}{', '.join(map(_text, texts))}")
        options = PrepareOptions().resolve(corpus).to_plain()
        tokens = "tokenised by its publisher, " if corpus.defaults.tokenised else ""
        lines.append(f"prepared with: {tokens}{', '.join(f'{name} {value}' for name, value in options.items())}")
    if files := _upstream(corpus):
        named = (f"{file.name} ({'unknown' if file.size is None else _size(file.size)})" for file in files)
        lines.append(f"files: {_total(files)}: {', '.join(named)}")
    return "\n  ".join(lines)


def _upstream(corpus: Corpus | CaptionCorpus | TextCorpus) -> list[UpstreamFile]:
    if isinstance(corpus, CaptionCorpus):
        return [corpus.archive]
    if isinstance(corpus, TextCorpus):
        return [corpus.file]
    return corpus.upstream_files() if isinstance(corpus, PublishedCorpus) else []


def _pairs(texts: Sequence[ParallelText], after: str = " ") -> str:
    """The number of pairs in the texts before cleaning; "" if it is unknown."""
    counts = [text.pairs for text in texts]
    return "" if None in counts else f"{sum(count or 0 for count in counts):,}{after}"


def _text(text: ParallelText) -> str:
    if text.every is not None:
        return f"{text.name} (1 pair in {text.every})"
    return text.name if text.except_every is None else f"{text.name} (all but 1 pair in {text.except_every})"


def _total(files: Sequence[UpstreamFile]) -> str:
    known = [file.size for file in files if file.size is not None]
    if not known:
        return "unknown"
    return ("" if len(known) == len(files) else "over ") + _size(sum(known))


def _size(count: int) -> str:
    for unit, scale in (("GB", 10**9), ("MB", 10**6)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count / 1000:.0f} kB"
