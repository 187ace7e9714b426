"""The site of `make docs`: README, guides and API reference, by Sphinx with MyST.

The source folder is the repository's root, so that links between README, docs/ and other files hold on the site too.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import shutil
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.inspect import stringify_signature

import rskip
from rskip.settings.check import Checked

project = "rskip"
author = "the rskip authors"
copyright = f"2026, {author}"
version = release = rskip.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
include_patterns = ["*.md", "docs/*.md", "docs/api/*.rst"]
exclude_patterns = [".*", "build", "checkpoints", "data-bin", "outputs", "runs", "rskip", "study", "tests"]
root_doc = "README"
myst_heading_anchors = 4

add_module_names = False
autodoc_member_order = "groupwise"
autodoc_typehints_format = "short"
default_role = "py:obj"
nitpick_ignore_regex = [("py:.*", r"(?!rskip\.).*")]  # other projects' names

html_theme = "furo"
html_title = f"rskip {release}"
html_copy_source = False

# the site's navigation; a page that is missing here goes under "Contribute"
PAGES = {
    "Guides": ("own_model", "own_text", "fairseq", "translation", "zoo", "vision", "captioning", "recipes", "analysis"),
    "Reference": ("connections", "corpora", "api"),
    "Studies": ("summary", "results", "field", "sas", "gradients", "speed"),
    "Reproduce the papers": ("tables", "claims"),
}

CONTENTS = """

```{{toctree}}
:hidden:
:caption: {caption}

{pages}
```
"""

PACKAGE = """{name}
{line}

.. automodule:: {name}
   :members:
   :imported-members:
   :show-inheritance:
"""


def write_reference(app: Sphinx) -> None:
    """A page for each package that says what it exports; fairseq_plugin exports modules, for fairseq alone."""
    folder = Path(app.srcdir, "docs", "api")
    folder.mkdir(exist_ok=True)
    for path in sorted(Path(app.srcdir, "rskip").rglob("__init__.py")):
        name = ".".join(path.parent.relative_to(app.srcdir).parts)
        if "__all__" not in path.read_text(encoding="utf-8") or name == "rskip.fairseq_plugin":
            continue
        package = importlib.import_module(name)
        for exported in package.__all__:  # dir() lacks what is imported when asked for
            setattr(package, exported, getattr(package, exported))
        page = PACKAGE.format(name=name, line="=" * len(name))
        Path(folder, f"{name}.rst").write_text(page, encoding="utf-8")


def add_contents(app: Sphinx, name: str, source: list[str]) -> None:
    """README is the front page; all others stand beside it."""
    if name != root_doc:
        return
    listed = {page for pages in PAGES.values() for page in pages}
    others = sorted({path.stem for path in Path(app.srcdir, "docs").glob("*.md")} - listed)
    pages = {caption: [f"/docs/{page}" for page in names] for caption, names in PAGES.items()}
    pages["Contribute"] = ["/CONTRIBUTING", *(f"/docs/{page}" for page in others), "/CHANGELOG", "/SECURITY"]
    for caption, names in pages.items():
        source[0] += CONTENTS.format(caption=caption, pages="\n".join(names))


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


def resolve_private(app: Sphinx, env: Any, node: nodes.Element, content: nodes.TextElement) -> nodes.Node | None:
    """A name of rskip's that the reference doesn't list is plain code if it exists, else a broken link."""
    name = str(node.get("reftarget", ""))
    if node.get("refdomain") != "py" or not re.fullmatch(r"rskip(\.\w+)+", name):
        return None
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return None
    return content


def add_index(app: Sphinx, problem: Exception | None) -> None:
    if problem is None:
        shutil.copy(Path(app.outdir, f"{root_doc}.html"), Path(app.outdir, "index.html"))


def setup(app: Sphinx) -> None:
    """Sphinx calls this."""
    app.connect("builder-inited", write_reference)
    app.connect("source-read", add_contents)
    app.connect("autodoc-process-docstring", add_fields)
    app.connect("autodoc-process-signature", strip_annotated)
    app.connect("missing-reference", resolve_private)
    app.connect("build-finished", add_index)
