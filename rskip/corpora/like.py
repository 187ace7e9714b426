"""The text pipeline and dictionary of a trained model, for text that the model shall learn too (`--like`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from rskip.checkpoint.config_file import WEIGHTS
from rskip.files.checksum import sha256_file
from rskip.settings.errors import SettingError
from rskip.text.dictionary import Dictionary
from rskip.text.pipeline import TextConfig, TextPipeline
from rskip.text.subwords import SubwordKind
from rskip.text.tokenizer import Tokenizer

_TEXT = "text"


def read_like(model: Path, languages: tuple[str, str]) -> TextConfig:
    """The settings of the model's text pipeline.

    :param model: a folder that `rskip train` or publishing wrote.
    :raises FileNotFoundError: it lacks text/ or a dictionary.
    :raises SettingError: it is no model's folder, has other languages, or units that `rskip prepare` can't use.
    """
    check_model_folder("like", model)
    tokenizer = Tokenizer.load(model)
    config = tokenizer.text.config if isinstance(tokenizer.text, TextPipeline) else None
    if config is None or config.subwords not in get_args(SubwordKind) or tokenizer.languages is not None:
        advice = "give a folder that `rskip train` wrote"
        raise SettingError("like", f"is {model}, whose units can't prepare a corpus", advice=advice)
    own = config.source_language, config.target_language
    if own != languages:
        problem = f"is {model}, which translates {own[0]} to {own[1]}"
        raise SettingError("like", problem, expected=f"a model from {languages[0]} to {languages[1]}")
    if tokenizer.source.tokens != tokenizer.target.tokens:
        raise SettingError("like", f"is {model}, which has two dictionaries", expected="a model with one")
    return config


def check_model_folder(setting: str, model: Path) -> None:
    """:raises SettingError: the folder holds no model."""
    if not (model / WEIGHTS).is_file():
        problem = f"is {model}, which holds no {WEIGHTS}" if model.is_dir() else f"is {model}, which doesn't exist"
        raise SettingError(setting, problem, expected="the folder of a model, such as `rskip train` writes")


def like_text(model: Path) -> Path:
    """The folder of its text pipeline."""
    return model / _TEXT


def like_dictionary(model: Path) -> Dictionary:
    """Its dictionary, of both languages."""
    return Tokenizer.load(model).source


def describe_like(model: Path) -> dict[str, dict[str, Any]]:
    """Its files, as inputs of a corpus's record."""
    paths = [*sorted(like_text(model).iterdir()), *sorted(model.glob("dict*.txt"))]
    return {
        f"like/{path.name}": {"file": path.name, "size": path.stat().st_size, "sha256": sha256_file(path)}
        for path in paths
    }
