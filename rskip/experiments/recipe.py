"""Recipes: one YAML file says everything that the results of a study's runs depend on.

A recipe has fields of its own (`kind`, `description`, `baseline`, `expected`, `paper`, `show`, `probe`, `resources`,
`rows`) and the settings of its task (`rskip.tasks`). `rows` make a file a sweep: a row is a name and what it changes,
in any field but `kind`; of a list of such mappings every combination is a row. The run of a row is named FILE_ROW.
Only the settings decide what a run computes; they are its *config*. Overrides (`--set train.lr=0.003`) change settings,
so they name another run.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import itertools
import json
import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, cached_property, reduce
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from rskip.settings.check import convert, field_names
from rskip.settings.errors import SettingError, did_you_mean, joined
from rskip.settings.text import parse_overrides, read_yaml, set_dotted
from rskip.tasks import Task, find_task, tasks
from rskip.tasks.run import ProbeSettings

FOLDER = Path("recipes")
_ROW_NAME = "^[a-z0-9][a-z0-9_.-]*$"


class PaperFigure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that a paper published for what a row runs, by one of its task's measures. Never a result of ours.

    :param tables: where, such as "rSkip Table 2".
    :param key: the measure's in recipes.
    :param measure: its name.
    :param note: what sets it apart from the table's other figure for the same row.
    """

    tables: tuple[str, ...]
    key: str
    measure: str
    figure: float
    note: str = ""

    @property
    def table(self) -> str:
        """Where, in words."""
        return ", ".join([*self.tables, *([self.note] if self.note else [])])


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """What one of many runs takes of a machine (`rskip run --ray`).

    :param gpus: part of a GPU that it takes where it trains on one.
    :param cores: CPU cores, and threads; None: its share of the machine.
    """

    gpus: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    cores: Annotated[int, msgspec.Meta(ge=1)] | None = None


class OwnFields(msgspec.Struct, frozen=True, kw_only=True):
    """What a recipe says beside its settings.

    :param baseline: the row that tables compare a row with; itself or "" stands for none.
    :param expected: what its author saw: metrics by their names in records, `minutes` of training, on which `machine`.
    :param paper: papers' figures, each `{<measure>: figure, table: where}`; `table` may be a list, and `note` say more.
    :param show: how many outputs are printed of a run.
    :param probe: how often the training is looked at; None: never.
    :param resources: what a run takes of a machine, where many are run at once.
    """

    kind: str
    description: str = ""
    baseline: str = ""
    expected: Mapping[str, float | str] = {}
    paper: list[Mapping[str, Any]] = []
    show: Annotated[int, msgspec.Meta(ge=0)] = 0
    probe: ProbeSettings | None = None
    resources: Resources = Resources()


@dataclass(frozen=True, kw_only=True)
class RowOutline:
    """What tables need of a row, read without its task's settings, which may import PyTorch and a user's code.

    :param parts: the names that a grid's row is put together from, one of each mapping; of another row its own.
    :param written: the settings as they are written, without defaults and unchecked.
    """

    path: Path
    row: str | None
    parts: tuple[str, ...]
    task: Task[Any]
    own: OwnFields
    paper: tuple[PaperFigure, ...]
    written: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The file's name without `.yaml`, and the row's; the run's, too."""
        return _name(self.path, self.row)

    @property
    def baseline(self) -> str | None:
        """The name of the run that tables compare this one with."""
        return None if self.own.baseline in ("", self.row) else _name(self.path, self.own.baseline)

    @cached_property
    def config(self) -> Mapping[str, Any] | None:
        """The config that this run's record would have, with defaults; None if the settings are invalid.

        Imports the task's settings, but no user code.
        """
        try:
            return {"kind": self.task.name, **self.task.row_config(self.written)}
        except SettingError:
            return None


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One row of a recipe's file, or the whole of a file without rows, after its overrides were applied.

    :param path: the file.
    :param row: None of a file without rows.
    :param overrides: dotted key to value, only those that change something.
    :param written: the settings as they are written, without defaults.
    """

    path: Path
    row: str | None
    task: Task[Any]
    settings: Any
    own: OwnFields
    paper: tuple[PaperFigure, ...] = ()
    overrides: Mapping[str, Any] = field(default_factory=dict)
    written: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The file's name without `.yaml`, and the row's."""
        return _name(self.path, self.row)

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
        return {"kind": self.task.name, **self.task.config(self.settings)}


def load_recipe(path: str | os.PathLike[str], *, overrides: Sequence[str] = ()) -> Recipe:
    """Reads and checks one run's recipe: a file without rows, or a row, `recipes/FILE_ROW.yaml`.

    :param overrides: texts `dotted.key=value`, the value in YAML.
    :raises FileNotFoundError: no such file and no such row.
    :raises SettingError: one line that names the file, the key, and the nearest known key; or the file has rows.
    """
    recipes = load_recipes(path, overrides=overrides)
    if len(recipes) != 1 or names_no_row(path, recipes):
        listed = ", ".join(str(recipe.row) for recipe in recipes)
        raise SettingError("", f"has rows ({listed})", expected="one of them", advice="name it", source=str(path))
    return recipes[0]


def load_recipes(
    path: str | os.PathLike[str], *, rows: Sequence[str] | None = None, overrides: Sequence[str] = ()
) -> list[Recipe]:
    """Reads and checks a file's rows, in its order; a file without rows is one recipe.

    `recipes/FILE_ROW.yaml` stands for the row ROW of recipes/FILE.yaml, since runs are named so.

    :param rows: which, by name or shell pattern; None: all.
    :param overrides: as `load_recipe`, for each of them.
    :raises FileNotFoundError: as `load_recipe`.
    :raises SettingError: as `load_recipe`, or no such row.
    """
    path, named = _find(Path(path))
    changes = parse_overrides(overrides)
    content = _read_content(path)
    try:
        known = _read_rows(content)
        _check_names(path, known)
        if named is not None:
            rows = [*(rows or []), named]
        chosen = list(known) if rows is None else _choose(rows, known)
        common = {key: value for key, value in content.items() if key != "rows"}
        if not known:
            return [_build(path, None, common, changes, known)]
        recipes = []
        for row in chosen:
            try:
                recipes.append(_build(path, row, merge(common, known[row].changes), changes, known))
            except SettingError as error:
                raise error.within(source=f"{path}, row {row}") from None
        return recipes
    except SettingError as error:
        raise (error if error.source else error.within(source=str(path))) from None


def outline_rows(path: Path) -> list[RowOutline]:
    """A file's rows, in its order, as tables need them; a file without rows is one.

    :raises SettingError: as `load_recipe` where the recipe's own fields are wrong; the settings are not looked at.
    """
    content = _read_content(path)
    try:
        rows = _read_rows(content)
        _check_names(path, rows)
        common = {key: value for key, value in content.items() if key != "rows"}
        outlines = []
        for row in rows or [None]:
            parts, changes = ((), {}) if row is None else rows[row]
            merged = merge(common, changes)
            task = find_task(merged.get("kind"), setting="kind")
            own = _own_fields(merged, rows)
            written = {key: value for key, value in merged.items() if key not in field_names(OwnFields)}
            paper = _paper_figures(own, task)
            outlines.append(
                RowOutline(path=path, row=row, parts=parts, task=task, own=own, paper=paper, written=written)
            )
        return outlines
    except SettingError as error:
        raise error.within(source=str(path)) from None


def names_no_row(path: str | os.PathLike[str], recipes: Sequence[Recipe]) -> bool:
    """Whether the path that these recipes were loaded from is that of a file with rows, not of one row."""
    return recipes[0].row is not None and Path(path) == recipes[0].path


def find_recipe(name: str) -> Path:
    """The path that stands for a run's recipe, by the name that its record has, in recipes/ of the current folder."""
    return FOLDER / f"{name}.yaml"


def merge(common: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """The common content with a row's keys set, level by level."""
    merged = copy.deepcopy(dict(common))
    for key, value in row.items():
        before = merged.get(key)
        merged[key] = merge(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return merged


def _name(path: Path, row: str | None) -> str:
    return path.stem if row is None else f"{path.stem}_{row}"


def _read_content(path: Path) -> dict[str, Any]:
    content = read_yaml(path)
    if not isinstance(content, dict):
        kind = "nothing" if content is None else f"a {type(content).__name__}"
        raise SettingError("", f"it holds {kind}", expected="keys and values of a recipe", source=str(path))
    return content


def _find(path: Path) -> tuple[Path, str | None]:
    """The file, and the row that the path names where there is no such file."""
    if path.is_file():
        return path, None
    if path.suffix == ".yaml" and (found := list(_splits(path))):
        return next(((file, row) for file, row in found if row in _runs_of(file)), found[0])
    recipes = [each.name for each in path.parent.glob("*.yaml")] if path.parent.is_dir() else []
    near = did_you_mean(path.name, recipes)
    raise FileNotFoundError(f"no recipe {path}{near}: give the path of a recipe file such as recipes/NAME.yaml")


def _splits(path: Path) -> Iterator[tuple[Path, str]]:
    """Pairs of an existing file and its variant whose run would have this name, the longest file name first."""
    parts = path.stem.split("_")
    for count in range(len(parts) - 1, 0, -1):
        file = path.with_name("_".join(parts[:count]) + ".yaml")
        if file.is_file():
            yield file, "_".join(parts[count:])


def _runs_of(file: Path) -> Collection[str | None]:
    """A file's variants; (None,) if the file is a single run; empty if it is invalid, which reading it reports."""
    with contextlib.suppress(SettingError):
        return _read_rows(_read_content(file)).keys() or (None,)
    return ()


def _check_names(path: Path, rows: Collection[str]) -> None:
    """Compares the names of a file's runs with those of other files.

    :raises SettingError: a run has the name of another file's run, so both would share a folder and records.
    """
    runs_of = cache(_runs_of)
    for row in rows or (None,):
        name = _name(path, row)
        whole = path.with_name(f"{name}.yaml")
        for file, other in [*_splits(whole), *([(whole, None)] if whole.is_file() else [])]:
            if file != path and other in runs_of(file):
                which = file.name if other is None else f"row {other} of {file.name}"
                raise SettingError("", f"its run {name} has the name of {which}", advice="rename one of them")


class _Row(NamedTuple):
    parts: tuple[str, ...]
    changes: dict[str, Any]


def _read_rows(content: Mapping[str, Any]) -> dict[str, _Row]:
    if "rows" not in content:
        return {}
    name = Annotated[str, msgspec.Meta(pattern=_ROW_NAME, extra={"expected": "a row's name, as 2rskip_ln"})]
    named = dict[name, dict[str, Any] | None]
    if isinstance(content["rows"], list):
        return _combinations(convert(content["rows"], list[named], name="rows"))
    changes: dict[str, Any] = convert(content["rows"], named, name="rows")
    if not changes:
        raise SettingError("rows", "is empty", expected="a row or more, or no `rows`")
    _check_changes("rows", changes)
    return {row: _Row((row,), change or {}) for row, change in changes.items()}


def _combinations(grid: list[dict[str, Any]]) -> dict[str, _Row]:
    """A row for every choice of one of each mapping: the first mapping varies slowest, and a later change wins."""
    if not grid or not all(grid):
        raise SettingError("rows" if not grid else f"rows[{grid.index({})}]", "is empty", expected="a row or more")
    for number, changes in enumerate(grid):
        _check_changes(f"rows[{number}]", changes)
    rows: dict[str, _Row] = {}
    for parts in itertools.product(*grid):
        row = "_".join(parts)
        if row in rows:
            raise SettingError("rows", f"has two combinations of the name {row}", advice="rename a part of one")
        rows[row] = _Row(parts, reduce(merge, (changes[part] or {} for part, changes in zip(parts, grid, strict=True))))
    return rows


def _check_changes(where: str, rows: Mapping[str, Any]) -> None:
    for row, changes in rows.items():
        for key in ("kind", "rows"):
            if key in (changes or {}):
                raise SettingError(f"{where}.{row}.{key}", "can't be changed by a row")


def _choose(patterns: Sequence[str], known: Mapping[str, Any]) -> list[str]:
    for pattern in patterns:
        if not any(fnmatchcase(row, pattern) for row in known):
            rows = ", ".join(known) or "none: the file is one run"
            raise SettingError("", f"no row {pattern}{did_you_mean(pattern, known)}; its rows: {rows}")
    return [row for row in known if any(fnmatchcase(row, pattern) for pattern in patterns)]


def _build(
    path: Path,
    row: str | None,
    content: dict[str, Any],
    overrides: Mapping[str, Any],
    rows: Mapping[str, Any],
) -> Recipe:
    task = find_task(content.get("kind"), setting="kind")
    own = field_names(OwnFields)
    settings = field_names(task.settings)
    effective = {}
    changed = copy.deepcopy(content)
    for key, value in overrides.items():
        section = key.split(".")[0]
        if section == "kind":
            raise SettingError("kind", "can't be overridden", advice="write another recipe")
        before = set_dotted(changed, key, value)
        if section in settings and before != value:
            effective[key] = value
    for key in changed:
        if key not in (*own, *settings):
            raise SettingError.of_unknown_key("", key, [*own, "rows", *settings])
    fields = _own_fields(changed, rows)
    if fields.probe is not None and not task.probed:
        probed = " and ".join(each.name for each in tasks().values() if each.probed)
        raise SettingError("probe", f"can't be given to {task.name}", expected=f"it with {probed} alone")
    written = {key: changed[key] for key in settings if changed.get(key) is not None}
    return Recipe(
        path=path,
        row=row,
        task=task,
        settings=task.read_settings(written),
        own=fields,
        paper=_paper_figures(fields, task),
        overrides=effective,
        written=written,
    )


def _own_fields(content: Mapping[str, Any], rows: Mapping[str, Any]) -> OwnFields:
    """:raises SettingError: a field is wrong, or the baseline is none of the file's rows."""
    own = convert({key: content[key] for key in field_names(OwnFields) if content.get(key) is not None}, OwnFields)
    for key, value in own.expected.items():
        if isinstance(value, str) != (key == "machine"):
            kind = "text" if key == "machine" else "a number"
            raise SettingError.of_value(joined("expected", key), value, kind)
    if own.baseline and own.baseline not in rows:
        expected = f"a row of the file{did_you_mean(own.baseline, rows)}"
        raise SettingError.of_value("baseline", own.baseline, expected)
    return own


def _paper_figures(own: OwnFields, task: Task[Any]) -> tuple[PaperFigure, ...]:
    return tuple(_paper_figure(each, task, f"paper[{number}]") for number, each in enumerate(own.paper))


def _paper_figure(content: Mapping[str, Any], task: Task[Any], name: str) -> PaperFigure:
    for key in content:
        if key not in (*task.measures, "table", "note"):
            raise SettingError.of_unknown_key(name, key, [*task.measures, "table", "note"])
    figures = [(measure, content[measure]) for measure in task.measures if measure in content]
    tables = content.get("table")
    tables = tables if isinstance(tables, list) else [tables]
    texts = all(isinstance(text, str) and text for text in (*tables, content.get("note", "-")))
    numbers = [figure for _, figure in figures if type(figure) in (int, float) and math.isfinite(figure)]
    if not len(figures) == len(numbers) == 1 or not tables or not texts:
        measures = " or ".join(f"{{{measure}: 6.02, table: rSkip Table 1}}" for measure in task.measures)
        raise SettingError.of_value(name, dict(content), measures)
    key, figure = figures[0]
    return PaperFigure(
        tables=tuple(tables),
        key=key,
        measure=task.measures[key],
        figure=float(figure),
        note=content.get("note", ""),
    )
