"""Preparing captions of images: used and skipped images, and errors for bad input."""

import dataclasses
import gzip
import json
import zipfile

import pytest

from rskip.captioning.captions import read_split
from rskip.captioning.preparation import CaptionOptions, prepare_captions, summary
from rskip.corpora import find_caption_corpus
from rskip.corpora.corpus import UpstreamFile
from rskip.corpora.record import read_corpus_record
from rskip.text import Dictionary

SPLITS = {"train": ["a.jpg", "b.jpg", "c.jpg"], "valid": ["d.jpg"], "test": ["e.jpg", "f.jpg"]}
FILES = {"train": "Flickr_8k.trainImages.txt", "valid": "Flickr_8k.devImages.txt", "test": "Flickr_8k.testImages.txt"}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RSKIP_DATA", str(tmp_path / "cache"))


@pytest.fixture
def flickr8k(tmp_path):
    """Six pictures with five captions each in the layout of Flickr8k, in the folder mirror."""
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    lines = [
        f"{name}#{number}\tA dog {name[0]} runs .\n"
        for name in [*(each for names in SPLITS.values() for each in names), "g.jpg.1"]
        for number in range(5)
    ]
    (mirror / "Flickr8k.token.txt.gz").write_bytes(gzip.compress("".join(lines).encode()))
    for split, file in FILES.items():
        (mirror / file).write_text("\n".join(SPLITS[split]))
    real = find_caption_corpus("flickr8k")
    texts = {key: UpstreamFile(name=file.name, url="https://nowhere/t.zip") for key, file in real.texts.items()}
    return dataclasses.replace(real, texts=texts, images={split: len(names) for split, names in SPLITS.items()})


def add_pictures(folder, names):
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch()
    return folder


def test_without_pictures_all_are_taken_and_once(flickr8k, tmp_path):
    output, mirror = tmp_path / "data", str(tmp_path / "mirror")
    assert prepare_captions(flickr8k, output, mirror=mirror)
    assert [[image.name for image in read_split(output, split)] for split in SPLITS] == list(SPLITS.values())
    image = read_split(output, "train")[0]
    assert (image.captions, image.tokens) == (("A dog a runs .",) * 5, ("a dog a runs",) * 5)
    assert Dictionary.load(output / "dict.txt").tokens[4:] == ["a", "dog", "runs", "b", "c"]
    assert summary(output) == ["images: train 3, valid 1, test 2; dictionary: 5 words"]
    assert not prepare_captions(flickr8k, output, mirror=mirror)
    with pytest.raises(ValueError, match="was prepared with min_count 5, not with min_count 6"):
        prepare_captions(flickr8k, output, options=CaptionOptions(min_count=6), mirror=mirror)
    with pytest.raises(ValueError, match="is in the folder of the data"):
        prepare_captions(flickr8k, add_pictures(tmp_path / "photos", ["a.jpg"]) / "data", images=tmp_path / "photos")
    (output / "dict.txt").write_text("")
    with pytest.raises(ValueError, match="damaged"):
        prepare_captions(flickr8k, output, mirror=mirror)
    assert prepare_captions(flickr8k, output, mirror=mirror, force=True)


@pytest.mark.parametrize("place", ["mirror/images", "mirror/Flicker8k_Dataset", "elsewhere"])
def test_only_pictures_that_are_there_are_taken(flickr8k, tmp_path, place):
    folder = add_pictures(tmp_path / place, ["a.jpg", "c.jpg", "d.jpg", "f.jpg", "g.jpg.1", "notes.txt"])
    output = tmp_path / "data"
    given = {} if place.startswith("mirror") else {"images": folder}
    assert prepare_captions(flickr8k, output, mirror=str(tmp_path / "mirror"), **given)
    assert [image.name for image in read_split(output, "train")] == ["a.jpg", "c.jpg"]
    assert summary(output) == [
        "images: train 2 of 3, valid 1, test 1 of 2; dictionary: 4 words",
        "2 captioned images are not in the folder, such as b.jpg",
        "2 files of the folder are in no split, such as g.jpg.1",
    ]
    record = read_corpus_record(output)
    assert record["images"] == {"train": 2, "valid": 1, "test": 1} and record["captions"]["train"] == 10
    (folder / "b.jpg").touch()
    with pytest.raises(ValueError, match="was prepared from other files"):
        prepare_captions(flickr8k, output, mirror=str(tmp_path / "mirror"), **given)


def test_a_split_without_a_picture_is_refused(flickr8k, tmp_path):
    folder = add_pictures(tmp_path / "pictures", ["a.jpg"])
    with pytest.raises(ValueError, match="has none of the 1 images of valid: expected names such as d.jpg"):
        prepare_captions(flickr8k, tmp_path / "data", mirror=str(tmp_path / "mirror"), images=folder)
    with pytest.raises(FileNotFoundError, match="no folder of images"):
        prepare_captions(flickr8k, tmp_path / "data", mirror=str(tmp_path / "mirror"), images=tmp_path / "none")
    (tmp_path / "mirror/Flickr_8k.testImages.txt").write_text("e.jpg")
    with pytest.raises(ValueError, match="test has 1 captioned images, not 2: expected the complete flickr8k"):
        prepare_captions(flickr8k, tmp_path / "data", mirror=str(tmp_path / "mirror"))
    assert not (tmp_path / "data").exists()


def test_the_archive_as_its_publisher_serves_it(flickr8k, tmp_path, file_server):
    mirror = tmp_path / "mirror"
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("Flickr8k.token.txt", gzip.decompress((mirror / "Flickr8k.token.txt.gz").read_bytes()))
        for file in FILES.values():
            archive.write(mirror / file, file)
    served = (tmp_path / "t.zip").rename(add_pictures(tmp_path / "served", []) / flickr8k.archive.name)
    assert prepare_captions(flickr8k, tmp_path / "data", mirror=file_server(served.parent).url)
    assert prepare_captions(flickr8k, tmp_path / "data2", mirror=str(served.parent))
    assert (tmp_path / "data/train.jsonl").read_bytes() == (tmp_path / "data2/train.jsonl").read_bytes()
    wrong = dataclasses.replace(flickr8k.texts["train"], sha256="0" * 64)
    changed = dataclasses.replace(flickr8k, texts={**flickr8k.texts, "train": wrong})
    with pytest.raises(ValueError, match="member Flickr_8k.trainImages.txt has the sha256"):
        prepare_captions(changed, tmp_path / "data3", mirror=str(served.parent))


def test_karpathys_splits(tmp_path):
    def image(name, split):
        return {"filepath": "val2014", "filename": name, "split": split, "sentences": [{"raw": "A cat."}] * 5}

    corpus = dataclasses.replace(find_caption_corpus("coco-karpathy"), images={"train": 2, "valid": 1, "test": 1})
    splits = {"a.jpg": "train", "b.jpg": "restval", "c.jpg": "val", "d.jpg": "test"}
    path = tmp_path / "dataset_coco.json"
    path.write_text(json.dumps({"images": [image(*each) for each in splits.items()], "dataset": "coco"}))
    add_pictures(tmp_path / "images/val2014", splits)
    assert prepare_captions(corpus, tmp_path / "data", mirror=str(tmp_path))
    assert [image.name for image in read_split(tmp_path / "data", "train")] == ["val2014/a.jpg", "val2014/b.jpg"]
    assert read_corpus_record(tmp_path / "data")["captions"] == {"train": 10, "valid": 5, "test": 5}
    for content, message in (
        ({"images": [{"split": "train"}]}, "is not Karpathy's JSON of captions"),
        ({"images": [image("a.jpg", "holdout")]}, "is not Karpathy's JSON of captions"),
        ({"images": [image("a.jpg", "val") | {"sentences": []}]}, "a.jpg has no caption"),
        ({"images": [image("a.jpg", "val")]}, "train has 0 captioned images, not 2"),
    ):
        path.write_text(json.dumps(content))
        with pytest.raises(ValueError, match=message):
            prepare_captions(corpus, tmp_path / "new", mirror=str(tmp_path))


def test_flickr8k_itself(tmp_path, shared):
    corpus = find_caption_corpus("flickr8k")
    assert prepare_captions(corpus, tmp_path / "data", mirror=str(shared / "data/flickr8k"))
    assert summary(tmp_path / "data") == [
        "images: train 753 of 6,000, valid 113 of 1,000, test 125 of 1,000; dictionary: 746 words",
        "7,009 captioned images are not in the folder, such as 2098646162_e3b3bbf14c.jpg",
        "9 files of the folder are in no split, such as 1155138244_859fd6e079.jpg",
    ]
    assert {len(image.captions) for image in read_split(tmp_path / "data", "train")} == {5}
