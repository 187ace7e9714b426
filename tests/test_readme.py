"""What the README and the docs tell people to type is what rskip and fairseq-train take; links and examples work."""

from __future__ import annotations

import pkgutil
import re
import shlex
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from rskip.cli.main import build_parser
from rskip.experiments.recipe import load_recipe, load_recipes
from rskip.formulas import registry
from rskip.nn import check_calls
from rskip.nn.residuals import Residual
from rskip.settings.errors import SettingError

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]


def commands(path: Path, program: str) -> list[list[str]]:
    """Every command of the program in the document's indented lines, continued lines joined."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    found = [re.split(r" (?:#|>|&&) ", line)[0] for line in lines if line.startswith(program + " ")]
    return [shlex.split(line)[1:] for line in found if "..." not in line]


def test_rskip_commands_parse(capsys):
    found = [(path.name, words) for path in DOCUMENTS for words in commands(path, "rskip")]
    assert len(found) >= 5
    wrong = []
    for document, words in found:
        try:
            build_parser(words).parse_args(words)
        except SystemExit:
            wrong.append(f"{document}: rskip {shlex.join(words)}: {capsys.readouterr().err.splitlines()[-1]}")
    assert wrong == []


def test_training_command_is_the_recipes():
    (words,) = commands(ROOT / "docs/fairseq.md", "fairseq-train")
    recipe = load_recipe(ROOT / "recipes/multi30k_en_de.yaml", variant="2rskip_ln").settings.train
    given = {}
    for word, following in zip(words[1:], [*words[2:], "--"], strict=True):
        if word.startswith("--"):
            given[word[2:]] = True if following.startswith("--") else following
    for name in ("user-dir", "save-dir", "cpu"):
        given.pop(name)
    expected = {name: value for name, value in recipe.items() if value not in (0, 0.0)}  # fairseq's defaults
    del expected["bf16"]  # which `rskip run` takes where the processor multiplies it
    assert {k: v if v is True else eval_number(v) for k, v in given.items()} == {
        k: v if v is True else eval_number(v) for k, v in expected.items()
    }


def eval_number(value: object) -> object:
    try:
        return float(value)  # type: ignore[arg-type]
    except ValueError:
        return value


def test_nothing_is_left_to_fill_in():
    for document in DOCUMENTS:
        assert not re.search(r"<!-- [A-Z-]+ -->", document.read_text(encoding="utf-8")), document.name


def test_paths_exist(monkeypatch):
    # what a recipe's user-dir registers is known in this test alone, and registered anew
    monkeypatch.setattr(registry, "_families", dict(registry._families))
    monkeypatch.delitem(sys.modules, "sas_variants", raising=False)
    named = set()
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#]+)\)", re.sub("^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document.name}: {target}"
        named.update(re.findall(r"(?<![\w/])(?:recipes|checkpoints|benchmarks|scripts)/[\w/.-]+\.\w+", text))
    for target in sorted(named):
        if target.startswith("recipes/"):
            try:
                assert load_recipes(ROOT / target), target  # a file, or a variant of one
            except SettingError as error:  # its data is a folder that the user makes first
                assert "data can't be used" in str(error), target
        else:
            assert (ROOT / target).exists(), target


def test_files_that_the_architecture_names_exist():
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    files = [path.relative_to(ROOT) for folder in ("rskip", "tests") for path in (ROOT / folder).rglob("*.py")]
    named = set(re.findall(r"`([\w/]+\.py)`", text))
    assert len(named) > 30
    assert [name for name in sorted(named) if not any(file.match(name) for file in files)] == []


def anchors(path: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub and the site name them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)", text, re.MULTILINE)
    slugs = [re.sub(r"\]\([^)]*\)|[^\w\s-]", "", each).strip().lower().replace(" ", "-") for each in headings]
    return {f"{slug}-{slugs[:i].count(slug)}" if slug in slugs[:i] else slug for i, slug in enumerate(slugs)}


def test_anchors_exist():
    wrong = []
    for document in DOCUMENTS:
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", document.read_text(encoding="utf-8")):
            path = document.parent / target if target else document
            if path.suffix == ".md" and anchor not in anchors(path):
                wrong.append(f"{document.name}: {target}#{anchor}")
    assert wrong == []


def test_every_page_is_in_the_navigation_once_or_says_that_it_is_an_orphan():
    lists = re.findall(r"```{toctree}.*?\n\n(.*?)```", (ROOT / "docs/index.md").read_text(encoding="utf-8"), re.DOTALL)
    listed = [re.sub(r".*<|>", "", line) for lines in lists for line in lines.splitlines()]
    pages = [f"/{path.stem}" if path.parent == ROOT else path.stem for path in DOCUMENTS if path.name != "index.md"]
    orphans = [path.stem for path in DOCUMENTS if path.read_text(encoding="utf-8").startswith("---\norphan: true\n")]
    assert sorted(listed + orphans) == sorted(pages)


def test_names_of_the_api_exist():
    text = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`(rskip(?:\.\w+)+)`", text))
    assert len(names) > 30
    for name in names:
        try:
            pkgutil.resolve_name(name)
        except ImportError as error:  # of an extra that is not installed
            assert "rskip" not in (error.name or "rskip"), name


def test_numbers_of_the_results_stand_on_the_pages_they_link():
    wrong = []
    for line in (ROOT / "docs/results.md").read_text(encoding="utf-8").splitlines():
        if found := re.search(r"^\|.*?\]\((\w+\.md)", line):
            page = re.findall(r"\d+\.\d+", (ROOT / "docs" / found[1]).read_text(encoding="utf-8"))
            wrong += [f"{found[1]}: {number}" for number in set(re.findall(r"\d+\.\d+", line)) - set(page)]
    assert wrong == []


def test_python_examples_run(monkeypatch):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    adapt, load = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    scope = {"__name__": "readme"}
    pytest.importorskip("transformers")
    exec(adapt, scope)
    assert scope["rskip"].nn.adaptation(scope["model"]).spec == "2rskip+ln"

    monkeypatch.chdir(ROOT)
    exec(load, scope)
    (expected,) = re.findall(r"translator\(.*?\)  # '(.*)'", load)
    assert scope["translator"]("Two dogs are playing in the snow.") == expected == "Zwei Hunde spielen im Schnee."


class Block(nn.Module):
    """Branches of the README's GPT."""

    def __init__(self, features):
        super().__init__()
        self.attention, self.ffn = nn.Linear(features, features), nn.Linear(features, features)


def of_the_readme(sign, connection="mhc"):
    """The GPT of the README's diff, before (-) or after (+), with the same weights."""
    (diff,) = re.findall(r"```diff\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    code = "".join(f"{line[1:]}\n" for line in diff.splitlines() if line[0] in (" ", sign))
    scope = {"nn": nn, "Block": Block}
    exec(code.replace("mhc", connection), scope)
    torch.manual_seed(1)
    return scope["GPT"](16, 3)


def test_the_readmes_diff_changes_nothing_but_the_connection():
    x = torch.randn(2, 5, 16)
    torch.testing.assert_close(of_the_readme("+", "prenorm+ln")(x), of_the_readme("-")(x))
    check_calls(of_the_readme("+"), x)


def test_the_readmes_model_has_the_same_gradients_with_checkpoints(monkeypatch):
    model, x = of_the_readme("+"), torch.randn(2, 5, 16)

    def gradients():
        return torch.autograd.grad(model(x)[..., 0].sum(), model.parameters())

    expected, call = gradients(), Residual.__call__
    monkeypatch.setattr(Residual, "__call__", lambda *given: checkpoint(call, *given, use_reentrant=False))
    for found, gradient in zip(gradients(), expected, strict=True):
        torch.testing.assert_close(found, gradient)


def test_readme_begins_with_commands_that_set_everything_up_and_none_is_cut_off():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    install = text.partition("\n## Install\n")[2].partition("\n## ")[0]
    (first, *_) = re.findall(r"(?:^    .*\n)+", install, re.MULTILINE)
    assert re.findall(r"^    (make \w+|git clone)", first, re.MULTILINE) == ["git clone", "make demo", "make test"]
    code = re.findall(r"^    .*|```.*?```", text, re.MULTILINE | re.DOTALL)
    assert not [each for each in code if "..." in each]


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 127
