"""Recipes: one YAML file says everything that a run's result depends on.

A recipe has fields of its own (`kind`, `description`, `expected`, `paper`, `show`) and the fields of its kind's
settings (`rskip.experiments.translation_settings`, `rskip.experiments.vision_settings`). Only the settings decide what
a run computes; they are the run's *config*. Overrides (`--set train.lr=0.003`) change settings, so they name
another run.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from rskip.experiments.keys import refuse_unknown_keys
from rskip.experiments.translation_settings import TranslationSettings
from rskip.experiments.vision_settings import VisionSettings
from rskip.experiments.yaml_reader import read_yaml, read_yaml_value

SETTINGS_BY_KIND: dict[str, Any] = {"translation": TranslationSettings, "vision": VisionSettings}
SettingsT = TypeVar("SettingsT")

_OWN_FIELDS = ("kind", "description", "expected", "paper", "show")


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What the recipe's author saw: metrics by their names in records, and the time on which machine."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    minutes: float | None = None
    machine: str | None = None


MEASURES = {"bleu": "BLEU", "error": "error, %", "accuracy": "accuracy, %"}  # what papers give, and its name


@dataclass(frozen=True, kw_only=True)
class PaperFigure:
    """A figure that a paper published for what the recipe runs, by one measure. It is never a result of ours.

    :param table: where, such as "rSkip Table 2".
    :param bleu: as the paper gives it; by which scorer, the papers don't say.
    :param error: of classification, in %.
    :param accuracy: of classification, in %.
    """

    table: str
    bleu: float | None = None
    error: float | None = None
    accuracy: float | None = None

    @property
    def measure(self) -> str:
        """The measure's name, as people write it."""
        return next(name for field, name in MEASURES.items() if getattr(self, field) is not None)

    @property
    def figure(self) -> float:
        """The figure, by that measure."""
        return next(value for field in MEASURES if (value := getattr(self, field)) is not None)


@dataclass(frozen=True, kw_only=True)
class Recipe(Generic[SettingsT]):
    """A recipe after its overrides were applied.

    path: its file; overrides: dotted key -> value, only those that change something.
    """

    path: Path
    kind: str
    settings: SettingsT
    description: str = ""
    expected: Expected = Expected()
    paper: tuple[PaperFigure, ...] = ()
    show: int = 0
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The file's name without `.yaml`."""
        return self.path.stem

    @property
    def run_name(self) -> str:
        """The folder's name under runs/ and results/: the recipe's, and a hash of the overrides if any."""
        if not self.overrides:
            return self.name
        canonical = json.dumps(dict(self.overrides), sort_keys=True, separators=(",", ":"))
        return f"{self.name}-{hashlib.sha256(canonical.encode()).hexdigest()[:8]}"

    @property
    def config(self) -> dict[str, Any]:
        """Everything that the result depends on, as plain JSON values."""
        return {"kind": self.kind, **json.loads(json.dumps(dataclasses.asdict(cast(Any, self.settings))))}


def load_recipe(path: str | os.PathLike[str], *, overrides: list[str] | None = None) -> Recipe:
    """Reads and checks a recipe.

    path: the YAML file; overrides: texts `dotted.key=value`, the value in YAML. Raises FileNotFoundError and
    ValueError with one line that names the file, the key, and the nearest known key.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no recipe {path}: give the path of a recipe file such as recipes/NAME.yaml")
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise ValueError(
            f"{path}: a recipe is a mapping of keys to values, this file holds {_kind_of(content)}"
        )
    try:
        return _build(path, content, _parse_overrides(overrides or []))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _build(path: Path, content: dict[str, Any], overrides: dict[str, Any]) -> Recipe:
    kind = content.get("kind")
    if not isinstance(kind, str) or kind not in SETTINGS_BY_KIND:
        known = ", ".join(SETTINGS_BY_KIND)
        raise ValueError(f"kind is {kind!r}; this version runs recipes of kind {known}")
    settings_class = SETTINGS_BY_KIND[kind]
    settings_fields = [f.name for f in dataclasses.fields(settings_class)]
    effective = {}
    changed = copy.deepcopy(content)
    for key, value in overrides.items():
        if key.split(".")[0] == "kind":
            raise ValueError("kind can't be overridden: write another recipe")
        before = _set_dotted(changed, key, value)
        if key.split(".")[0] in settings_fields and before != value:
            effective[key] = value
    refuse_unknown_keys(changed, [*_OWN_FIELDS, *settings_fields])
    show = changed.get("show", 0)
    if not isinstance(show, int) or isinstance(show, bool) or show < 0:
        raise ValueError(f"show is {show!r}; expected how many examples to print, 0 or more")
    return Recipe(
        path=path,
        kind=kind,
        settings=settings_class.from_mapping({k: v for k, v in changed.items() if k in settings_fields}),
        description=str(changed.get("description", "")).strip(),
        expected=_read_expected(changed.get("expected") or {}),
        paper=_read_paper(changed.get("paper") or []),
        show=show,
        overrides=effective,
    )


def _read_expected(content: Any) -> Expected:
    if not isinstance(content, dict):
        raise ValueError(
            f"expected is {_kind_of(content)}; expected a mapping such as {{sacrebleu: 38.0, minutes: 40}}"
        )
    metrics = {key: value for key, value in content.items() if key not in ("minutes", "machine")}
    for key, value in [*metrics.items(), ("minutes", content.get("minutes", 0))]:
        if not _is_number(value):
            raise ValueError(f"expected.{key} is {value!r}; expected a number")
    return Expected(metrics=metrics, minutes=content.get("minutes"), machine=content.get("machine"))


def _read_paper(content: Any) -> tuple[PaperFigure, ...]:
    form = "expected a list such as [{bleu: 31.45, table: rSkip Table 2}] or [{error: 6.02, table: rSkip Table 1}]"
    if not isinstance(content, list) or not all(isinstance(each, dict) for each in content):
        raise ValueError(f"paper is {content!r}; {form}")
    for each in content:
        refuse_unknown_keys(each, (*MEASURES, "table"), within="paper")
        figures = [each[measure] for measure in MEASURES if measure in each]
        if not (len(figures) == 1 and _is_number(figures[0]) and isinstance(each.get("table"), str)):
            raise ValueError(f"paper holds {each!r}; {form}")
    return tuple(PaperFigure(**each) for each in content)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _parse_overrides(texts: list[str]) -> dict[str, Any]:
    overrides = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not all(key.split(".")):
            raise ValueError(f"--set {text}: expected key=value with a dotted key, such as train.lr=0.003")
        overrides[key] = read_yaml_value(value, f"--set {text}")
    return overrides


def _set_dotted(content: dict[str, Any], dotted_key: str, value: Any) -> Any:
    """Sets the value in place and returns the one before (None where there was none)."""
    *parents, last = dotted_key.split(".")
    inner = content
    for parent in parents:
        inner = inner.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise ValueError(f"--set {dotted_key}: {parent} is one value, not a mapping")
    before = inner.get(last)
    inner[last] = value
    return before


def _kind_of(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
