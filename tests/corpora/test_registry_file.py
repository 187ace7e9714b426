"""A registry file that is right, and mistakes in it: each one line that names the entry and what was expected."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rskip.corpora.corpus import CleaningOptions, ParallelText, PrepareDefaults, PublishedCorpus, Text, UpstreamFile
from rskip.corpora.registry import read_corpora
from rskip.settings.errors import SettingError

SUM = "0123456789abcdef" * 4
RIGHT = f"""
files:
  news:
    - url: https://example.org/train.tgz
      size: 12
      sha256: {SUM}
    - url: https://example.org/dev.en.gz
    - url: https://example.org/dev.de.gz
corpora:
  tiny-news-en-de:
    folder: news
    homepage: https://example.org
    licence: none
    citation: nobody
    defaults:
      size: 7
      tokenised: true
      cleaning: {{entities: unescape, max_words: 80, max_ratio: 2}}
    splits:
      train:
        - name: ted
          file: train.tgz
          member: ted.{{language}}
          format: ted
          sentences: 100
          except_every: 10
        - {{name: web, file: train.tgz, member: {{en: w.en.sgm, de: w.de.sgm}}, format: sgm}}
      valid:
        - {{name: dev, file: "dev.{{language}}.gz"}}
      test:
        - {{name: ted, file: train.tgz, member: "ted.{{language}}", format: ted, every: 10}}
      test1:
        - {{name: dev, file: {{en: dev.en.gz, de: dev.de.gz}}}}
"""


def read(folder: Path, content: str) -> list[PublishedCorpus]:
    path = folder / "corpora.yaml"
    path.write_text(content, encoding="utf-8")
    return read_corpora(path)[0]


def test_both_directions_with_everything_that_an_entry_may_say(tmp_path: Path) -> None:
    archive = UpstreamFile(name="train.tgz", url="https://example.org/train.tgz", size=12, sha256=SUM)
    dev = {
        language: Text(file=UpstreamFile(name=f"dev.{language}.gz", url=f"https://example.org/dev.{language}.gz"))
        for language in ("en", "de")
    }
    ted = {language: Text(file=archive, member=f"ted.{language}", format="ted") for language in ("en", "de")}
    web = {language: Text(file=archive, member=f"w.{language}.sgm", format="sgm") for language in ("en", "de")}
    splits = {
        "train": (
            ParallelText(name="ted", sides=ted, sentences=100, except_every=10),
            ParallelText(name="web", sides=web),
        ),
        "valid": (ParallelText(name="dev", sides=dev),),
        "test": (ParallelText(name="ted", sides=ted, every=10),),
        "test1": (ParallelText(name="dev", sides=dev),),
    }
    cleaning = CleaningOptions(entities="unescape", max_words=80, max_ratio=2)
    assert read(tmp_path, RIGHT) == [
        PublishedCorpus(
            name=f"tiny-news-{source}-{target}",
            source=source,
            target=target,
            homepage="https://example.org",
            licence="none",
            citation="nobody",
            defaults=PrepareDefaults(size=7, tokenised=True, cleaning=cleaning),
            folder="news",
            splits=splits,
        )
        for source, target in (("en", "de"), ("de", "en"))
    ]


def test_without_defaults_nothing_is_cleaned(tmp_path: Path) -> None:
    content = re.sub(r"    defaults:\n(      .*\n)+", "", RIGHT)
    assert content != RIGHT
    assert [corpus.defaults for corpus in read(tmp_path, content)] == [PrepareDefaults(), PrepareDefaults()]


ENTRY = "tiny-news-en-de"


MISTAKES = (
    ("    licence: none\n", "    license: none\n", f"unknown key corpora.{ENTRY}.license; did you mean licence?"),
    ("    licence: none\n", "", f"corpora.{ENTRY}.licence is missing"),
    ("    licence: none\n", "    licence: 5\n", f"corpora.{ENTRY}.licence is 5: expected text"),
    ("    licence: none\n", "    licence: ''\n", f"corpora.{ENTRY}.licence is '': expected text"),
    ("    licence: none\n", "    licence: a\n    licence: b\n", "line 14: not valid YAML: key licence is given twice"),
    ("      size: 7\n", "      sizes: 7\n", f"unknown key corpora.{ENTRY}.defaults.sizes; did you mean size"),
    ("      size: 7\n", "      size: many\n", "defaults.size is 'many': expected a whole number, 1 or more"),
    ("      size: 7\n", "      size: true\n", "defaults.size is True: expected a whole number"),
    ("tokenised: true", "tokenised: 1", "defaults.tokenised is 1: expected true or false"),
    ("max_words: 80", "max_word: 80", "defaults.cleaning.max_word; did you mean max_words"),
    ("max_words: 80", "max_words: 0", "defaults.cleaning.max_words is 0: expected a whole number, 1 or more"),
    ("max_ratio: 2", "max_ratio: no", "defaults.cleaning.max_ratio is False: expected a number"),
    ("max_ratio: 2", "max_ratio: 0.5", f"corpora.{ENTRY}.defaults.cleaning.max_ratio is 0.5: expected a number, 1 or"),
    ("{en: w.en.sgm, de: w.de.sgm}", "{en: w.en.sgm}", "train[1].member is {'en': 'w.en.sgm'}: expected a name"),
    ("{en: w.en.sgm, de: w.de.sgm}", "{en: a, de: b, fr: c}", "expected a name for each of en, de"),
    ("{en: w.en.sgm, de: w.de.sgm}", "w.sgm", "train[1] has the same text for both languages: expected {language} in"),
    ("{en: w.en.sgm, de: w.de.sgm}", "5", "train[1].member is 5: expected text or keys and values, or null"),
    ("format: sgm", "format: smg", "train[1].format is 'smg': expected lines, sgm, ted or xml (did you mean sgm?)"),
    ("file: train.tgz\n", "file: trian.tgz\n", "train[0].file is 'trian.tgz': expected one of its folder's: train.tgz"),
    ("sentences: 100", "sentences: 0", f"corpora.{ENTRY}.splits.train[0].sentences is 0: expected a whole number, 1"),
    ("sentences: 100", "sentences: 1e2", "train[0].sentences is 100.0: expected a whole number"),
    ("sentences: 100", "every: 9", "train[0].except_every is given in addition to every: expected one of them"),
    ("sentences: 100", "sentence: 100", "train[0].sentence; did you mean sentences?"),
    ("      valid:", "      dev:", "splits.valid is missing; every corpus has train, valid, test"),
    ("      test1:", "      test0:", "splits.test0 is a split: expected train, valid, test, and then test1, test2 and"),
    ("      test1:", "      test2:", "splits.test2 is a split: expected train, valid, test, and then test1, test2 and"),
    ("    folder: news", "    folder: new", f"corpora.{ENTRY}.folder is 'new': expected one of those under files"),
    (f"  {ENTRY}:", "  tiny:", "corpora.tiny is a key: expected a name that ends in its languages, such as wmt14"),
    (SUM, SUM[:-1], "files.news[0].sha256 is '0123"),
    (SUM, SUM.upper(), "files.news[0].sha256 is '0123456789ABCDEF"),
    ("      size: 12", "      size: -1", "files.news[0].size is -1: expected a whole number, 1 or more"),
    ("      size: 12", "      md5: 12", "unknown key files.news[0].md5; known keys: url, size, sha256"),
    ("https://example.org/dev.de.gz", "http://a.org/b", "files.news[2].url is 'http://a.org/b': expected a URL"),
    ("https://example.org/dev.de.gz", "https://a.org/b/", "files.news[2].url is 'https://a.org/b/': expected a URL"),
    (
        "    - url: https://example.org/dev.en.gz\n",
        "    - url: https://example.org/dev.en.gz\n    - url: https://b.org/dev.en.gz\n",
        "files.news has two URLs for dev.en.gz, https://example.org/dev.en.gz and https://b.org/dev.en.gz:",
    ),
    (
        "    - url: https://example.org/dev.en.gz\n",
        "    - url: https://example.org/dev.en.gz\n    - url: https://example.org/dev.fr.gz\n",
        "files.news has dev.fr.gz, which no corpus uses",
    ),
    ("      train:\n", "      train: [\n", "line 2"),
    ("corpora:\n", "corpus:\n", "unknown key corpus; did you mean corpora?"),
    (RIGHT, "", "it holds nothing: expected keys and values"),
    (RIGHT, "- a\n", "it holds a list: expected keys and values"),
)


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    for right, wrong, message in MISTAKES:
        assert right in RIGHT
        with pytest.raises(SettingError) as error:
            read(tmp_path, RIGHT.replace(right, wrong, 1))
        said = str(error.value)
        assert said.startswith(f"{tmp_path / 'corpora.yaml'}") and message in said, said
        assert "\n" not in said


def test_an_entry_for_the_other_direction_is_one_too_many(tmp_path: Path) -> None:
    entry = RIGHT[RIGHT.index(f"  {ENTRY}:") :]
    with pytest.raises(SettingError, match=r"tiny-news-de-en is tiny-news-de-en too, the name of another entry"):
        read(tmp_path, RIGHT + entry.replace(ENTRY, "tiny-news-de-en"))


CAPTIONS = """
captions:
  walls:
    folder: news
    homepage: https://example.org
    licence: none
    citation: nobody
    archive: dev.en.gz
    format: karpathy
    texts: {captions: {member: walls.json}}
    images: {train: 3, valid: 2, test: 1}
    image_source: nowhere
"""


def test_captions_of_pictures(tmp_path: Path) -> None:
    path = tmp_path / "corpora.yaml"
    path.write_text(RIGHT + CAPTIONS)
    (corpus,) = read_corpora(path)[1]
    assert corpus.archive.name == "dev.en.gz" and corpus.texts["captions"].name == "walls.json"
    assert (corpus.images["train"], corpus.image_folders) == (3, ("images",))
    for right, wrong, message in (
        ("archive: dev.en.gz", "archive: b.zip", "captions.walls.archive is 'b.zip'"),
        ("folder: news\n    homepage: https://example.org\n    licence: none\n    citation: nobody\n    archive",
         "folder: none\n    homepage: https://example.org\n    licence: none\n    citation: nobody\n    archive",
         "captions.walls.folder is 'none'"),
        ("format: karpathy", "format: flickr8k", "captions.walls.texts is ['captions']: expected captions, train"),
        ("test: 1}", "dev: 1}", "captions.walls.images is"),
        ("format: karpathy", "format: coco", "captions.walls.format is 'coco'"),
    ):  # fmt: skip
        assert right in CAPTIONS
        path.write_text(RIGHT + CAPTIONS.replace(right, wrong))
        with pytest.raises(SettingError, match=re.escape(message)):
            read_corpora(path)
