"""A registry file that is right, and mistakes in it: each one line that names the entry and what was expected."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rskip.corpora.corpus import CleaningOptions, ParallelText, PrepareDefaults, PublishedCorpus, Text, UpstreamFile
from rskip.corpora.registry_file import read_corpora

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
    return read_corpora(path)


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


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("    licence: none\n", "    license: none\n", f"{ENTRY}: unknown key license: expected folder, homepage, "),
        ("    licence: none\n", "", f"{ENTRY}: licence is missing"),
        ("    licence: none\n", "    licence: 5\n", f"{ENTRY}: licence: expected text"),
        (
            "    licence: none\n",
            "    licence: a\n    licence: b\n",
            "line 14: key licence is given twice: expected once",
        ),
        (
            "      size: 7\n",
            "      sizes: 7\n",
            f"{ENTRY}: unknown key defaults.sizes; did you mean size",
        ),
        ("      size: 7\n", "      size: many\n", f"{ENTRY}: defaults.size is 'many': expected a whole number"),
        ("      size: 7\n", "      size: true\n", f"{ENTRY}: defaults.size is True"),
        ("tokenised: true", "tokenised: 1", f"{ENTRY}: defaults.tokenised is 1: expected true or false"),
        ("max_words: 80", "max_word: 80", f"{ENTRY}: unknown key defaults.cleaning.max_word; did you mean max_words"),
        (
            "max_ratio: 2",
            "max_ratio: no",
            f"{ENTRY}: defaults.cleaning.max_ratio is False: expected a number",
        ),
        ("{en: w.en.sgm, de: w.de.sgm}", "{en: w.en.sgm}", f"{ENTRY}: train: number 2, web: member: de is missing"),
        (
            "{en: w.en.sgm, de: w.de.sgm}",
            "{en: w.en.sgm, de: w.de.sgm, fr: w}",
            f"{ENTRY}: train: number 2, web: member: unknown key fr: expected en, de",
        ),
        (
            "{en: w.en.sgm, de: w.de.sgm}",
            "w.sgm",
            f"{ENTRY}: train: number 2, web: both languages have the same text: expected {{language}} in its file or",
        ),
        ("format: sgm", "format: smg", f"{ENTRY}: train: number 2, web: format smg: expected one of lines, sgm, xml, "),
        ("file: train.tgz\n", "file: trian.tgz\n", f"{ENTRY}: train: number 1, ted: file trian.tgz is not one of its "),
        ("sentences: 100", "sentences: 0", f"{ENTRY}: train: number 1, ted: sentences is 0: expected a whole number"),
        (
            "sentences: 100",
            "sentences: 1e2",
            f"{ENTRY}: train: number 1, ted: sentences is '1e2': expected a whole num",
        ),
        ("sentences: 100", "every: 9", f"{ENTRY}: train: number 1, ted: every and except_every are both given: expec"),
        ("sentences: 100", "sentence: 100", f"{ENTRY}: train: number 1: unknown key sentence: expected name, file, "),
        ("      valid:", "      dev:", f"{ENTRY}: no split valid: every corpus has train, valid, test"),
        (
            "      test1:",
            "      test0:",
            f"{ENTRY}: split test0: expected train, valid, test, and then test1, test2 and so on",
        ),
        (
            "      test1:",
            "      test2:",
            f"{ENTRY}: split test2: expected train, valid, test, and then test1, test2 and",
        ),
        ("    folder: news", "    folder: new", f"{ENTRY}: folder new is not one of those under files: news"),
        (f"  {ENTRY}:", "  tiny:", "tiny: expected a name that ends in its languages, such as wmt14-en-de"),
        (SUM, SUM[:-1], "files of news: train.tgz: sha256 is 0123"),
        (SUM, SUM.upper(), "files of news: train.tgz: sha256 is 0123456789ABCDEF"),
        (
            "      size: 12",
            "      size: -1",
            "files of news: train.tgz: size is -1: expected a whole number of 1 or more",
        ),
        ("      size: 12", "      md5: 12", "files of news: number 1: unknown key md5: expected url, size, sha256"),
        ("https://example.org/dev.de.gz", "http://a.org/b", "files of news: http://a.org/b: expected an address that "),
        (
            "    - url: https://example.org/dev.en.gz\n",
            "    - url: https://example.org/dev.en.gz\n    - url: https://b.org/dev.en.gz\n",
            "files of news: dev.en.gz has two addresses, https://example.org/dev.en.gz and https://b.org/dev.en.gz: ",
        ),
        (
            "    - url: https://example.org/dev.en.gz\n",
            "    - url: https://example.org/dev.en.gz\n    - url: https://example.org/dev.fr.gz\n",
            "files of news: no corpus uses dev.fr.gz",
        ),
        ("      train:\n", "      train: [\n", "line 2"),
        ("corpora:\n", "corpus:\n", "unknown key corpus: expected files, corpora"),
        (RIGHT, "", "expected keys and values"),
        (RIGHT, "- a\n", "expected keys and values"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, right: str, wrong: str, message: str) -> None:
    assert right in RIGHT
    with pytest.raises(ValueError) as error:
        read(tmp_path, RIGHT.replace(right, wrong, 1))
    said = str(error.value)
    assert said.startswith(f"corpora.yaml: {message}")
    assert "\n" not in said


def test_an_entry_for_the_other_direction_is_one_too_many(tmp_path: Path) -> None:
    entry = RIGHT[RIGHT.index(f"  {ENTRY}:") :]
    with pytest.raises(ValueError, match=r"tiny-news-de-en: another entry is tiny-news-de-en already"):
        read(tmp_path, RIGHT + entry.replace(ENTRY, "tiny-news-de-en"))
