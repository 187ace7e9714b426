"""Writes docs/public_names.txt, the list of rskip's public names; docs/compatibility.md explains it.

    python scripts/public_names.py           writes the list
    python scripts/public_names.py --check   changes nothing; prints the differences, exit status 1 if there are any
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rskip.cli.main import build_parser, subcommand_module, subcommands
from rskip.connections import list_connections
from rskip.formulas.registry import Family
from rskip.zoo.registry import read_registry

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docs" / "public_names.txt"
# Every package with __all__ is public, but for these; and so are names that no package exports.
PRIVATE = ("rskip.formulas", "rskip.fairseq_plugin")
FURTHER = {
    "rskip": ("adapt", "compare", "load"),
    "rskip.corpora.inspection": ("inspect_data",),
    "rskip.extras": ("MissingExtra",),
    "rskip.settings.errors": ("SettingError",),
}
PLAIN = (bool, int, float, str, tuple)


def public_names() -> list[str]:
    """The lines of the list. It needs fairseq and all extras."""
    return [
        "# Public names: docs/compatibility.md. `python scripts/public_names.py` writes this file.",
        *sorted(python_names(), key=str.lower),
        *(f"command {line}" for line in command_flags()),
        *sorted(f"connection {connection(each)}" for each in list_connections()),
        *sorted(f"model {name}" for name in read_registry()),
        *sorted(fairseq_names()),
    ]


def python_names() -> Iterator[str]:
    """Functions and classes with their signatures, and members that are neither parameters nor of a public base."""
    exported = [
        (f"{module}.{name}", getattr(importlib.import_module(module), name))
        for module, names in {**dict(exporting_modules()), **FURTHER}.items()
        for name in names
    ]
    public = {id(value) for _, value in exported}
    for path, value in exported:
        yield f"{path}{(given := signature(value))}{mark(value)}"
        bases = value.__mro__ if inspect.isclass(value) else ()
        inherited = {name for base in bases[1:] if id(base) in public for name in dir(base)}
        ours = [base for base in reversed(bases) if base.__module__.startswith("rskip")]
        own = {name: each for base in ours for name, each in vars(base).items()}
        for name, member in own.items():
            if not name.startswith("_") and name not in inherited and not re.search(rf"\b{name}\b", given):
                yield f"{path}.{name}{signature(member)}{mark(member)}"


def exporting_modules() -> Iterator[tuple[str, list[str]]]:
    """The packages and modules that have __all__, with its names."""
    for path in sorted((ROOT / "rskip").rglob("*.py")):
        if "\n__all__ = " in path.read_text("utf-8"):
            module = path.parent if path.name == "__init__.py" else path.with_suffix("")
            name = ".".join(module.relative_to(ROOT).parts)
            if name not in PRIVATE:
                yield name, importlib.import_module(name).__all__


def signature(value: Any) -> str:
    """The parameters with their defaults, without types; "" for what can't be called."""
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    if not callable(value) or inspect.isclass(value) and issubclass(value, Exception):
        return ""
    given = [each for each in inspect.signature(value).parameters.values() if each.name not in ("self", "cls")]
    shown = [each.replace(annotation=each.empty, default=default(each.default)) for each in given]
    return str(inspect.Signature(shown)).replace("Ellipsis", "...")


def default(value: Any) -> Any:
    """The default; "..." for an object whose representation may differ between machines."""
    return value if value is None or value is inspect.Parameter.empty or isinstance(value, PLAIN) else ...


def mark(value: Any) -> str:
    """How a deprecated name is marked."""
    return "  # deprecated" if ".. deprecated::" in (inspect.getdoc(value) or "") else ""


def command_flags() -> Iterator[str]:
    """Each command with its arguments, one per line."""
    for words in commands():
        parser: Any = build_parser(words)
        for word in words:
            (parser,) = (action.choices[word] for action in parser._actions if isinstance(action.choices, dict))
        yield " ".join(["rskip", *words])
        for action in parser._actions:
            if action.help != argparse.SUPPRESS and action.option_strings != ["-h", "--help"]:
                deprecated = "  # deprecated" if str(action.help).startswith("deprecated") else ""
                yield " ".join(["rskip", *words, "/".join(action.option_strings) or action.dest.upper()]) + deprecated


def commands() -> Iterator[list[str]]:
    """The words of each command."""
    for name in subcommands():
        module = subcommand_module(name)
        if hasattr(module, "add_arguments"):
            yield [name]
        yield from ([name, inner] for inner in subcommands(module))


def connection(family: Family) -> str:
    """A family with what its spec may contain: factor, norms and options."""
    norms = ["+" + "/".join(norm or "none" for norm in family.norms)] if family.norms != (None,) else []
    return " ".join([family.name, *(["factor"] if family.factor else []), *norms, *sorted(family.options)])


def fairseq_names() -> Iterator[str]:
    """What `--user-dir rskip` adds to fairseq: architectures with their models' flags, criteria, optimizers, tasks."""
    importlib.import_module("rskip.fairseq_plugin")
    from fairseq import criterions, models, optim, tasks

    for name, kind in models.ARCH_MODEL_REGISTRY.items():
        if kind.__module__.startswith("rskip"):
            yield f"fairseq architecture {name}"
    for name, kind in models.MODEL_REGISTRY.items():
        if kind.__module__.startswith("rskip"):
            parser = argparse.ArgumentParser(add_help=False)
            kind.add_args(parser)
            yield from (f"fairseq model {name} {action.option_strings[0]}" for action in parser._actions)
    registries = {
        "criterion": criterions.CRITERION_REGISTRY,
        "optimizer": optim.OPTIMIZER_REGISTRY,
        "task": tasks.TASK_REGISTRY,
    }
    for what, registry in registries.items():
        yield from (f"fairseq {what} {name}" for name, kind in registry.items() if kind.__module__.startswith("rskip"))


def differences() -> str:
    """The differences between the list and what it should be."""
    before = FILE.read_text("utf-8").splitlines() if FILE.exists() else []
    return "\n".join(difflib.unified_diff(before, public_names(), "docs/public_names.txt", "now", lineterm="", n=0))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, and print the differences")
    if parser.parse_args().check:
        print(found := differences())
        return int(bool(found))
    FILE.write_text("\n".join(public_names()) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
