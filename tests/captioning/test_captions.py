import json

import pytest

from rskip.captioning.captions import (
    CaptionedImage,
    count_words,
    read_split,
    write_dictionary,
    write_split,
)
from rskip.text import Dictionary


def test_a_split_is_read_as_it_was_written(tmp_path):
    images = [CaptionedImage.of_captions("a.jpg", ["A dog runs.", "Un chien — là !"])]
    assert images[0].tokens[0] == "a dog runs"
    write_split(tmp_path, "train", images)
    assert read_split(tmp_path, "train") == images
    with pytest.raises(FileNotFoundError, match="valid.jsonl"):
        read_split(tmp_path, "valid")


def test_a_line_that_is_no_image_is_named(tmp_path):
    whole = {"image": "a.jpg", "captions": ["A."], "tokens": ["a"]}
    wrong = ({"tokens": []}, {"captions": [], "tokens": []}, {"captions": 1})
    for broken in ({}, [1], "a", *(whole | each for each in wrong)):
        (tmp_path / "test.jsonl").write_text("\n".join(json.dumps(line) for line in (whole, broken)))
        with pytest.raises(ValueError, match="test.jsonl: line 2"):
            read_split(tmp_path, "test")


def test_words_under_five_occurrences_are_unknown(tmp_path):
    images = [CaptionedImage.of_captions("a.jpg", ["a dog", "A dog!", "a dog", "a dog", "dog a cat"])] * 2
    assert write_dictionary(tmp_path, count_words(images), min_count=5) == 2
    dictionary = Dictionary.load(tmp_path / "dict.txt")
    assert dictionary.tokens[4:] == ["a", "dog"]
    assert dictionary.index("cat") == dictionary.unk_index
