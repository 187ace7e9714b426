"""The text pipeline and dictionary of a trained model, for text that the model shall learn too (`--like`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from rskip.checkpoint.config_file import CONFIG, WEIGHTS
from rskip.files.checksum import sha256_file
from rskip.settings.errors import SettingError
from rskip.settings.text import read_json
from rskip.text.dictionary import Dictionary
from rskip.text.pipeline import TextPipeline
from rskip.text.tokenizer import Tokenizer


class Like(NamedTuple):
    """A model's text pipeline, and its dictionary, which is that of both languages."""

    text: TextPipeline
    dictionary: Dictionary


def read_like(model: Path, languages: tuple[str, str]) -> Like:
    """What new text takes from the model.

    :param model: a folder that `rskip train`, `rskip import` or publishing wrote.
    :raises FileNotFoundError: it lacks text/ or a dictionary.
    :raises SettingError: it is no model's folder, has other languages, or units that `rskip prepare` can't use.
    """
    check_model_folder("like", model)
    tokenizer = Tokenizer.load(model)
    own = tokenizer.source_language, tokenizer.target_language
    if tokenizer.languages is not None:
        raise SettingError("like", f"is {model}, which has several languages", expected="a model of two languages")
    if own != languages:
        problem = f"is {model}, which translates {own[0]} to {own[1]}"
        raise SettingError("like", problem, expected=f"a model from {languages[0]} to {languages[1]}")
    if tokenizer.source.tokens != tokenizer.target.tokens:
        raise SettingError("like", f"is {model}, which has two dictionaries", expected="a model with one")
    if not isinstance(tokenizer.text, TextPipeline) or tokenizer.text.config.added_tokens:
        advice = "give a folder that `rskip train` wrote"
        raise SettingError("like", f"is {model}, whose units can't prepare a corpus", advice=advice)
    return Like(tokenizer.text, tokenizer.source)


def check_model_folder(setting: str, model: Path) -> None:
    """:raises SettingError: the folder holds no model of ours."""
    if (model / WEIGHTS).is_file() and "task" in read_json(model / CONFIG):
        return
    if (model / CONFIG).is_file():
        advice = f"convert it with `rskip import huggingface --model {model} --output FOLDER` first"
        raise SettingError(setting, f"is {model}, a model of Hugging Face's", advice=advice)
    problem = f"is {model}, which holds no {WEIGHTS}" if model.is_dir() else f"is {model}, which doesn't exist"
    raise SettingError(setting, problem, expected="the folder of a model, such as `rskip train` writes")


def describe_like(model: Path) -> dict[str, dict[str, Any]]:
    """Its files, as inputs of a corpus's record."""
    paths = [*sorted((model / "text").iterdir()), *sorted(model.glob("dict*.txt"))]
    return {
        f"like/{path.name}": {"file": path.name, "size": path.stat().st_size, "sha256": sha256_file(path)}
        for path in paths
    }
