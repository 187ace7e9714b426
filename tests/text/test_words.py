"""Moses' words and back."""

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from rskip.text.pipeline import LanguageText, TextConfig
from rskip.text.words import MosesTokeniser, PunctuationNormaliser, build_tokeniser


@pytest.mark.parametrize(
    ("language", "sentence", "words"),
    [
        ("en", "A man's well-worn hat.", "A man &apos;s well @-@ worn hat ."),
        ("en", 'He says "R & D".', "He says &quot; R &amp; D &quot; ."),
        ("de", "Im 3. Stock, ca. 5,5 m hoch.", "Im 3. Stock , ca. 5,5 m hoch ."),
        ("fr", "L'homme s'assied aujourd'hui.", "L&apos; homme s&apos; assied aujourd&apos; hui ."),
    ],
)
def test_moses_splits_as_moses_does_and_comes_back(language: str, sentence: str, words: str) -> None:
    tokeniser = MosesTokeniser(language)
    assert tokeniser.tokenise(sentence) == words
    assert tokeniser.detokenise(words) == sentence


def test_moses_agrees_with_fairseqs_tokeniser() -> None:
    pytest.importorskip("fairseq")
    from fairseq.data.encoders.moses_tokenizer import MosesTokenizer, MosesTokenizerConfig

    theirs = MosesTokenizer(MosesTokenizerConfig(source_lang="en", target_lang="de"))
    sentence = 'The girl\'s dog-sled costs 3,000 $ & "more" [see p. 5]...'
    words = MosesTokeniser("en").tokenise(sentence)
    assert words == theirs.encode(sentence)
    assert MosesTokeniser("de").detokenise(words) == theirs.decode(words)


def test_without_dash_splits_and_escapes() -> None:
    tokeniser = MosesTokeniser("en", dash_splits=False, escape=False)
    assert tokeniser.tokenise("A man's well-worn hat.") == "A man 's well-worn hat ."
    assert tokeniser.detokenise("R &amp; D") == "R &amp; D"


def test_typographic_marks_become_plain_and_quotes_keep_their_side() -> None:
    normalise = PunctuationNormaliser("de")
    assert normalise("„Ja“ – er\u00a0sagt’s…") == '"Ja" - er\u00a0sagt\'s...'
    assert normalise('Er sagt "ja", dann "nein". Ende.') == 'Er sagt "ja", dann "nein". Ende.'
    assert PunctuationNormaliser("en")('He says "yes", then "no".') == 'He says "yes", then "no".'


def test_white_space_alone() -> None:
    tokeniser = build_tokeniser("none", "en", dash_splits=True, escape=True)
    assert tokeniser.tokenise(" It's\ta\u2028dog-sled.  ") == "It's a dog-sled."


@pytest.mark.parametrize(("language", "exact"), [("en", 999), ("de", 997), ("fr", 997)])
def test_multi30k_comes_back(shared: Path, language: str, exact: int) -> None:
    """Nearly every raw test sentence survives words and back, so that BLEU against raw text loses nothing."""
    from sacrebleu.metrics import BLEU

    with gzip.open(shared / f"data/multi30k/test_2016_flickr.{language}.gz", "rt", encoding="utf-8") as file:
        raw = [line.rstrip("\n") for line in file]
    text = LanguageText(TextConfig(source_language=language, target_language=language), language)
    back = [text.sentence(text.words(sentence)) for sentence in raw]
    assert sum(sentence.strip() == again for sentence, again in zip(raw, back, strict=True)) >= exact
    assert BLEU().corpus_score(back, [raw]).score > 99.9


def test_sacremoses_starts_without_what_it_rarely_calls() -> None:
    """joblib, tqdm and others are imported by the functions that need them, which work as usual."""
    code = """
import sys
from rskip.text.words import MosesTokeniser

later = ("joblib", "tqdm", "regex", "xml.sax.saxutils", "urllib.request")
assert MosesTokeniser("en").tokenise("It's 5 < 6.") == "It &apos;s 5 &lt; 6 ."
assert not [name for name in later if name in sys.modules]
import sacremoses
from sacremoses.util import parallelize_preprocess, xml_escape
assert xml_escape("<|>") == "&lt;&#124;&gt;"
assert sacremoses.MosesPunctNormalizer("en").remove_control_chars("a\\x07b") == "ab"
assert list(parallelize_preprocess(str.upper, ["a", "b"], 2, progress_bar=True)) == ["A", "B"]
assert sys.modules["joblib"].__file__ and sys.modules["regex"].__file__ and sys.modules["tqdm"].__file__
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_other_threads_import_the_real_modules_meanwhile() -> None:
    code = """
import re
import sys
from threading import Thread
from rskip.text.words import MosesTokeniser

found = []

def other():
    from tqdm import tqdm
    found.append(tqdm)

compile_pattern, threads = re.compile, []

def compile_between(pattern, flags=0):  # sacremoses' modules call it while they are imported
    if "sacremoses" in sys.modules and not threads:
        assert "tqdm" not in sys.modules
        threads.append(Thread(target=other))
        threads[0].start()
        threads[0].join()
    return compile_pattern(pattern, flags)

re.compile = compile_between
before = __import__
MosesTokeniser("en")
assert __import__ is before and found[0] is sys.modules["tqdm"].tqdm and isinstance(found[0], type)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
