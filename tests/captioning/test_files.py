"""Captioning many images into a file, resumed after an interruption."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch

from rskip.captioning.captioner import Caption, CaptionHypothesis
from rskip.captioning.features import Features
from rskip.captioning.files import write_captions
from rskip.cli.main import build_parser
from rskip.files.resumable import StoppedError
from rskip.generation import SearchOptions
from rskip.text.dictionary import Dictionary

COUNT = 6


class Counting:
    """A captioner that counts its calls, and raises KeyboardInterrupt at call `stop`."""

    path, sha256, device = None, "0" * 64, torch.device("cpu")

    def __init__(self, stop=None, words=("x",)):
        self.calls, self.stop, self.dictionary = 0, stop, Dictionary(words)

    def read(self, pictures):
        return [Features(np.full((1, 1), len(path), dtype=np.float32), None) for path in pictures]

    def search(self, features, options):
        self.calls += 1
        if self.calls == self.stop:
            raise KeyboardInterrupt
        return [Caption((CaptionHypothesis(f"x {int(each.values[0, 0])}", -1.0, ("x",)),), None) for each in features]


def write(folder, pictures, *, resume=False, stop=None, words=("x",)):
    output, captioner = folder / "captions.jsonl", Counting(stop, words)
    write_captions(captioner, pictures, output, SearchOptions(), batch_size=1, precision="float32", resume=resume)
    return captioner.calls


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    paths = [folder / f"{'x' * number}{number}.jpg" for number in range(COUNT)]
    for path in paths:
        path.touch()
    return paths


@pytest.fixture(scope="module")
def interrupted(pictures, tmp_path_factory):
    """A folder with four captions, and a journal of one line of settings and four entries."""
    folder = tmp_path_factory.mktemp("interrupted")
    with pytest.raises(StoppedError):
        write(folder, pictures, stop=5)
    return folder


def test_another_dictionary_is_refused(pictures, interrupted, tmp_path):
    shutil.copytree(interrupted, tmp_path / "copy")
    with pytest.raises(ValueError, match=r"other settings \(dictionary: the files have changed"):
        write(tmp_path / "copy", pictures, resume=True, words=("y",))


def test_every_flag_is_recorded_for_resuming_or_changes_no_line(interrupted):
    words = ["caption", "IMAGE", "--model", "MODEL"]
    flags = vars(build_parser(words).parse_args(words)).keys()
    journal = (interrupted / "captions.jsonl.partial.journal").read_text().splitlines()[0]
    recorded = {name.removesuffix("_sha256") for name in json.loads(journal)}
    without_effect = {
        "images",  # compared by their checksums
        "output", "resume", "quiet", "format", "attention_folder", "sheet",  # --output always writes JSON lines
        "backbone_weights",  # must be those of the model's features
        "version", "user_dir", "command", "work", "imports_user_dir", "flags",  # of every command
    }  # fmt: skip
    assert not flags - recorded - without_effect, (
        "--resume would mix lines with and without this flag: record it in `write_captions` of "
        "rskip/captioning/files.py, or list it here if it changes no line"
    )
