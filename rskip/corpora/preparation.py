"""Prepares a corpus: it writes the folder that fairseq-train reads."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from rskip.corpora.chunks import Chunk, SplitText, plan_chunks, split_texts
from rskip.corpora.cleaning import CleaningReport, PairCleaner
from rskip.corpora.corpus import CleaningOptions, Corpus, GeneratedCorpus, PublishedCorpus, Text, UpstreamFile
from rskip.corpora.fetch import fetch
from rskip.corpora.formats import TextFile
from rskip.corpora.options import PrepareOptions
from rskip.corpora.own_corpus import OwnCorpus
from rskip.corpora.record import (
    CLEANING_FILE,
    RECORD_FILE,
    WorkFolder,
    needs_build,
    plan,
    shard_folders,
    write_json,
    write_record,
)
from rskip.corpora.stages.assemble import DICTIONARY, assemble
from rskip.corpora.stages.binarise import BINARISED, binarise_shard, find_fairseq_preprocess
from rskip.corpora.stages.deduplicate import deduplicate
from rskip.corpora.stages.setting import Setting
from rskip.corpora.stages.subwords import TEXT, learn, segment_held_out, segment_train
from rskip.corpora.stages.tokenise import REFERENCE, tokenise_held_out, tokenise_train
from rskip.files.archives import extract
from rskip.files.cache import FetchedFile
from rskip.files.lock import one_at_a_time
from rskip.files.state import read_state
from rskip.files.whole import real_path
from rskip.machine.progress import Progress
from rskip.machine.workers import in_order
from rskip.settings.kinds import Whole
from rskip.text.dictionary import Dictionary
from rskip.text.pipeline import TextConfig, tool_versions

_TOKENISED, _COUNTS, _UNPACKED, _GENERATED = "tokenised.json", "counts.json", "unpacked", "generated"
_AGAIN = "remove it to repeat this part"
_SMALL = 50_000_000  # bytes of input; reading less takes less time than starting a process


def prepare(
    corpus: Corpus,
    output: str | Path,
    *,
    options: PrepareOptions | None = None,
    mirror: str | None = None,
    offline: bool = False,
    workers: int = 1,
    force: bool = False,
) -> bool:
    """Prepares a corpus in `output`, atomically.

    The folder contains:

    - the binarised splits and their dictionaries as fairseq-preprocess writes them; several shards are in folders
      shard1, shard2 and so on
    - text/, which `TextPipeline.load` reads
    - reference/, the raw sentences of valid and test
    - cleaning.json, the report of dropped pairs, if the options clean
    - corpus.json

    Unfinished work is in `output`.partial. Repeating a killed run continues it and gives the same bytes. Bad input
    leaves no files.

    :param options: None: the corpus's defaults.
    :param mirror: a folder or base URL with the upstream files under their own names.
    :param offline: download nothing; the files must be in the cache or the mirror.
    :param workers: number of processes; it does not change the result.
    :param force: replace a folder that was prepared, or begun, with other options.
    :returns: False if `output` was up to date and nothing was done.
    :raises ValueError: the input is bad; SettingError: an option is not allowed; OutputError: `output` holds something
        else.
    :raises FileNotFoundError: an input or fairseq is missing.
    :raises OSError: a server, a disk or a worker process failed.
    """
    output = real_path(output)
    resolved = (options or PrepareOptions()).resolve(corpus)
    planned = plan(corpus, resolved)
    work = WorkFolder(output)
    if not needs_build(output, planned, force=force):
        work.remove_finished()
        return False
    find_fairseq_preprocess()
    _check_cleaning(corpus, resolved)
    files: dict[UpstreamFile, FetchedFile] = {}
    if isinstance(corpus, PublishedCorpus):
        files = fetch(corpus.upstream_files(), folder=corpus.folder, mirror=mirror, offline=offline)
        planned["inputs"] = {
            file.name: {"url": file.url, "size": fetched.size, "sha256": fetched.sha256}
            for file, fetched in files.items()
        }
    with one_at_a_time(output, inherited=True):
        if not needs_build(output, planned, force=force):
            return False  # another process has made it in the meantime
        setting = _setting(corpus, resolved, work=work, workers=workers)
        work.begin({**planned, "tools": setting.config.versions}, force=force)
        try:
            found = _make_result(setting, corpus, {file: fetched.path for file, fetched in files.items()})
        except ValueError:
            work.remove()  # repeating the command would fail here again
            raise
        if not (work.result / RECORD_FILE).exists():
            write_record(work.result, {**planned, **found})
        work.finish()
    return True


def _check_cleaning(corpus: Corpus, options: PrepareOptions) -> None:
    """Raises an error for a filter that can't work here, before anything is downloaded."""
    cleaning = dataclasses.replace(options.cleaning, leaks=False)
    PairCleaner(cleaning, languages=(corpus.source, corpus.target))


def _setting(corpus: Corpus, options: PrepareOptions, *, work: WorkFolder, workers: int) -> Setting:
    kind = options.subwords
    packages = ["sacremoses", "subword-nmt" if kind == "bpe" else "sentencepiece"]
    config = TextConfig(
        source_language=corpus.source,
        target_language=corpus.target,
        tokeniser=options.tokeniser or ("moses" if kind == "bpe" else "none"),
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


def _make_result(setting: Setting, corpus: Corpus, files: Mapping[UpstreamFile, Path]) -> dict[str, Any]:
    """Makes the work folder's `result` without corpus.json. Returns the part of the record that is known afterwards."""
    splits = [split for split in corpus.split_names if split != "train"]
    chunks, sentences = _tokenise(setting, corpus, files, splits)
    kept, report = deduplicate(setting, chunks)
    pipeline = learn(setting, kept)
    for split in splits:
        segment_held_out(setting, pipeline, split)
    segment_train(setting, kept)
    folder = assemble(setting, pipeline, kept, splits)
    held_out = {split: sentences[split] for split in splits}
    pairs = sum(chunk.size for chunk in kept)
    for shard in range(setting.options.shards):
        in_shard = {"train": len(range(shard, pairs, setting.options.shards)), **(held_out if shard == 0 else {})}
        binarise_shard(setting, folder, shard, in_shard)
    _put_together(setting, report)
    packages = [*setting.config.versions, *(corpus.packages if isinstance(corpus, GeneratedCorpus) else ())]
    read = {}
    if isinstance(corpus, OwnCorpus):
        read = corpus.description
        split_off = sum(sentences[split] for split in corpus.split_off)
        read["left_out"] = sum(text.pairs for text in corpus.texts["train"]) - sentences["train"] - split_off
    return {
        "sentences": {"train": pairs, **held_out},
        "dictionary_size": len(Dictionary.load(folder / DICTIONARY)),
        **read,
        "homepage": corpus.homepage,
        "licence": corpus.licence,
        "citation": corpus.citation,
        "tools": tool_versions(*packages, "fairseq"),
    }


class _Tokenised(TypedDict):
    chunks: list[Chunk]
    sentences: dict[str, Whole]


def _tokenise(
    setting: Setting, corpus: Corpus, files: Mapping[UpstreamFile, Path], held_out: list[str]
) -> tuple[list[Chunk], dict[str, int]]:
    """Tokenises every split. Returns the chunks of train and the number of raw pairs in each split."""
    done = setting.work.path / _TOKENISED
    if done.exists():
        state = read_state(done, _Tokenised, advice=_AGAIN)
        return state["chunks"], state["sentences"]
    unpacked = _unpack(setting, corpus, files)
    texts = split_texts(corpus, setting.options, unpacked, generated=setting.work.path / _GENERATED)
    counts = _check(setting, texts)
    sentences = dict.fromkeys(["train", *held_out], 0)
    for text, count in zip(texts, counts, strict=True):
        sentences[text.split] += count
    train = [(text, count) for text, count in zip(texts, counts, strict=True) if text.split == "train"]
    chunks = plan_chunks([text for text, _ in train], [count for _, count in train])
    for split in held_out:
        tokenise_held_out(setting, texts, split)
    tokenise_train(setting, texts, chunks, held_out_splits=held_out)
    write_json(done, {"chunks": [dataclasses.asdict(chunk) for chunk in chunks], "sentences": sentences})
    for folder in (_UNPACKED, _GENERATED):
        shutil.rmtree(setting.work.path / folder, ignore_errors=True)
    return chunks, sentences


def _unpack(setting: Setting, corpus: Corpus, files: Mapping[UpstreamFile, Path]) -> dict[Text, TextFile]:
    """Unpacks the texts of the corpus's two languages. In errors a text has the name of its archive and member."""
    if not isinstance(corpus, PublishedCorpus):
        return {}
    texts = [
        parallel.sides[language]
        for parallels in corpus.splits.values()
        for parallel in parallels
        for language in setting.languages
    ]
    members: dict[UpstreamFile, set[str]] = {}
    for text in texts:
        if text.member is not None:
            members.setdefault(text.file, set()).add(text.member)
    unpacked: dict[UpstreamFile, dict[str, Path]] = {}
    with Progress("unpack", total=len(members), unit=" archives") as bar:
        for file, wanted in members.items():
            unpacked[file] = extract(files[file], sorted(wanted), setting.work.folder(_UNPACKED) / file.name)
            bar.update()
    return {
        text: TextFile(files[text.file], text.format)
        if text.member is None
        else TextFile(unpacked[text.file][text.member], text.format, name=f"{files[text.file]}, member {text.member}")
        for text in texts
    }


def _check(setting: Setting, texts: list[SplitText]) -> list[int]:
    """Reads every text once, so that bad input is found before the long work. Returns the number of pairs in each."""
    done = setting.work.path / _COUNTS
    if done.exists():
        return read_state(done, list[Whole], advice=_AGAIN)
    paths = {side.path for text in texts for side in text.sides}
    small = sum(path.stat().st_size for path in paths) < _SMALL
    counts = []
    known = [text.sentences for text in texts if text.sentences is not None]
    total = sum(known) if len(known) == len(texts) else None
    with Progress("check", total=total, unit=" pairs") as bar:
        for count in in_order(SplitText.count, texts, workers=1 if small else setting.processes(len(texts))):
            counts.append(count)
            bar.update(count)
    write_json(done, counts)
    return counts


def _put_together(setting: Setting, report: CleaningReport) -> None:
    """Moves the stages' files to their places in the result. Files that are there already stay."""
    work, result = setting.work, setting.work.result
    if (result / RECORD_FILE).exists():
        return
    for number, folder in enumerate(shard_folders(result, setting.options.shards), start=1):
        folder.mkdir(exist_ok=True)
        for path in sorted((work.path / BINARISED / f"shard{number}").iterdir()):
            path.rename(folder / path.name)
    if setting.options.shards > 1:
        for language in setting.languages:
            name = f"dict.{language}.txt"
            shutil.copyfile(result / "shard1" / name, result / name)
    for name in (TEXT, REFERENCE):
        shutil.copytree(work.path / name, result / name, dirs_exist_ok=True)
    if setting.cleaning != CleaningOptions():
        write_json(result / CLEANING_FILE, report.to_dict())
