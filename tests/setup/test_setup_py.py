"""setup.py."""

from __future__ import annotations

import re
import subprocess
import sys

import rskip


def test_too_old_python_is_one_line(root):
    code = f"import sys; sys.version_info = (3, 9, 18); exec(open({str(root / 'setup.py')!r}).read())"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.returncode == 1
    assert process.stderr == "rskip needs Python 3.10 or newer, and this is Python 3.9\n"


def test_with_an_address_all_links_lead_there(root, monkeypatch):
    given = {}
    monkeypatch.setattr("setuptools.setup", lambda **settings: given.update(settings))
    code = (root / "setup.py").read_text("utf-8")
    address = 'ADDRESS = "https://host.example/me/rskip"'
    exec(code, {"__file__": str(root / "setup.py")})
    assert given["project_urls"] == {} and "](docs/figures/serve.png)" in given["long_description"]
    exec(code.replace('ADDRESS = ""', address), {"__file__": str(root / "setup.py")})
    assert given["project_urls"]["Issues"] == "https://host.example/me/rskip/issues"
    assert "](https://host.example/me/rskip/raw/main/docs/figures/serve.png)" in given["long_description"]
    assert re.findall(r"\]\((?!https:|#)[^)]*", given["long_description"]) == []


def test_every_file_names_the_same_version(root):
    assert f"\nversion: {rskip.__version__}\n" in (root / "CITATION.cff").read_text("utf-8")
    assert f"\n## {rskip.__version__}" in (root / "CHANGELOG.md").read_text("utf-8")
