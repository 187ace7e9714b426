"""setup.py."""

from __future__ import annotations

import subprocess
import sys


def test_too_old_python_is_one_line(root):
    code = f"import sys; sys.version_info = (3, 9, 18); exec(open({str(root / 'setup.py')!r}).read())"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.returncode == 1
    assert process.stderr == "rskip needs Python 3.10 or newer, and this is Python 3.9\n"
