"""Prepares the captions of a corpus as a data folder for training."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from rskip.captioning.captions import CaptionedImage, count_words, write_dictionary, write_split
from rskip.corpora.corpus import SPLITS, CaptionCorpus
from rskip.corpora.fetch import fetch
from rskip.corpora.record import FORMAT, CorpusRecord, made_record, needs_build, write_record
from rskip.files.archives import extract
from rskip.files.cache import ADDRESSES, cache_folder, expanded_path
from rskip.files.checksum import file_difference
from rskip.files.images import files_below
from rskip.files.lock import one_at_a_time
from rskip.files.names import line_name
from rskip.files.text_lines import read_lines
from rskip.files.whole import check_apart, real_path, whole_folder
from rskip.settings.check import Checked
from rskip.settings.kinds import Count, Whole
from rskip.settings.text import read_json


@dataclass(frozen=True, kw_only=True)
class CaptionOptions(Checked):
    """Options that, together with the available images, determine the prepared captions.

    :raises SettingError: a value is wrong.
    """

    min_count: Annotated[Count, Meta(description="minimum count of a word in train; rarer words are unknown")] = 5


@dataclass(frozen=True)
class ImageFiles:
    """The images of a caption corpus in a folder.

    :param paths: maps the name of an image to its path in the folder, such as
        val2014/COCO_val2014_000000391895.jpg.
    """

    folder: Path
    paths: Mapping[str, Path]


def prepare_captions(
    corpus: CaptionCorpus,
    output: str | Path,
    *,
    options: CaptionOptions | None = None,
    images: str | Path | None = None,
    mirror: str | None = None,
    offline: bool = False,
    force: bool = False,
) -> bool:
    """Writes `output` atomically: train.jsonl, valid.jsonl and test.jsonl with one line per image, dict.txt, and
    corpus.json, which counts used and skipped images.

    Uses the images in the folder of images (`find_corpus_images`), or all captioned images if there is no folder.
    Keeps every caption of a used image.

    :param mirror: a folder or base URL with the archive of the corpus, or a folder with the texts of the archive.
    :param offline: download nothing.
    :param force: replace a folder that was prepared with other options.
    :returns: False if `output` was up to date already.
    :raises ValueError: the input is wrong, or `output` holds other files.
    :raises FileNotFoundError: a file is missing.
    :raises OSError: the server can't be reached, or a disk is full.
    """
    output, options = real_path(output), options or CaptionOptions()
    image_files = find_corpus_images(corpus, images=images, mirror=mirror)
    if image_files is not None:
        check_apart(output, image_files.folder)
    planned: dict[str, Any] = {
        "format": FORMAT,
        "corpus": corpus.name,
        "options": asdict(options),
        "inputs": {
            file.name: {"url": file.url, "size": file.size, "sha256": file.sha256} for file in corpus.texts.values()
        },
    }
    if image_files:
        listed = hashlib.sha256("\n".join(sorted(image_files.paths)).encode()).hexdigest()
        planned["inputs"]["pictures"] = {"url": None, "size": len(image_files.paths), "sha256": listed}
    if not needs_build(output, planned, force=force):
        return False
    texts = _fetch_texts(corpus, mirror=mirror, offline=offline)
    found = _READERS[corpus.format](texts)
    for split in SPLITS:
        if len(found[split]) != corpus.images[split]:
            problem = f"{split} has {len(found[split]):,} captioned images, not {corpus.images[split]:,}"
            raise ValueError(f"{texts['captions']}: {problem}: expected the complete {corpus.name}")
    taken, counts = _choose(corpus, found, image_files)
    with one_at_a_time(output):
        if not needs_build(output, planned, force=force):
            return False  # another process has just written it
        with whole_folder(output) as folder:
            for split, captioned in taken.items():
                write_split(folder, split, captioned)
            known = write_dictionary(folder, count_words(taken["train"]), min_count=options.min_count)
            more = {"homepage": corpus.homepage, "licence": corpus.licence, "citation": corpus.citation}
            write_record(folder, {**planned, **counts, "dictionary_size": known, **more})
    return True


def find_corpus_images(corpus: CaptionCorpus, *, images: str | Path | None, mirror: str | None) -> ImageFiles | None:
    """Finds the images of a corpus in `images`, otherwise in the mirror folder, otherwise in the cache; None: nowhere.

    :raises FileNotFoundError: `images` is not a folder.
    """
    if images is not None:
        folder = expanded_path(str(images), "images")
        if not folder.is_dir():
            raise FileNotFoundError(f"no folder of images {folder}: get them from {corpus.image_source}")
    elif mirror is not None and mirror.startswith(ADDRESSES):
        return None
    else:
        place = cache_folder() / corpus.folder if mirror is None else expanded_path(mirror, "mirror")
        folders = [place / name for name in corpus.image_folders if (place / name).is_dir()]
        if not folders:
            return None
        folder = folders[0]
    files = [path for path in files_below(folder) if not path.name.startswith(".")]
    return ImageFiles(folder, {path.relative_to(folder).as_posix(): path for path in files})


class CaptionRecord(CorpusRecord):
    """The content of corpus.json for captions."""

    format: int
    images: dict[str, Whole]
    captions: dict[str, Whole]
    upstream: dict[str, Whole]
    dictionary_size: Whole
    unused_pictures: Whole
    examples: dict[str, str | None]


def summary(folder: Path) -> list[str]:
    """Describes a prepared folder: one line with the images per split, and lines on images without counterpart."""
    record = made_record(folder, CaptionRecord)
    upstream, taken = record["upstream"], record["images"]
    parts = [
        f"{split} {count:,}" + (f" of {upstream[split]:,}" if count != upstream[split] else "")
        for split, count in taken.items()
    ]
    lines = [f"images: {', '.join(parts)}; dictionary: {record['dictionary_size']:,} words"]
    for count, what, example in (
        (sum(upstream.values()) - sum(taken.values()), "captioned images are not in the folder", "without_picture"),
        (record["unused_pictures"], "files of the folder are in no split", "without_caption"),
    ):
        if count:
            lines.append(f"{count:,} {what}, such as {line_name(record['examples'][example] or '')}")
    return lines


def _fetch_texts(corpus: CaptionCorpus, *, mirror: str | None, offline: bool) -> dict[str, Path]:
    """The texts, from the files in a mirror folder or from the archive."""
    archive, texts = corpus.archive, corpus.texts
    if mirror is not None and not mirror.startswith(ADDRESSES):
        folder = expanded_path(mirror, "mirror")
        if not (folder / archive.name).is_file():
            fetched = fetch(list(texts.values()), folder=corpus.folder, mirror=mirror, offline=offline)
            return {key: fetched[file].path for key, file in texts.items()}
    fetched_archive = fetch([archive], folder=corpus.folder, mirror=mirror, offline=offline)[archive]
    path, unpacked = fetched_archive.path, cache_folder() / corpus.folder / "texts" / fetched_archive.sha256[:16]
    members = extract(path, [file.name for file in texts.values()], unpacked)
    for file in texts.values():
        if wrong := file_difference(members[file.name], size=file.size, sha256=file.sha256):
            raise ValueError(f"{path}: member {file.name} {wrong}: expected the member of {file.url}")
    return {key: members[file.name] for key, file in texts.items()}


_Captions = dict[str, list[str]]
"""Maps the name of an image to its captions."""


def _read_flickr8k(texts: Mapping[str, Path]) -> dict[str, _Captions]:
    """Reads lines with the name of an image, #number, a tab and a caption; and, per split, one name per line."""
    captions: _Captions = {}
    for line in read_lines(texts["captions"]):
        name, _, caption = line.partition("\t")
        captions.setdefault(name.rpartition("#")[0], []).append(caption)
    return {split: {name: captions[name] for name in filter(None, read_lines(texts[split]))} for split in SPLITS}


def _read_karpathy(texts: Mapping[str, Path]) -> dict[str, _Captions]:
    """Reads the JSON of Karpathy's splits, in which restval belongs to train. COCO's images are in two folders."""
    path = texts["captions"]
    splits: dict[str, _Captions] = {split: {} for split in SPLITS}
    into = {"train": "train", "restval": "train", "val": "valid", "test": "test"}
    try:
        for image in read_json(path)["images"]:
            captions = [str(sentence["raw"]) for sentence in image["sentences"]]
            if not captions:
                raise ValueError(f"{path}: {image['filename']} has no caption")
            name = "/".join(filter(None, (image.get("filepath"), image["filename"])))
            splits[into[image["split"]]][name] = captions
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is not Karpathy's JSON of captions ({error!r})") from None
    return splits


_READERS = {"flickr8k": _read_flickr8k, "karpathy": _read_karpathy}


def _choose(
    corpus: CaptionCorpus, found: Mapping[str, _Captions], image_files: ImageFiles | None
) -> tuple[dict[str, list[CaptionedImage]], dict[str, Any]]:
    """The images per split that the folder has, and their description for corpus.json."""
    taken: dict[str, list[CaptionedImage]] = {}
    missing: list[str] = []
    for split, captions in found.items():
        there = [name for name in captions if image_files is None or name in image_files.paths]
        if not there:
            assert image_files
            problem = f"{image_files.folder} has none of the {len(captions):,} images of {split}"
            raise ValueError(f"{problem}: expected names such as {next(iter(captions))}")
        taken[split] = [CaptionedImage.of_captions(name, captions[name]) for name in there]
        missing += sorted(set(captions) - set(there))
    of_splits = {name for captions in found.values() for name in captions}
    unused = sorted(image_files.paths.keys() - of_splits) if image_files else []
    return taken, {
        "images": {split: len(images) for split, images in taken.items()},
        "captions": {split: _count(images) for split, images in taken.items()},
        "upstream": dict(corpus.images),
        "unused_pictures": len(unused),
        "examples": {
            name: names[0] for name, names in (("without_picture", missing), ("without_caption", unused)) if names
        },
    }


def _count(images: Iterable[CaptionedImage]) -> int:
    return sum(len(image.captions) for image in images)
