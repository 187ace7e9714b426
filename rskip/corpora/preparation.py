"""From a corpus to the folder that fairseq-train reads."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from tqdm import tqdm

from rskip.corpora.binarise import binarise, find_fairseq_preprocess
from rskip.corpora.corpus import SPLITS, Corpus, GeneratedCorpus, Pair, PublishedCorpus, UpstreamFile
from rskip.corpora.disk_space import disk_space
from rskip.corpora.fetch import fetch
from rskip.corpora.one_at_a_time import one_at_a_time
from rskip.corpora.options import PrepareOptions
from rskip.corpora.record import must_make, plan, write_record
from rskip.corpora.sentences import read_pairs, read_sentences
from rskip.corpora.whole_folder import whole_folder
from rskip.text.dictionary import Dictionary
from rskip.text.pipeline import LanguageText, TextConfig, TextPipeline
from rskip.text.subwords import subwords_class
from rskip.text.tool_versions import tool_versions


def prepare(
    corpus: Corpus,
    output: str | Path,
    *,
    options: PrepareOptions | None = None,
    mirror: str | None = None,
    workers: int = 1,
    force: bool = False,
) -> bool:
    """Makes `output`, whole or not at all.

    It holds the binarised splits and their dictionaries as fairseq-preprocess writes them; text/, which
    `TextPipeline.load` reads; reference/, the raw sentences of valid and test; and corpus.json.

    :param options: what to make; the corpus's defaults where None.
    :param mirror: a folder or base URL that holds the upstream files under their own names.
    :param workers: processes; their number does not change the result.
    :param force: replace a folder that was prepared with other options.
    :returns: False where `output` was up to date and nothing was done.
    :raises ValueError: bad input, or `output` holds something else; says what to do.
    :raises FileNotFoundError: an input, or fairseq, is missing.
    :raises OSError: a server or a disk failed.
    """
    output = Path(output).resolve()
    resolved = (options or PrepareOptions()).resolve(corpus)
    planned = plan(corpus, resolved)
    if not must_make(output, planned, force=force):
        return False
    find_fairseq_preprocess()
    files = fetch(corpus, mirror=mirror) if isinstance(corpus, PublishedCorpus) else {}
    with disk_space(output, advice="free some, or choose another --output"), one_at_a_time(output):
        if not must_make(output, planned, force=force):
            return False  # another process has made it meanwhile
        with whole_folder(output) as folder:
            found = _fill(folder, corpus, resolved, files=files, workers=workers)
            write_record(folder, {**planned, **found})
    return True


def _fill(
    folder: Path,
    corpus: Corpus,
    options: Mapping[str, Any],
    *,
    files: Mapping[UpstreamFile, Path],
    workers: int,
) -> dict[str, Any]:
    """Writes everything but corpus.json into `folder`; gives what is known only afterwards."""
    languages = (corpus.source, corpus.target)
    bpe = options["subwords"] == "bpe"
    packages = ["sacremoses", "subword-nmt" if bpe else "sentencepiece"]
    config = TextConfig(
        source_language=corpus.source,
        target_language=corpus.target,
        tokeniser="moses" if bpe else "none",
        subwords=options["subwords"],
        versions=tool_versions(*packages),
    )
    words, tokens, reference = folder / "work/words", folder / "work/tokens", folder / "reference"
    for made in (words, tokens, reference):
        made.mkdir(parents=True)

    texts = [LanguageText(config, language) for language in languages]
    sentences = {}
    for split, pairs in _raw_pairs(corpus, options, files):
        names = [f"{split}.{language}" for language in languages]
        sentences[split] = _write_words(
            pairs,
            texts,
            words=[words / name for name in names],
            raw=[reference / name for name in names] if split != "train" else [],
        )

    training_texts = (read_sentences(words / f"train.{language}") for language in languages)
    subwords = subwords_class(config.subwords).learn(
        itertools.chain.from_iterable(training_texts), size=options["size"]
    )
    pipeline = TextPipeline(config, subwords)
    pipeline.save(folder / "text")
    for path in tqdm(sorted(words.iterdir()), desc="segment", unit="file", disable=None):
        with _open_text(tokens / path.name) as file:
            file.writelines(pipeline.segment(line) + "\n" for line in read_sentences(path))

    binarise(tokens, folder, source=corpus.source, target=corpus.target, sentences=sentences, workers=workers)
    shutil.rmtree(folder / "work")
    if isinstance(corpus, GeneratedCorpus):
        packages += corpus.packages
    return {
        "sentences": sentences,
        "dictionary_size": len(Dictionary.load(folder / f"dict.{corpus.source}.txt")),
        "homepage": corpus.homepage,
        "licence": corpus.licence,
        "citation": corpus.citation,
        "tools": tool_versions(*packages, "fairseq"),
    }


def _raw_pairs(
    corpus: Corpus, options: Mapping[str, Any], files: Mapping[UpstreamFile, Path]
) -> Iterator[tuple[str, Iterable[Pair]]]:
    """Each split's name and raw pairs."""
    if isinstance(corpus, GeneratedCorpus):
        generated = corpus.generate(pairs=options["pairs"], seed=options["seed"])
        yield from ((split, generated[split]) for split in SPLITS)
        return
    assert isinstance(corpus, PublishedCorpus)
    languages = (corpus.source, corpus.target)
    for split in SPLITS:
        parts = (
            read_pairs(*(files[part.files[language]] for language in languages), sentences=part.sentences)
            for part in corpus.splits[split]
        )
        yield split, itertools.chain.from_iterable(parts)


def _write_words(
    pairs: Iterable[Pair], texts: list[LanguageText], *, words: list[Path], raw: list[Path]
) -> int:
    """Writes each language's tokenised sentences, and the raw ones where asked; counts the pairs."""
    count = 0
    with contextlib.ExitStack() as stack:
        word_files = [stack.enter_context(_open_text(path)) for path in words]
        raw_files = [stack.enter_context(_open_text(path)) for path in raw]
        for pair in tqdm(pairs, desc=f"tokenise {words[0].stem}", unit=" pairs", disable=None):
            for file, text, sentence in zip(word_files, texts, pair, strict=True):
                file.write(text.words(sentence) + "\n")
            for file, sentence in zip(raw_files, pair, strict=False):
                file.write(sentence + "\n")
            count += 1
    return count


def _open_text(path: Path) -> TextIO:
    return path.open("w", encoding="utf-8", newline="\n")
