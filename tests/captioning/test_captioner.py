"""`Captioner`: captions for images."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image

from rskip.captioning.captioner import Captioner, UnreadableImage
from rskip.captioning.features import Features
from rskip.captioning.options import CAPTION_OPTIONS
from rskip.settings.errors import SettingError


@pytest.fixture(scope="module")
def folder(captioning_folder, mean_colours):
    return captioning_folder(mean_colours().description)


@pytest.fixture(scope="module")
def captioner(folder, mean_colours):
    return with_backbone(Captioner.from_pretrained(folder), mean_colours)


def with_backbone(captioner, backbone):
    return Captioner(captioner.model, captioner.dictionary, backbone=backbone)


def test_paths_files_and_images_have_the_same_caption_whatever_the_batch(captioner, pictures):
    paths = sorted(pictures.glob("*.*"))
    expected = [captioner(path) for path in paths]
    assert len(set(expected)) > 1 and all(set(each.split()) <= set(captioner.dictionary.tokens) for each in expected)
    assert captioner([str(path) for path in paths], batch_size=3) == expected
    assert captioner([Image.open(path) for path in paths]) == expected
    assert captioner([io.BytesIO(path.read_bytes()) for path in paths]) == expected
    features = captioner.read(paths)
    mixed = [features[0], paths[1], features[2], *paths[3:]]
    assert [caption.text for caption in captioner.caption(mixed)] == expected
    assert captioner([]) == []


def test_hypotheses_are_the_searchs(captioner, pictures):
    (caption,) = captioner.caption([pictures / "a.png"], beam=4, nbest=3, token_scores=True, attention=True)
    assert caption.text == captioner(pictures / "a.png") and caption.grid == (2, 3)
    scores = [each.score for each in caption.hypotheses]
    assert len(scores) == 3 and scores == sorted(scores, reverse=True)
    for each in caption.hypotheses:
        assert each.text == " ".join(each.tokens) and len(each.token_scores) == len(each.tokens) + 1
        assert each.score == pytest.approx(sum(each.token_scores) / len(each.token_scores), abs=1e-5)
        assert each.attention.shape == (len(each.tokens) + 1, 6)
        assert torch.allclose(each.attention.sum(1), torch.ones(len(each.attention)), atol=1e-5)
    assert "<unk>" not in " ".join(captioner(path, max_length_b=20) for path in pictures.glob("*.*"))


def test_each_batch_draws_with_a_seed_of_its_own(captioner, pictures):
    settings = {"sampling": True, "beam": 1, "seed": 2**63 - 1, "batch_size": 1}
    drawn = captioner([pictures / "a.png"] * 4, **settings)
    assert len(set(drawn)) > 1 and captioner([pictures / "a.png"] * 4, **settings) == drawn


def test_precisions(captioner, folder, pictures):
    halved = Captioner.from_pretrained(folder / "config.json", precision="bfloat16")
    features = captioner.read([pictures / "a.png"])
    scores = [each.caption(features)[0].score for each in (captioner, halved)]
    assert scores[0] == pytest.approx(scores[1], abs=0.1) and scores[0] != scores[1]


def test_what_can_not_be_captioned_is_told(captioner, pictures, tmp_path):
    (tmp_path / "words.jpg").write_text("words")
    with pytest.raises(UnreadableImage, match="^image 2: .*words.jpg: not an image"):
        captioner([pictures / "a.png", tmp_path / "words.jpg"])
    with pytest.raises(UnreadableImage, match="image 1: a NoneType is not an image"):
        captioner(None)
    with pytest.raises(SettingError, match="unknown key bean; did you mean beam"):
        captioner(pictures / "a.png", bean=3)
    with pytest.raises(ValueError, match="expected a list of images, got one image"):
        captioner.caption(str(pictures / "a.png"))
    with pytest.raises(SettingError, match="batch_size is 0"):
        captioner([pictures / "a.png"], batch_size=0)
    with pytest.raises(ValueError, match="features of 5 numbers, but the model was trained on 3"):
        captioner(Features(np.zeros((4, 5), np.float16), (2, 2)))
    with pytest.raises(ValueError, match="grid"):
        captioner(Features(np.zeros((4, 3), np.float16), None))
    with pytest.raises(FileNotFoundError, match="no captioning model"):
        Captioner.from_pretrained(tmp_path)


def test_another_backbone_than_the_models_is_refused(captioner, folder, captioning_folder, mean_colours, pictures):
    other = with_backbone(captioner, lambda: mean_colours(weights="2"))
    with pytest.raises(ValueError, match=r"weights.*'2'.*'1'"):
        other(pictures / "a.png")
    assert other.search(captioner.read([pictures / "a.png"]), CAPTION_OPTIONS)[0].text
    with pytest.raises(SettingError, match="backbone is 'mean colours'"):
        Captioner.from_pretrained(folder)(pictures / "a.png")
    published = Captioner.from_pretrained(
        captioning_folder({"backbone": "bottom-up", "dim": 3, "dtype": "float16"}, grid=False)
    )
    with pytest.raises(ValueError, match="bottom-up features, which rskip can't compute from images"):
        published(pictures / "a.png")
    assert isinstance(published(Features(np.ones((4, 3), np.float16), None)), str)
