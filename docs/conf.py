"""The site of `make docs`: README, guides and API reference, by Sphinx with MyST.

The source folder is the repository's root, so that links between README, docs/ and other files hold on the site too.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
import textwrap
from argparse import Action, ArgumentParser
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.inspect import stringify_signature

import rskip
from rskip.cli.main import build_parser, subcommand_module, subcommands
from rskip.settings.check import Checked

project = "rskip"
author = "the rskip authors"
copyright = f"2026, {author}"
version = release = rskip.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_design"]
include_patterns = ["*.md", "docs/*.md", "docs/api/*.rst"]
exclude_patterns = [".*", "build", "checkpoints", "data-bin", "outputs", "runs", "rskip", "study", "tests"]
root_doc = "docs/index"
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

add_module_names = False
autodoc_member_order = "groupwise"
autodoc_typehints_format = "short"
default_role = "py:obj"
smartquotes = False  # which would make one dash of the two of a flag in a help text
nitpick_ignore_regex = [("py:.*", r"(?!rskip\.).*")]  # other projects' names

html_theme = "furo"
html_title = f"rskip {release}"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]

PACKAGE = """{name}
{line}

.. automodule:: {name}
   :members:
   :imported-members:
   :exclude-members: {excluded}
   :show-inheritance:
"""


def write_reference(app: Sphinx) -> None:
    """A page for what each package and training loop exports; fairseq_plugin exports modules, for fairseq alone."""
    folder = Path(app.srcdir, "docs", "api")
    folder.mkdir(exist_ok=True)
    root = Path(app.srcdir, "rskip")
    for path in sorted([*root.rglob("__init__.py"), *root.rglob("training.py")]):
        module = path.parent if path.name == "__init__.py" else path.with_suffix("")
        name = ".".join(module.relative_to(app.srcdir).parts)
        if "__all__" not in path.read_text(encoding="utf-8") or name == "rskip.fairseq_plugin":
            continue
        package = importlib.import_module(name)
        for exported in package.__all__:  # dir() lacks what is imported when asked for
            setattr(package, exported, getattr(package, exported))
        parent = importlib.import_module("rskip.connections" if name == "rskip.formulas" else name.rpartition(".")[0])
        also = sorted(set(package.__all__) & set(getattr(parent, "__all__", ())))  # its page lists them
        page = PACKAGE.format(name=name, line="=" * len(name), excluded=", ".join(also))
        Path(folder, f"{name}.rst").write_text(page, encoding="utf-8")


def paragraph(text: str) -> nodes.paragraph:
    """Text of a terminal, with code between backquotes."""
    parts = enumerate(text.split("`"))
    return nodes.paragraph("", "", *(nodes.literal(text=part) if i % 2 else nodes.Text(part) for i, part in parts))


def literal_block(text: str) -> nodes.literal_block:
    return nodes.literal_block(text=textwrap.dedent(text).strip("\n"), language="none")


class Commands(SphinxDirective):
    """Every command of rskip with its arguments, as the parsers describe them."""

    def run(self) -> list[nodes.Node]:
        pairs = [(name, subcommand_module(name)) for name in subcommands()]
        single = [[name] for name, module in pairs if hasattr(module, "add_arguments")]
        return [self.section(words) for words in sorted(single + [[n, i] for n, m in pairs for i in subcommands(m)])]

    def section(self, words: list[str]) -> nodes.section:
        parser = build_parser(words)
        for word in words:
            parser = next(each.choices[word] for each in parser._actions if isinstance(each.choices, dict))
        section = nodes.section(ids=[nodes.make_id(parser.prog)], names=[parser.prog])
        summary, _, details = (parser.description or "").partition("\n")
        section += [nodes.title(text=parser.prog), paragraph(summary)]
        section += literal_block(parser.format_usage())
        for text in details.strip().split("\n\n") if details.strip() else []:
            section += literal_block(text) if text.startswith(" ") else paragraph(" ".join(text.split()))
        section += literal_block(parser.epilog) if parser.epilog else []
        for group in parser._action_groups:
            if group._group_actions:
                section += [nodes.rubric(text=group.title), self.flags(parser, group._group_actions)]
        return section

    def flags(self, parser: ArgumentParser, actions: list[Action]) -> nodes.definition_list:
        formatter = parser._get_formatter()
        found = nodes.definition_list()
        for action in actions:
            term = nodes.term("", "", nodes.literal(text=formatter._format_action_invocation(action)))
            help = formatter._expand_help(action) if action.help else ""
            found += nodes.definition_list_item("", term, nodes.definition("", paragraph(help)))
        return found


def link_names(app: Sphinx, doctree: nodes.document) -> None:
    """A name of rskip's in a guide, such as `rskip.nn.Residuals`, links to the reference."""
    linked = (nodes.reference, pending_xref)
    for literal in list(doctree.findall(nodes.literal)):
        named = re.fullmatch(r"rskip(?!\.fairseq_plugin)(\.\w+)+", literal.astext())  # which only fairseq can import
        if named and not isinstance(literal.parent, linked):
            link = pending_xref("", reftype="obj", refdomain="py", reftarget=literal.astext(), refdoc=app.env.docname)
            literal.replace_self(link)
            link += literal


def described_fields(found: Any) -> dict[str, str]:
    """A settings type's fields to what `msgspec.Meta` says of them, as it does in --help."""
    if not isinstance(found, type) or not issubclass(found, (Checked, msgspec.Struct)):
        return {}
    descriptions = {}
    for field, hint in get_type_hints(found, include_extras=True).items():
        metas = [meta for meta in getattr(hint, "__metadata__", ()) if isinstance(meta, msgspec.Meta)]
        descriptions[field] = " ".join(meta.description for meta in metas if meta.description)
    return {field: text for field, text in descriptions.items() if text}


def add_fields(app: Sphinx, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    if fields := described_fields(found):
        lines += ["", *(f":param {field}: {text}" for field, text in fields.items())]


def strip_annotated(app: Sphinx, what: str, name: str, found: Any, options: Any, text: str, result: str) -> Any:
    """A type's signature with the bare types: what Annotated adds is in the fields' descriptions."""
    if what != "class" or "Meta(" not in (text or ""):
        return None
    hints, signature = get_type_hints(found), inspect.signature(found)
    bare = [each.replace(annotation=hints.get(each.name, each.annotation)) for each in signature.parameters.values()]
    signature = signature.replace(parameters=bare, return_annotation=inspect.Signature.empty)
    return stringify_signature(signature, unqualified_typehints=True), result


def resolve_other(app: Sphinx, env: Any, node: nodes.Element, content: nodes.TextElement) -> nodes.Node | None:
    """A name of rskip's that the reference doesn't list: a link to its public name if it has one, else plain code.

    A name that doesn't exist is a broken link.
    """
    name = str(node.get("reftarget", ""))
    if node.get("refdomain") != "py" or not re.fullmatch(r"rskip(\.\w+)+", name):
        return None
    try:
        found = pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return None
    for package in sorted(env.domaindata["py"]["modules"]):
        for exported in sys.modules[package].__all__:
            if getattr(sys.modules[package], exported) is found and callable(found):
                target = f"{package}.{exported}"
                python = env.get_domain("py")
                link = python.resolve_xref(env, node["refdoc"], app.builder, "obj", target, node, content)
                return link or content
    return content


def add_index(app: Sphinx, problem: Exception | None) -> None:
    """The site's address shows the start page, which is in docs/."""
    if problem is None:
        page = f'<!doctype html><title>{project}</title><meta http-equiv="refresh" content="0; url={root_doc}.html">\n'
        Path(app.outdir, "index.html").write_text(page, encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Sphinx calls this."""
    app.connect("builder-inited", write_reference)
    app.connect("autodoc-process-docstring", add_fields)
    app.connect("autodoc-process-signature", strip_annotated)
    app.connect("doctree-read", link_names)
    app.connect("missing-reference", resolve_other)
    app.add_directive("commands", Commands)
    app.connect("build-finished", add_index)
