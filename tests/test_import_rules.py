"""Who may import whom (docs/architecture.md), held against the code's imports."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

FLOORS = [
    {"settings", "extras", "kernel_forms", "__version__"},
    {"machine", "formulas", "cpu/library", "cpu/structures", "cpu/threads"},
    {"connections", "files"},
    {"transformer", "nn"},
    {"cpu"},
    {"checkpoint", "generation", "text", "corpora", "records"},
    {"tasks"},
    {"translation", "vision", "captioning", "language_modeling"},
    {"zoo", "analysis"},
    {"experiments", "serving"},
    {"comparison"},
    {"fairseq_plugin", "captioning/fairseq", "language_modeling/fairseq", "cli", "__main__"},
]
_TASKS = ("translation", "vision", "captioning", "captioning/fairseq", "language_modeling", "language_modeling/fairseq")
FLOOR = {name: floor for floor, names in enumerate(FLOORS) for name in names}
ROOT = Path(__file__).resolve().parent.parent
# what `pip install` brings without an extra, and what else a package may import at the top without `with extra(...)`
OWN = {"rskip", "fairseq_compat", "study"}
BROUGHT = {"torch", "triton", "numpy", "safetensors", "msgspec", "filelock", *OWN, *sys.stdlib_module_names}
TORCH_ALONE = ("formulas", "connections", "nn", "transformer")
FAIRSEQ = {"fairseq", "fairseq_cli"}
# packages and modules that are imported without torch, which may be missing and takes a second
WITHOUT_TORCH = (
    "settings", "extras", "formulas", "files", "machine", "text", "corpora", "records", "zoo", "cli", "translation",
    "checkpoint.arrays",
    "checkpoint.config_file", "checkpoint.translation", "checkpoint.hugging_face",
    "generation.hypothesis", "generation.options", "transformer.config",
    "translation.description", "translation.files", "translation.generated", "translation.jobs",
    "translation.metrics", "translation.model_files", "translation.terminal",
    "translation.translator", "translation.workers", "captioning.preparation", "language_modeling.preparation",
)  # fmt: skip
# the work of commands that need torch: the command itself is imported without, for its help
WITH_TORCH = {
    "rskip.cli._caption", "rskip.cli._compare", "rskip.cli._lm", "rskip.cli._looped",
    "rskip.cli._vision", "rskip.cli.generate", "rskip.cli.train",
}  # fmt: skip
OF_FAIRSEQ = ("fairseq_plugin", "captioning/fairseq", "language_modeling/fairseq")


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Every statement within a node; their expressions, which hold no statements, are left out."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            yield each
            yield from statements(each)


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Every module that the file imports, and whether it does so at the top level; not in a block there, such as
    `with extra(...)`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in statements(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{path} has a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from ((name, node in tree.body) for name in names)


def package_of(parts: tuple[str, ...]) -> str:
    """The package that a module belongs to: a folder of rskip/, or one inside it that has a floor of its own."""
    inner = "/".join(parts[:2])
    return inner if inner in FLOOR else parts[0]


def broken_rules(path: Path) -> Iterator[str]:
    """What the file imports and may not."""
    package = package_of(path.relative_to(ROOT / "rskip").with_suffix("").parts)
    for name, top_level in imports(path):
        first, *rest = name.split(".")
        if first == "rskip" and rest and FLOOR[package_of(tuple(rest))] > FLOOR[package]:
            yield f"{name}, which stands above it"
        if package in TORCH_ALONE and first not in {"torch", "triton", "rskip", *sys.stdlib_module_names}:
            yield f"{name}, and {package} stands on torch alone"
        elif top_level and first not in (BROUGHT | FAIRSEQ if package in OF_FAIRSEQ else BROUGHT):
            yield f"{name} at its top, which an extra brings: import it in `with extra(...)`"
        if first == "study":
            yield f"{name}, which is not part of the product"
        if first in ("fairseq", "fairseq_cli") and package not in OF_FAIRSEQ:
            yield f"{name}, which the packages of fairseq alone may"
        if first == "rskip" and rest and package in _TASKS and rest[0] in {*_TASKS} - {package.split("/")[0]}:
            yield f"{name}, another task's: share it in tasks/ or below"


def test_packages_import_only_from_their_floor_or_below():
    modules = sorted(path for path in (ROOT / "rskip").rglob("*.py") if path != ROOT / "rskip" / "__init__.py")
    assert len(modules) > 100
    assert [f"{path.relative_to(ROOT)} imports {broken}" for path in modules for broken in broken_rules(path)] == []


def test_no_files_import_each_other_in_a_circle():
    paths = (path for top in ("rskip", "fairseq_compat", "study", "benchmarks") for path in (ROOT / top).rglob("*.py"))
    named = {path.relative_to(ROOT).with_suffix("").as_posix().replace("/", "."): path for path in paths}
    files = {name.removesuffix(".__init__").removeprefix("benchmarks."): path for name, path in named.items()}
    graph = {
        name: {
            module
            for imported, top_level in imports(path)
            for module in (imported if imported in files else imported.rpartition(".")[0],)
            if top_level and module in files and module != name
        }
        for name, path in files.items()
    }
    TopologicalSorter(graph).prepare()  # CycleError names the files


def test_fairseq_compat_knows_nothing_of_rskip():
    modules = sorted((ROOT / "fairseq_compat").rglob("*.py"))
    assert len(modules) > 10
    assert [path for path in modules for name, _ in imports(path) if name.split(".")[0] == "rskip"] == []


def test_what_translates_without_torch_imports_none(tmp_path):
    code = f"""
import importlib, pkgutil, sys

class Refused:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, Refused)
for name in sys.argv[1:]:
    module = importlib.import_module(f"rskip.{{name}}")
    if name not in ("translation", "checkpoint.hugging_face"):
        for each in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{{module.__name__}}."):
            if each.name not in {WITH_TORCH}:
                importlib.import_module(each.name)
import rskip
for missing in (lambda: rskip.nn, lambda: importlib.import_module("rskip.connections"),
                lambda: importlib.import_module("rskip.generation").beam_search):
    try:
        missing()
    except ValueError as error:
        print(error)
"""
    process = subprocess.run([sys.executable, "-c", code, *WITHOUT_TORCH], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    asked = ("rskip.nn", "rskip.connections", "rskip.generation.beam_search")
    told = "".join(rf"{each} needs torch: install the extra torch with pip install .*\n" for each in asked)
    assert re.fullmatch(told, process.stdout), process.stdout


@pytest.mark.parametrize(
    ("path", "line", "rule"),
    [
        ("experiments/a.py", "from study.costs import read_costs", "not part of the product"),
        ("connections/a.py", "import numpy", "stands on torch alone"),
        ("transformer/a.py", "from rskip.text import TextPipeline", "stands above it"),
        ("transformer/a.py", "def f():\n    from rskip.cpu import native_library", "stands above it"),
        ("text/a.py", "def f():\n    import rskip.cli.main", "stands above it"),
        ("zoo/a.py", "def f():\n    from fairseq_cli import train", "which the packages of"),
        ("vision/a.py", "import torchvision.ops", "at its top"),
        ("fairseq_plugin/a.py", "import numpy, sacrebleu", "sacrebleu at its top"),
        ("captioning/a.py", "from rskip.translation.recipe import USER_DIR", "another task's"),
    ],
)
def test_a_broken_rule_is_told(path, line, rule, tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    module = tmp_path / "rskip" / path
    module.parent.mkdir(parents=True)
    module.write_text("import torch\n" + line + "\n")
    (told,) = broken_rules(module)
    assert rule in told


def test_what_starts_at_once_imports_nothing_heavy(tmp_path):
    """`import rskip`, commands' help and the list of models; `rskip` and its help import no command and no YAML.

    A translation on a CPU imports neither PyTorch nor what scores, draws, or belongs to another kind of model.
    """
    (tmp_path / "one.txt").write_text("A man sleeps.\n")
    heavy = ["torch", "numpy", "torchvision", "fairseq", "sacrebleu", "sacremoses", "matplotlib"]
    code = f"""
import sys, runpy, rskip
assert not sys.modules.keys() & {{*{heavy}, "msgspec", "yaml", "argparse"}}, "import rskip"
helps = [[*name.split(), "--help"] for name in ("vision train", "analyse", "translate")]
for argv in ([], ["--help"], ["transalte"], ["zoo", "list"], *helps):
    sys.argv = ["rskip", *argv]
    try:
        runpy.run_module("rskip", run_name="__main__")
    except SystemExit as stop:
        assert stop.code == (2 if argv == ["transalte"] else 0)
    if len(argv) < 2:
        commands = {{name for name in sys.modules if name.startswith("rskip.cli.")}}
        assert commands == {{"rskip.cli.main", "rskip.cli._streams"}}, argv
    allowed = {{"msgspec", "yaml"}} if len(argv) > 1 else set()
    assert not sys.modules.keys() & {{*{heavy}, "msgspec", "yaml"}} - allowed, argv
model = {str(ROOT / "checkpoints" / "multi30k_en_de/2rskip_ln")!r}
sys.argv = ["rskip", "translate", "--quiet", "--model", model, {str(tmp_path / "one.txt")!r}]
try:
    runpy.run_module("rskip", run_name="__main__")
except SystemExit as stop:
    assert not stop.code
others = {{"torch", "onnx", "onnxruntime", "ctranslate2", "sentencepiece"}}
others |= {{"yaml", "PIL", "torchvision", "fairseq", "sacrebleu", "matplotlib", "rskip.captioning.captioner"}}
assert not sys.modules.keys() & others, sys.modules.keys() & others
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("usage: rskip") == 5 and "sacreBLEU" in process.stdout
    assert process.stdout.endswith("\nEin Mann schläft.\n")


@pytest.mark.parametrize("order", ["import rskip, fairseq", "import fairseq, rskip"])
def test_user_dir_registers_the_models_whichever_is_imported_first(order, tmp_path, forked):
    code = f"""
{order}
from argparse import Namespace
from fairseq import utils
for _ in range(2):
    utils.import_user_module(Namespace(user_dir="rskip"))
from fairseq.models import ARCH_MODEL_REGISTRY
assert "transformer_rskip_ln_tiny" in ARCH_MODEL_REGISTRY
"""
    process = forked("-c", code, folder=tmp_path, fairseq=order == "import rskip, fairseq")
    assert process.returncode == 0, process.stderr


def test_a_user_dir_registers_the_models_without_the_patch_too(tmp_path, forked):
    code = f"""
from argparse import Namespace
from fairseq import utils
utils.import_user_module(Namespace(user_dir={str(ROOT / "rskip")!r}))
from fairseq.models import ARCH_MODEL_REGISTRY
assert "transformer_rskip_ln_tiny" in ARCH_MODEL_REGISTRY
"""
    process = forked("-c", code, folder=tmp_path, without="user-dir")
    assert process.returncode == 0, process.stderr
