"""Prepares a corpus: it writes the folder that fairseq-train reads."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from rskip.corpora.cleaning import PairCleaner
from rskip.corpora.corpus import CleaningOptions, Corpus, PublishedCorpus, UpstreamFile
from rskip.corpora.fetch import fetch
from rskip.corpora.like import Like, describe_like, read_like
from rskip.corpora.numbers import NumbersCorpus
from rskip.corpora.options import PrepareOptions
from rskip.corpora.own_corpus import OwnCorpus
from rskip.corpora.record import (
    CLEANING_FILE,
    State,
    needs_build,
    plan,
    record_difference,
    shard_folders,
    would_be_lost,
    write_json,
    write_record,
)
from rskip.corpora.splits import split_pairs
from rskip.corpora.stages import (
    Setting,
    binarise,
    binarise_held_out,
    deduplicate,
    learn,
    raw_blocks,
    segment,
    tokenise,
    write_dictionary,
    write_raw,
)
from rskip.files.lock import one_at_a_time
from rskip.files.state import read_state
from rskip.files.whole import real_path, whole_folder
from rskip.settings.errors import SettingError
from rskip.text.dictionary import Dictionary
from rskip.text.pipeline import TextConfig, TextPipeline, tool_versions
from rskip.text.tokenizer import Tokenizer

_STATE = "state.json"
ROUND_TRIP = 1_000
"""Maximum number of sentences that are encoded and decoded to see whether they stay the same."""


def prepare(
    corpus: Corpus,
    output: str | Path,
    *,
    options: PrepareOptions | None = None,
    like: Path | None = None,
    mirror: str | None = None,
    offline: bool = False,
    workers: int = 1,
    force: bool = False,
) -> bool:
    """Prepares a corpus in `output`, atomically.

    The folder contains the binarised splits and dictionaries as fairseq-preprocess writes them (several shards in
    folders shard1, shard2 and so on), text/, which `TextPipeline.load` reads, reference/ with the raw sentences of
    valid and test, cleaning.json, the report of dropped pairs, if the options clean, and corpus.json.

    Unfinished work is in `output`.partial. Repeating a killed run continues it and gives the same bytes. Bad input
    leaves no files.

    :param options: None: the corpus's defaults.
    :param like: folder of a model whose units and dictionary are used; only for your own text.
    :param mirror: a folder or base URL with the upstream files under their own names.
    :param offline: download nothing; the files must be in the cache or the mirror.
    :param workers: number of processes; it does not change the result.
    :param force: replace a folder that was prepared, or begun, with other options.
    :returns: False if `output` was up to date and nothing was done.
    :raises ValueError: the input is bad; SettingError: an option is not allowed, or `output` holds something else.
    :raises FileNotFoundError: an input is missing.
    :raises OSError: a server, a disk or a worker process failed.
    """
    output = real_path(output)
    options, model = options or PrepareOptions(), None
    if like is not None:
        model = read_like(like, (corpus.source, corpus.target))
        options = dataclasses.replace(options, subwords="bpe" if model.text.config.subwords == "bpe" else None)
    resolved = options.resolve(corpus)
    if like is not None:
        resolved = dataclasses.replace(resolved, subwords=None, size=None)
    planned = plan(corpus, resolved)
    if like is not None:
        planned["inputs"] = {**planned["inputs"], **describe_like(like)}
    work = output.with_name(output.name + ".partial")
    if not needs_build(output, planned, force=force):
        if not work.exists() or _difference(work, planned) is None:
            _remove(work)  # left by a process that was killed at its end
        return False
    # refuses a filter that can't work here
    PairCleaner(dataclasses.replace(resolved.cleaning, leaks=False), languages=(corpus.source, corpus.target))
    files: Mapping[UpstreamFile, Path] = {}
    if isinstance(corpus, PublishedCorpus):
        fetched = fetch(corpus.upstream_files(), folder=corpus.folder, mirror=mirror, offline=offline)
        planned["inputs"] = {
            file.name: {"url": file.url, "size": found.size, "sha256": found.sha256} for file, found in fetched.items()
        }
        files = {file: found.path for file, found in fetched.items()}
    with one_at_a_time(output):
        if not needs_build(output, planned, force=force):
            return False  # another process has made it in the meantime
        setting = _setting(corpus, resolved, work=work, workers=workers, like=model)
        _begin(work, {**planned, "tools": setting.config.versions}, force=force)
        try:
            _make(setting, corpus, files, output, planned)
        except ValueError:
            _remove(work)  # repeating the command would fail here again
            raise
        _remove(work)
    return True


def _begin(work: Path, planned: dict[str, Any], *, force: bool) -> None:
    """Creates the work folder, or continues one with the same plan.

    :param planned: everything that determines the bytes of the output.
    :param force: start again if the folder has another plan.
    """
    if work.exists() and (differs := _difference(work, planned)) is not None:
        if not force:
            raise would_be_lost(f"{work} was left by an unfinished run and {differs}")
        _remove(work)
    if not work.exists():
        with whole_folder(work) as building:
            write_json(building / _STATE, planned)
    for left in work.rglob(".*.partial*"):  # of a killed `atomic_file`
        left.unlink()


def _difference(work: Path, planned: dict[str, Any]) -> str | None:
    """How the plan of a work folder differs from this one; see `record_difference`."""
    if not (work / _STATE).is_file():
        problem = f"{work} was not made by rskip prepare"
        raise SettingError("", problem, advice="move it away, or choose another output")
    state = read_state(work / _STATE, State, advice=f"move {work} away to start again")
    return record_difference(state, planned)


def _remove(work: Path) -> None:
    """Removes the work folder, if it exists, and what a killed process left of it."""
    aside = work.with_name(f".{work.name}.removed")
    shutil.rmtree(aside, ignore_errors=True)
    with suppress(FileNotFoundError):  # another process may remove it too
        work.rename(aside)  # a part of it would look like unfinished work
    shutil.rmtree(aside, ignore_errors=True)


def _setting(
    corpus: Corpus, options: PrepareOptions, *, work: Path, workers: int, like: Like | None
) -> Setting:
    if like is not None:
        return Setting(options=options, config=like.text.config, tokenised=False, work=work, workers=workers, like=like)
    kind = options.subwords
    assert kind is not None
    packages = ["sacremoses", "subword-nmt" if kind == "bpe" else "sentencepiece"]
    tokeniser = options.tokeniser or ("moses" if kind == "bpe" else "none")
    config = TextConfig(
        source_language=corpus.source,
        target_language=corpus.target,
        normalise_punctuation=tokeniser == "moses",
        tokeniser=tokeniser,
        lowercase=options.lowercase,
        subwords=kind,
        versions=tool_versions(*packages),
    )
    if corpus.defaults.tokenised:
        # These settings reproduce 5,641 of the 5,642 detokenised sentences of IWSLT'15's tst2012 and tst2013. With
        # dash splits they reproduce 97 %, with normalised punctuation 99.8 %.
        escape = options.cleaning.entities == "keep"
        config = dataclasses.replace(config, normalise_punctuation=False, dash_splits=False, escape=escape)
    return Setting(options=options, config=config, tokenised=corpus.defaults.tokenised, work=work, workers=workers)


def _make(
    setting: Setting, corpus: Corpus, files: Mapping[UpstreamFile, Path], output: Path, planned: dict[str, Any]
) -> None:
    """Runs the stages and writes `output`."""
    work, raw = setting.work, setting.work / "raw"
    if not raw.exists():
        write_raw(split_pairs(corpus, setting.options, files, work / "unpacked"), raw)
        shutil.rmtree(work / "unpacked", ignore_errors=True)
    held_out = [split for split in corpus.split_names if split != "train"]
    kept, report = deduplicate(setting.options.cleaning, tokenise(setting, raw, held_out))
    pipeline = learn(setting, kept)
    tokens = segment(setting, kept)
    with whole_folder(output) as folder:
        shards = shard_folders(folder, setting.options.shards)
        for place in (*shards, folder / "reference"):
            place.mkdir(exist_ok=True)
        source, target = (folder / f"dict.{language}.txt" for language in setting.languages)
        dictionary = write_dictionary(setting, pipeline, tokens, source)
        for path in (target, *(shard / name.name for shard in shards for name in (source, target) if shard != folder)):
            shutil.copyfile(source, path)
        binarise(setting, tokens, dictionary, shards)
        sentences = {"train": report["total"]["kept"]}
        for split in held_out:
            folders = shards[0], folder / "reference"
            sentences[split] = binarise_held_out(setting, pipeline, dictionary, raw, split, folders)
        shutil.copytree(work / "text", folder / "text")
        if setting.options.cleaning != CleaningOptions():
            write_json(folder / CLEANING_FILE, report)
        packages = [*setting.config.versions, *(["num2words"] if isinstance(corpus, NumbersCorpus) else ())]
        read: dict[str, Any] = {}
        if isinstance(corpus, OwnCorpus):
            references = folder / f"reference/valid.{corpus.target}"
            taken = sum(raw_blocks(raw, "train").values()) + sum(sentences[split] for split in corpus.split_off)
            read = {
                "read": {
                    split: [{"name": text.name, "pairs": text.pairs, "words": list(text.words)} for text in texts]
                    for split, texts in corpus.texts.items()
                },
                "round_trip": _round_trip(pipeline, dictionary, references),
                "left_out": sum(text.pairs for text in corpus.texts["train"]) - taken,
            }
        made = {
            **planned,
            "sentences": sentences,
            "dictionary_size": len(dictionary),
            **read,
            "homepage": corpus.homepage,
            "licence": corpus.licence,
            "citation": corpus.citation,
            "tools": tool_versions(*packages),
        }
        write_record(folder, made)


def _round_trip(pipeline: TextPipeline, dictionary: Dictionary, references: Path) -> dict[str, int]:
    """How many of the first target sentences of the validation set decode to what was encoded, apart from white space.

    :returns: `sentences`, their number, and `equal`.
    """
    tokenizer = Tokenizer(pipeline, dictionary, dictionary)
    with references.open(encoding="utf-8", newline="\n") as lines:
        sentences = [" ".join(line.split()) for line in islice(lines, ROUND_TRIP)]
    equal = sum(tokenizer.decode(tokenizer.encode_prefix(sentence)) == sentence for sentence in sentences)
    return {"sentences": len(sentences), "equal": equal}
