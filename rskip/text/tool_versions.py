"""Versions of the packages that shaped a text, to keep beside it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def tool_versions(*packages: str) -> dict[str, str]:
    """Installed version of each distribution named; "not installed" for one that is missing."""
    versions = {}
    for package in packages:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return versions
