"""What rskip's extras bring: the error for what is missing, and the command that installs it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

_MARKER = re.compile(r"""extra == ["']([\w-]+)["']|python_version < ["'](\d+)\.(\d+)["']""")


class MissingExtra(ImportError, ValueError):
    """A module that an extra of rskip brings is missing."""


@contextmanager
def extra(*names: str, what: str = "") -> Iterator[None]:
    """Turns a failing import in the block into an error that names the extra and how to install it::

        with extra("plots", what="a plot"):
            import matplotlib

    :param names: the extra, or several of which each brings what is imported.
    :param what: what needs the module, as the error says it; "": the first extra's name.
    :raises MissingExtra: the import fails. It is an ImportError and a ValueError.
    """
    try:
        yield
    except MissingExtra:
        raise
    except ImportError as error:
        module = (error.name or "").partition(".")[0]
        if module in ("", "rskip", "fairseq_compat"):
            raise
        broken = "" if isinstance(error, ModuleNotFoundError) else f", which can't be imported ({error})"
        raise MissingExtra(f"{what or names[0]} needs {module}{broken}: {advice(*names)}", name=module) from error


def advice(*names: str) -> str:
    """How to install the extra, or one of several, in words."""
    which = f"the extra {names[0]}" if len(names) == 1 else f"one of the extras {', '.join(names)}"
    return f"install {which} with {install_command(names[0] if len(names) == 1 else 'EXTRA')}"


def install_command(name: str) -> str:
    """The command that adds an extra to this installation: to the checkout, the wheel or the release that it is of."""
    root = Path(__file__).resolve().parents[2]
    if (root / "setup.py").is_file():
        return f'pip install -e "{root}[{name}]"'
    return f'pip install "rskip[{name}]{_origin()}"'


def _origin() -> str:
    """` @ URL` of the wheel, folder or repository that rskip was installed from; "" if it is from an index."""
    try:
        recorded = json.loads(metadata.distribution("rskip").read_text("direct_url.json") or "{}")
    except metadata.PackageNotFoundError:
        return ""
    version = recorded.get("vcs_info")
    if version:
        return f" @ {version['vcs']}+{recorded['url']}@{version['commit_id']}"
    return f" @ {recorded['url']}" if recorded else ""


def requirements(name: str = "") -> list[str]:
    """What rskip requires, or what an extra brings on this Python; such as `msgspec>=0.20`, as its metadata has it."""
    found = []
    for line in metadata.requires("rskip") or []:
        requirement, _, marker = line.partition(";")
        parts = _MARKER.findall(marker)
        below = [(int(major), int(minor)) for _, major, minor in parts if major]
        asked = [each for each, *_ in parts if each] == ([name] if name else [])
        if asked and all(sys.version_info[:2] < each for each in below):
            found.append(requirement.strip())
    return found


def package_of(requirement: str) -> str:
    """The package's name in a requirement."""
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
