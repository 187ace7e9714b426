"""Recipes: one YAML file holds everything that determines the results of a study's runs.

A recipe has its own fields (`OwnFields` and `variants`) and the settings of its task (`rskip.tasks`). `variants` maps
names to changes of the file's common content. A list of such mappings is a grid: every combination of their names is a
variant. A variant's run has the address RECIPE/VARIANT, where RECIPE is the file's name without `.yaml`. Only the
settings decide what a run computes; they are its *config*. Overrides (`--set train.lr=0.003`) change settings, so they
name another run.
"""

from __future__ import annotations

import copy
import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property, reduce
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from rskip.records import RESULTS, Record, check_data, record_path
from rskip.records.record import run_address, without_hash
from rskip.settings.check import convert, field_names
from rskip.settings.errors import SettingError, did_you_mean, errors_about
from rskip.settings.text import parse_overrides, read_yaml, set_dotted
from rskip.tasks import Task, find_task, tasks
from rskip.tasks.run import RUNS, ProbeSettings, config_difference, flat_config

FOLDER = Path("recipes")
_Folder = Annotated[str, msgspec.Meta(min_length=1, extra={"expected": "a folder"})]
_Content = Annotated[dict[str, Any], msgspec.Meta(extra={"expected": "keys and values of a recipe"})]
_SUFFIXES = (".yaml", ".yml")
_LISTED = 10  # an error with a suggestion lists at most this many variants
_COMMON = ("kind", "results", "runs", "variants")  # the same for all variants of a file
_Name = Annotated[
    str, msgspec.Meta(pattern="^[a-z0-9][a-z0-9_.-]*$", extra={"expected": "the name of a variant, such as 2rskip_ln"})
]
_Named = dict[_Name, dict[str, Any] | None]


class PaperScore(msgspec.Struct, frozen=True, kw_only=True):
    """A score that a paper published for a variant, in one of its task's metrics. Never one of our results.

    :param tables: the paper's tables, such as "rSkip Table 2".
    :param key: the metric's key in recipes.
    :param measure: the metric's name.
    :param note: distinguishes it from the table's other score for the same variant.
    """

    tables: tuple[str, ...]
    key: str
    measure: str
    figure: float
    note: str = ""

    @property
    def table(self) -> str:
        """The source of the score, in words."""
        return ", ".join([*self.tables, *([self.note] if self.note else [])])


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """Resources of a run among several (`rskip run --ray`).

    :param gpus: fraction of a GPU, for training on a GPU.
    :param cores: CPU cores, and threads; None: its share of the machine.
    """

    gpus: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    cores: Annotated[int, msgspec.Meta(ge=1)] | None = None


class OwnFields(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a recipe that are not settings.

    :param baseline: the variant that tables compare this one with; itself or "": none.
    :param expected: values that the author measured: metrics by their names in run records, `minutes` of training, and
        the `machine`.
    :param paper: papers' scores, each `{<measure>: score, table: source}`; `table` may be a list, and `note` is
        optional.
    :param note: what a reader must know about the scores; tables show it above them.
    :param show: number of outputs to print per run.
    :param resources: resources of a run, if several run at once.
    :param results: folder of the run records; `runs`: parent folder of the runs' folders.
    """

    kind: str
    description: str = ""
    baseline: str = ""
    expected: Mapping[str, float | str] = {}
    paper: list[Mapping[str, Any]] = []
    note: str = ""
    show: Annotated[int, msgspec.Meta(ge=0)] = 0
    probe: ProbeSettings | None = None
    resources: Resources = Resources()
    results: _Folder = str(RESULTS)
    runs: _Folder = str(RUNS)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One variant of a recipe's file, or a whole file without variants, with overrides applied.

    Its settings are read on first use: tables don't need them if there is no record, and reading them may import
    PyTorch and a user's code.

    :param path: the file.
    :param variant: its name; None if the file has no variants.
    :param parts: the parts of a grid variant's name, one from each mapping; for other variants, the name itself.
    :param written: the settings as they are written, without defaults and unchecked.
    :param overrides: dotted keys and values, only those that change something.
    """

    path: Path
    variant: str | None
    parts: tuple[str, ...]
    task: Task[Any]
    own: OwnFields
    paper: tuple[PaperScore, ...]
    written: Mapping[str, Any]
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """`recipe/variant`."""
        return run_address(self.path.stem, self.variant)

    @property
    def run(self) -> str:
        """The address of its runs, with a hash of any overrides: see `rskip.records.record`."""
        return run_address(self.path.stem, self.variant, self.overrides)

    @property
    def baseline(self) -> str | None:
        """The address of its baseline in tables; None without one."""
        return None if self.own.baseline in ("", self.variant) else run_address(self.path.stem, self.own.baseline)

    @property
    def source(self) -> str:
        """The file and variant, in words."""
        return str(self.path) if self.variant is None else f"{self.path}, variant {self.variant}"

    @cached_property
    def settings(self) -> Any:
        """:raises SettingError: a setting is unknown, missing or wrong. Names the file and the variant."""
        with errors_about(self.source):
            return self.task.read_settings(self.written)

    @cached_property
    def config(self) -> dict[str, Any]:
        """Everything that determines the result, as plain JSON values, including defaults. Imports no user code."""
        with errors_about(self.source):
            return {"kind": self.task.name, **self.task.config(self.written)}

    def record_path(self, seed: int) -> Path:
        """The path of a seed's record, which may not exist yet."""
        return record_path(self.run, seed, Path(self.own.results))

    def check_record(self, record: Record) -> None:
        """Checks that a run record has the same settings. A missing setting is newer, and the run had its default.

        If the recipe's settings can't be read, only those that it gives are compared.

        :raises ValueError: the settings of recipe and record differ.
        """
        try:
            before, now = record.config, self.config
        except SettingError:
            given, then = flat_config(self.written), flat_config(record.config)
            before, now = {key: then[key] for key in given if key in then}, given
        if difference := config_difference(before, now, given=self.written):
            raise ValueError(
                f"{record.path} was made with other settings ({difference}): for another run, give the change with "
                f"--set, or remove {record.path} and {self.own.runs}/{self.run}/{record.seed}"
            )

    def check_records(self, records: Sequence[Record]) -> None:
        """Checks that the variant's run records have its settings, and the same data.

        :raises ValueError: one has others.
        """
        for record in records:
            self.check_record(record)
        check_data(records)


def load_recipe(name: str | os.PathLike[str], *, variant: str | None = None, overrides: Sequence[str] = ()) -> Recipe:
    """Reads and checks one variant, or a file without variants.

    :param name: as for `find_recipe`.
    :param overrides: texts `dotted.key=value`, with values in YAML.
    :raises FileNotFoundError: the file doesn't exist.
    :raises SettingError: a key or value is wrong, the variant doesn't exist, or the name doesn't choose one.
    """
    path, named = find_recipe(name)
    variant = variant or named
    recipes = load_recipes(path, variants=None if variant is None else [variant], overrides=overrides)
    if len(recipes) != 1 or variant != recipes[0].variant:
        listed = ", ".join(str(recipe.variant) for recipe in recipes)
        advice = f"name it, such as {path}/{recipes[0].variant}"
        raise SettingError("", f"has variants ({listed})", expected="one of them", advice=advice, source=str(path))
    return recipes[0]


def load_recipes(
    name: str | os.PathLike[str], *, variants: Sequence[str] | None = None, overrides: Sequence[str] = ()
) -> list[Recipe]:
    """Reads and checks the variants of a file, in its order; see `load_recipe`. A file without variants is one recipe.

    :param variants: names or shell patterns; None: the variant in `name`, or all.
    """
    path, named = find_recipe(name)
    if named is not None and variants is not None:
        raise SettingError("variants", "are given twice", expected=f"either {name} or --variants", source=str(path))
    if named is not None:
        variants = [named]
    recipes = read_recipes(path, variants=variants, overrides=parse_overrides(overrides))
    for recipe in recipes:
        recipe.settings  # noqa: B018  (raises SettingError if they are wrong)
    return recipes


def read_recipes(
    path: Path, *, variants: Sequence[str] | None = None, overrides: Mapping[str, Any] | None = None
) -> list[Recipe]:
    """A file's variants. Their settings are read, and checked, on first use."""
    content = _read_content(path)
    with errors_about(path):
        known = _read_variants(content)
        chosen = list(known) if variants is None else _choose_variants(variants, known)
        common = {key: value for key, value in content.items() if key != "variants"}
        if not known:
            return [_build(path, None, Variant((), common), overrides or {}, known)]
    recipes = []
    for name in chosen:
        with errors_about(f"{path}, variant {name}"):
            variant = Variant(known[name].parts, _merge(common, known[name].changes))
            recipes.append(_build(path, name, variant, overrides or {}, known))
    return recipes


def all_recipes(root: Path = Path()) -> list[Recipe]:
    """The recipes of all files in recipes/."""
    return [recipe for path in sorted((root / FOLDER).glob("*.yaml")) for recipe in read_recipes(path)]


def written_path(path: Path) -> str:
    """A recipe's path as commands write it: that of a file in recipes/ from the project's folder."""
    return f"{FOLDER}/{path.name}" if path.parent.name == FOLDER.name else str(path)


def with_baseline(recipes: Sequence[Recipe], name: str, baseline: str) -> list[Recipe]:
    """The recipes, with another baseline for the variants of the file `name`.yaml.

    :raises SettingError: no such file, or it has no such variant.
    """
    variants = [str(recipe.variant) for recipe in recipes if recipe.path.stem == name and recipe.variant]
    if baseline not in variants:
        expected = f"a variant of {name}{did_you_mean(baseline, variants)}"
        if not variants:
            expected = f"a recipe with variants, which {name} lacks"
        raise SettingError.of_value("baseline", baseline, expected)
    return [
        replace(each, own=msgspec.structs.replace(each.own, baseline=baseline)) if each.path.stem == name else each
        for each in recipes
    ]


def find_recipe(name: str | os.PathLike[str]) -> tuple[Path, str | None]:
    """Finds a recipe's file, and the variant that the name chooses; None means all.

    :param name: the path of a file, such as `recipes/FILE.yaml`, or `recipes/FILE.yaml/VARIANT`; or `FILE` or
        `FILE/VARIANT` for a file in recipes/ of the current folder. VARIANT may be a shell pattern.
    :raises FileNotFoundError: no such file.
    """
    path, variant = Path(name), None
    if path.parent.suffix in _SUFFIXES:
        path, variant = path.parent, path.name
    elif path.suffix not in _SUFFIXES:
        recipe, _, last = str(name).partition("/")
        path, variant = FOLDER / f"{recipe}.yaml", last or None
    if path.is_file():
        return path, variant
    if Path(name).is_file():
        raise FileNotFoundError(f"{name} is not a recipe: expected a file that ends in {' or '.join(_SUFFIXES)}")
    meant = _recipe_meant(Path(name), path)
    if not meant and not FOLDER.is_dir():
        meant = f" in {Path.cwd()}; this project's recipes are in recipes/ of its folder"
    raise FileNotFoundError(
        f"no recipe {name}{meant}: give RECIPE/VARIANT, or the path of a recipe file such as recipes/NAME.yaml"
    )


def _recipe_meant(name: Path, path: Path) -> str:
    """The recipe that an unknown name of the file `path` may mean, in words that follow the name, or ""."""
    file = next((each for each in name.parents if each.suffix in _SUFFIXES or each.parent == FOLDER), path)
    return did_you_mean(file.name, [each.name for each in file.parent.glob("*.yaml")])


def results_folder(run: str) -> Path:
    """The folder of a run's records: as in its recipe in recipes/, otherwise results/."""
    for stem in (run.split("/")[0], without_hash(run)):
        if "/" not in stem and (path := FOLDER / f"{stem}.yaml").is_file():
            return Path(str(_read_content(path).get("results") or RESULTS))
    return RESULTS


def _read_content(path: Path) -> dict[str, Any]:
    """The file's keys and values."""
    return convert(read_yaml(path), _Content, source=str(path))


def _build(
    path: Path, name: str | None, variant: Variant, overrides: Mapping[str, Any], known: Mapping[str, Any]
) -> Recipe:
    task = find_task(variant.changes.get("kind"), setting="kind")
    own = field_names(OwnFields)
    content, effective = copy.deepcopy(variant.changes), {}
    for key, value in overrides.items():
        section = key.split(".")[0]
        if section in ("kind", "results", "runs", "variants"):
            raise SettingError(section, "can't be overridden", advice="write another recipe")
        before = set_dotted(content, key, value)
        if section not in own and before != value:
            effective[key] = value
    fields = _own_fields(content, known)
    if fields.probe is not None and not task.probed:
        probed = " or ".join(each.name for each in tasks().values() if each.probed)
        raise SettingError("probe", f"is not supported for {task.name}", expected=f"a recipe of kind {probed}")
    return Recipe(
        path=path,
        variant=name,
        parts=variant.parts,
        task=task,
        own=fields,
        paper=tuple(_paper_score(each, task, f"paper[{number}]") for number, each in enumerate(fields.paper)),
        written={key: value for key, value in content.items() if key not in own and value is not None},
        overrides=effective,
    )


def _own_fields(content: Mapping[str, Any], variants: Mapping[str, Any]) -> OwnFields:
    """:raises SettingError: a field is wrong, or the baseline is not a variant of the file."""
    own = convert({key: content[key] for key in field_names(OwnFields) if content.get(key) is not None}, OwnFields)
    if own.baseline and own.baseline not in variants:
        expected = f"a variant of the file{did_you_mean(own.baseline, variants)}"
        raise SettingError.of_value("baseline", own.baseline, expected)
    return own


def _paper_score(content: Mapping[str, Any], task: Task[Any], name: str) -> PaperScore:
    measures: list[Any] = [(measure, float | None, None) for measure in task.measures]
    text: Any = Annotated[str, msgspec.Meta(min_length=1)]
    fields: list[Any] = [
        ("table", text | Annotated[list[text], msgspec.Meta(min_length=1)]),
        ("note", str, ""),
        *measures,
    ]
    read: Any = convert(content, msgspec.defstruct("paper", fields, kw_only=True), name=name)
    scores = {measure: getattr(read, measure) for measure in task.measures if getattr(read, measure) is not None}
    if len(scores) != 1:
        raise SettingError(name, f"has {len(scores)} scores", expected=f"one of {' or '.join(task.measures)}")
    ((key, figure),) = scores.items()
    return PaperScore(
        tables=(read.table,) if isinstance(read.table, str) else tuple(read.table),
        key=key,
        measure=task.measures[key],
        figure=figure,
        note=read.note,
    )


class Variant(NamedTuple):
    """The changes of a variant, and the parts of its name, one from each mapping."""

    parts: tuple[str, ...]
    changes: dict[str, Any]


def _read_variants(content: Mapping[str, Any]) -> dict[str, Variant]:
    """The variants in a recipe's content by name, in the order of the file; empty if it has none.

    In a grid the first mapping varies slowest; later changes win.

    :raises SettingError: an invalid name or change.
    """
    if "variants" not in content:
        return {}
    given = content["variants"]
    if isinstance(given, (list, dict)) and not (given and all(given)):
        raise SettingError("variants", "is empty", expected="one or more variants")
    is_grid = isinstance(given, list)
    read: Any = convert(given, list[_Named] if is_grid else _Named, name="variants")
    grid: list[dict[str, Any]] = read if is_grid else [read]
    for number, changes in enumerate(grid):
        for name, change in changes.items():
            for key in change or {}:
                if key in _COMMON:
                    where = f"variants[{number}]" if is_grid else "variants"
                    raise SettingError(f"{where}.{name}.{key}", "can't be changed by a variant")
    variants: dict[str, Variant] = {}
    for parts in itertools.product(*grid):
        name = "_".join(parts)
        if name in variants:
            raise SettingError("variants", f"has two combinations with the name {name}", advice="rename a part of one")
        variants[name] = Variant(parts, reduce(_merge, (grid[at][part] or {} for at, part in enumerate(parts))))
    return variants


def _choose_variants(patterns: Sequence[str], known: Mapping[str, Any]) -> list[str]:
    """The variants that match a name or shell pattern, in the file's order.

    :raises SettingError: a pattern matches none.
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in known):
            near, listed = did_you_mean(pattern, known), ", ".join(known) or "none, the file is one run"
            if near and len(known) > _LISTED:
                listed = f"{len(known)}, which `rskip run RECIPE` lists"
            raise SettingError("", f"no variant {pattern}{near}; its variants: {listed}")
    return [name for name in known if any(fnmatchcase(name, pattern) for pattern in patterns)]


def _merge(common: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merges the changes of a variant into the common content, also within nested mappings."""
    merged = copy.deepcopy(dict(common))
    for key, value in changes.items():
        before = merged.get(key)
        merged[key] = _merge(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return merged
