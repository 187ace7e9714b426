"""Makes the data of a run if it is missing: prepared captions, and a store of features that variants share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rskip.captioning.backbones import load_backbone
from rskip.captioning.captions import read_split
from rskip.captioning.extraction import extract_features
from rskip.captioning.features import open_features, read_index
from rskip.captioning.preparation import CaptionOptions, CaptionRecord, find_corpus_images, prepare_captions
from rskip.captioning.recipe import CONSTANT, CaptioningSettings
from rskip.corpora import find_caption_corpus
from rskip.corpora.corpus import SPLITS
from rskip.corpora.record import describe_made, made_record, read_corpus_record
from rskip.files.lock import one_at_a_time
from rskip.tasks.fairseq.flags import flags_to_arguments
from rskip.tasks.run import Run


def data_folder(settings: CaptioningSettings) -> Path:
    """`data-bin/<corpus>`, with a hash of the options if they are not the defaults."""
    options = {} if settings.prepare == CaptionOptions() else asdict(settings.prepare)
    return Path("data-bin", settings.corpus + _hash(options))


def feature_store(settings: CaptioningSettings) -> str:
    """The value for `--features`: the path of the store, or "constant"."""
    features = settings.features
    if not features.extracted:
        return str(features.store or CONSTANT)
    return str(Path("data-bin", f"{settings.corpus}-{features.backbone}{_hash(features.given)}"))


def ensure_data(run: Run[CaptioningSettings]) -> Path:
    """Prepares the data as `rskip prepare` does and returns its folder. Without a mirror, uses an existing folder."""
    settings, folder = run.settings, data_folder(run.settings)
    if run.mirror is None and folder.is_dir():
        record = read_corpus_record(folder)
        now = settings.corpus, asdict(settings.prepare)
        if record is not None and (record.get("corpus"), record.get("options")) == now:
            return folder
    corpus = find_caption_corpus(settings.corpus)
    prepare_captions(corpus, folder, options=settings.prepare, mirror=run.mirror)
    return folder


def ensure_features(run: Run[CaptioningSettings]) -> None:
    """Extracts missing features of the data's images, if the settings name a backbone.

    :raises FileNotFoundError: images are missing. Names the folders that were searched.
    """
    settings, features = run.settings, run.settings.features
    if not features.extracted:
        return
    store = Path(feature_store(settings))
    with one_at_a_time(store):
        index = read_index(store)
        there = index.images if index is not None and index.complete else {}
        names = [image.name for split in SPLITS for image in read_split(data_folder(settings), split)]
        if not (missing := [name for name in names if name not in there]):
            return
        corpus = find_caption_corpus(settings.corpus)
        files = find_corpus_images(corpus, images=None, mirror=run.mirror)
        paths: Mapping[str, Path] = files.paths if files else {}
        if lacking := [name for name in missing if name not in paths]:
            place = f"in {files.folder}" if files else "in images/ of the mirror or in the cache"
            problem = f"{len(lacking):,} images of {settings.corpus} are missing ({place}), such as {lacking[0]}"
            raise FileNotFoundError(f"{problem}: get them from {corpus.image_source}")
        backbone = load_backbone(
            str(features.backbone),
            Path(features.weights) if features.weights else None,
            settings=features.extraction,
            device="cuda" if run.gpus else "cpu",
        )
        print(f"extracting features of {len(missing):,} images by {features.backbone}: {store}", flush=True)
        done = extract_features([(name, paths[name]) for name in missing], backbone, store)
    for line in done.failed.values():
        print(f"left out: {line}", flush=True)


def describe_data(settings: CaptioningSettings) -> dict[str, Any]:
    """Describes the data: corpus, counts, features, and checksums of inputs and outputs."""
    made: Any = made_record(data_folder(settings), CaptionRecord)
    kept = ("corpus", "format", "options", "images", "captions", "upstream", "dictionary_size")
    return {**describe_made(made, kept), "features": dict(open_features(feature_store(settings)).description)}


def data_arguments(settings: CaptioningSettings) -> list[str]:
    """Arguments of fairseq-train for data and task."""
    task = ["--user-dir", "rskip", "--task", "captioning", "--features", feature_store(settings)]
    return [str(data_folder(settings)), *task]


def prepare_commands(run: Run[CaptioningSettings]) -> list[list[str]]:
    """The commands that make the data and the features: `rskip prepare` and `rskip caption extract`."""
    settings, features = run.settings, run.settings.features
    mirror = {"mirror": run.mirror}
    options = {"min-count": settings.prepare.min_count} if settings.prepare != CaptionOptions() else {}
    output = ["--output", str(data_folder(settings))]
    commands = [["rskip", "prepare", settings.corpus, *output, *flags_to_arguments({**options, **mirror})]]
    if features.extracted:
        corpus = find_caption_corpus(settings.corpus)
        files = find_corpus_images(corpus, images=None, mirror=run.mirror)
        folder = str(files.folder) if files else "IMAGES"
        flags = {"backbone-weights" if name == "weights" else name: value for name, value in features.given.items()}
        store = ["--output", feature_store(settings), *flags_to_arguments(flags)]
        commands.append(["rskip", "caption", "extract", folder, "--backbone", str(features.backbone), *store])
    return commands


def _hash(options: Mapping[str, Any]) -> str:
    if not options:
        return ""
    return "-" + hashlib.sha256(json.dumps(dict(options), sort_keys=True).encode()).hexdigest()[:8]
