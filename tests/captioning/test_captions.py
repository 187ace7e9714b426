import pytest

from rskip.captioning.captions import (
    CaptionedImage,
    count_words,
    read_split,
    tokenise_caption,
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


def test_words_under_five_occurrences_are_unknown(tmp_path):
    images = [CaptionedImage.of_captions("a.jpg", ["a dog", "A dog!", "a dog", "a dog", "dog a cat"])] * 2
    assert write_dictionary(tmp_path, count_words(images), min_count=5) == 2
    dictionary = Dictionary.load(tmp_path / "dict.txt")
    assert dictionary.tokens[4:] == ["a", "dog"]
    assert dictionary.index("cat") == dictionary.unk_index


def test_tokens_are_the_penn_treebanks_without_punctuation():
    # what Stanford's PTBTokenizer gives, as coco-caption runs it
    expected = {
        "The dog's \"toy\" -- a 4-wheeler, isn't here...": "the dog 's toy a 4-wheeler is n't here",
        "You cannot say I'm gonna!!": "you can not say i 'm gon na !!",
        "(A man) [sits] {on} it": "-lrb- a man -rrb- -lsb- sits -rsb- -lcb- on -rcb- it",
        "A U.S. flag on Main St. at 6:40PM for $14.99 & 1/2.": "a u.s. flag on main st. at 6:40 pm for $ 14.99 & 1/2",
        "three o'clock; the kids' black/white t-shirt": "three o'clock the kids black/white t-shirt",
        "see www.example.com or mail a.b@example.com": "see www.example.com or mail a.b@example.com",
        "": "",
        "...": "",
    }
    assert {text: " ".join(tokenise_caption(text)) for text in expected} == expected
