"""Finds the reader of a Hugging Face folder by the `model_type` in its config.json."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rskip.checkpoint.checkpoint import LANGUAGES, Checkpoint
from rskip.checkpoint.hugging_face.folder import CONFIG, Folder
from rskip.settings.check import to_plain
from rskip.settings.errors import shown
from rskip.text.dictionary import Dictionary
from rskip.text.languages import LanguageTokens
from rskip.text.pipeline import TextPipeline
from rskip.text.tokenizer import Tokenizer

READERS = ("fsmt", "m2m_100", "marian", "mbart")  # model types of translation models
_READ_BY = {  # model type: what reads it, for the error of a reader of other models
    **dict.fromkeys(READERS, "`rskip translate` and `rskip import` read it"),
    **dict.fromkeys(("gpt2", "llama"), "rskip.checkpoint.read_language_model reads it"),
}
_EXPERTS = ("num_experts", "num_local_experts", "router_dtype")  # settings of mixtures of experts


@dataclass(frozen=True, kw_only=True)
class HuggingFaceModel:
    """A translation model under our names, and the parts of its tokenizer.

    checkpoint: its languages and language tokens are added.
    text: the pipeline, between some two of the model's languages.
    source, target: the dictionaries.
    pair: source and target language, as the user gives them or as the folder says; None: the user has to say it.
    languages: the language tokens of a multilingual model.
    """

    checkpoint: Checkpoint
    text: TextPipeline
    source: Dictionary
    target: Dictionary
    pair: tuple[str | None, str | None]
    languages: LanguageTokens | None = None

    def __post_init__(self) -> None:
        self.checkpoint.config.update(zip(("source_lang", "target_lang"), self.pair, strict=True))
        if self.languages is not None:
            self.checkpoint.config[LANGUAGES] = to_plain(self.languages)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer for the pair."""
        return self._between(*self.pair)

    @property
    def any_tokenizer(self) -> Tokenizer:
        """As `tokenizer`, between any two languages where the user has not said them."""
        others = [code for code in (self.text.source_language, self.text.target_language) if code not in self.pair]
        return self._between(*(code or others.pop(0) for code in self.pair))

    def _between(self, source: str | None, target: str | None) -> Tokenizer:
        if self.languages is not None:
            source, target = self.languages.check_pair(source, target)
        text = self.text.changed(source_language=source, target_language=target)
        return Tokenizer(text, self.source, self.target, self.languages)


def read_hugging_face(path: Path, *, languages: tuple[str | None, str | None] = (None, None)) -> HuggingFaceModel:
    """The translation model of a folder. No code in the folder is executed.

    :param languages: source and target as the user gives them; None: the folder's own, or unknown.
    :raises FileNotFoundError: a file of the tokenizer or of the weights is missing.
    :raises ValueError: settings, weights or vocabularies that do not fit each other, or a language that it lacks.
    """
    folder = Folder(path)
    kind = check_known(folder, READERS, "a translation model")
    from rskip.checkpoint.hugging_face import fsmt, marian, multilingual  # they import PyTorch

    readers = {
        "fsmt": fsmt.read,
        "m2m_100": multilingual.read_m2m,
        "marian": marian.read,
        "mbart": multilingual.read_mbart,
    }
    return readers[kind](folder, languages=languages)


def check_supported(path: Path) -> None:
    """Checks without PyTorch that a folder holds weights of a known model type."""
    folder = Folder(path)
    check_known(folder, READERS, "a translation model")
    folder.weights()


def check_known(folder: Folder, known: Collection[str], what: str) -> str:
    """The model type of a folder, which must be one of `known`.

    :param what: the kind of models that are known, for the error.
    """
    kind = folder.model_type
    expected = f"{what}: one of {', '.join(sorted(known))}"
    if any(folder.config.get(name) for name in _EXPERTS):
        problem = f"has a mixture of experts ({shown(kind)}), which rskip can't compute"
        raise folder.error(problem, file=CONFIG, expected=expected)
    if kind is None or kind not in known:
        advice = _READ_BY.get(kind or "", "")
        raise folder.error(f"is {shown(kind)}", name="model_type", file=CONFIG, expected=expected, advice=advice)
    return kind
