"""Finds the reader of a Hugging Face folder by the `model_type` in its config.json."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from rskip.checkpoint.hugging_face.folder import CONFIG, Folder
from rskip.checkpoint.hugging_face.model import HuggingFaceModel
from rskip.extras import require_torch
from rskip.settings.errors import shown

READERS = ("fsmt", "m2m_100", "marian", "mbart")  # model types of translation models
_READ_BY = {  # model type: what reads it, for the error of a reader of other models
    **dict.fromkeys(READERS, "`rskip translate` and `rskip import` read it"),
    **dict.fromkeys(("gpt2", "llama"), "rskip.checkpoint.read_language_model reads it"),
}
_EXPERTS = ("num_experts", "num_local_experts", "router_dtype")  # settings of mixtures of experts


def read_hugging_face(path: Path, *, languages: tuple[str | None, str | None] = (None, None)) -> HuggingFaceModel:
    """The translation model of a folder. No code in the folder is executed.

    :param languages: source and target as the user gives them; None: the folder's own, or unknown.
    :raises FileNotFoundError: a file of the tokenizer or of the weights is missing.
    :raises ValueError: settings, weights or vocabularies that do not fit each other, or a language that it lacks.
    """
    folder = Folder(path)
    kind = check_known(folder, READERS, "a translation model")
    folder.weights()  # what is missing is told without PyTorch too
    require_torch(str(path))
    from rskip.checkpoint.hugging_face import fsmt, marian, multilingual  # they import PyTorch

    readers = {
        "fsmt": fsmt.read,
        "m2m_100": multilingual.read_m2m,
        "marian": marian.read,
        "mbart": multilingual.read_mbart,
    }
    return readers[kind](folder, languages=languages)


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
