"""The extras of rskip: the error for a missing package, and the command that installs it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MARKER = re.compile(r"""extra == ["']([\w-]+)["']|python_version < ["'](\d+)\.(\d+)["']""")


class MissingExtra(ImportError, ValueError):
    """Raised if a module is missing that an extra of rskip installs.

    shared: several extras install the module, and what was asked for decides which one is needed.
    """

    shared = False


@contextmanager
def extra(*names: str, what: str = "") -> Iterator[None]:
    """Turns a failing import in the block into an error that names the extra and how to install it::

        with extra("plots", what="a plot"):
            import matplotlib

    :param names: the extra, or several extras that each install the module.
    :param what: what needs the module, for the error; "": the name of the first extra.
    :raises MissingExtra: the import fails. This is an ImportError and a ValueError.
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
        missing = MissingExtra(f"{what or names[0]} needs {module}{broken}: {advice(*names)}", name=module)
        missing.shared = len(names) > 1 and not broken
        raise missing from error


def missing_torch(what: str, error: Exception) -> MissingExtra:
    """The error for a missing or broken PyTorch, which `what` needs.

    :param error: the error of its import.
    """
    if not isinstance(error, ModuleNotFoundError) or error.name != "torch":
        advised = "pip install --force-reinstall torch"
        return MissingExtra(f"{what} needs torch, which can't be imported ({error}): {advised}", name="torch")
    missing = MissingExtra(f"{what} needs torch: {advice('torch')}", name="torch")
    missing.shared = True
    return missing


def require_torch(what: str) -> None:
    """Imports PyTorch, which `what` needs. Raises `MissingExtra` if it is missing or broken."""
    try:
        import torch  # noqa: F401
    except (ImportError, OSError) as error:  # OSError: a shared library is missing
        raise missing_torch(what, error) from error


def has_torch() -> bool:
    """Whether PyTorch can be imported."""
    try:
        require_torch("")
    except MissingExtra:
        return False
    return True


def advice(*names: str) -> str:
    """The advice to install the extra, or one of several."""
    which = f"the extra {names[0]}" if len(names) == 1 else f"one of the extras {', '.join(names)}"
    return f"install {which} with {install_command(names[0] if len(names) == 1 else 'EXTRA')}"


def install_command(name: str) -> str:
    """The command that adds an extra to this installation, which is a checkout, a wheel or a release."""
    root = Path(__file__).resolve().parents[1]
    if (root / "setup.py").is_file():
        return f'pip install -e "{root}[{name}]"'
    return f'pip install "rskip[{name}]{_origin()}"'


def _origin() -> str:
    """` @ URL` of the wheel, folder or repository that rskip was installed from; "" for an index."""
    from importlib import metadata  # imports the package `email`, which takes 20 ms

    try:
        recorded = json.loads(metadata.distribution("rskip").read_text("direct_url.json") or "{}")
    except metadata.PackageNotFoundError:
        return ""
    version = recorded.get("vcs_info")
    if version:
        return f" @ {version['vcs']}+{recorded['url']}@{version['commit_id']}"
    return f" @ {recorded['url']}" if recorded else ""


def requirements(name: str = "") -> list[str]:
    """The requirements of rskip, or of an extra, on this Python, such as `msgspec>=0.20`, from its metadata."""
    from importlib import metadata

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
