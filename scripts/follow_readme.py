#!/usr/bin/env python3
"""Does what README.md says, word for word, in a fresh clone: from `make demo` to a translation with what it trained.

    python scripts/follow_readme.py FOLDER [--epochs N]

The clone of this checkout's last commit is made in FOLDER, which must not be there. What README indents in its sections
Start, Train, Translate and Load a trained model is run in one shell, its Python too; `rskip run`, which is six
trainings, is left out. It ends at the first command that fails. Multi30k is downloaded, unless RSKIP_DATA holds it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SECTIONS = ("Start", "Train", "Translate", "Load a trained model")
LEFT_OUT = ("rskip run ",)
ITS_FILES = {"test.en": "data-bin/multi30k-en-de/reference/test.en"}  # what README supposes that its reader has
END = "__end_of_a_command__"


def steps(readme: str) -> list[str]:
    """The commands and Python of the sections, in their order, as a shell takes them."""
    found = []
    for section in SECTIONS:
        (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## )", readme, flags=re.MULTILINE | re.DOTALL)
        for python, command in re.findall(r"^```python\n([^`]*)```|^ {4}(\S(?:\\\n|.)*)", text, re.MULTILINE):
            found.append(f"python - <<'END'\n{python}END" if python else command)
    return [step for step in found if not step.startswith(LEFT_OUT)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the clone")
    parser.add_argument("--epochs", type=int, help="of the training, and averaged, in place of README's")
    args = parser.parse_args()

    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(args.folder)], check=True)
    todo = steps((args.folder / "README.md").read_text(encoding="utf-8"))
    shell = subprocess.Popen(["bash"], cwd=args.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert shell.stdin and shell.stdout
    for name, source in ITS_FILES.items():
        todo = [f"cp {source} {name}\n{step}" if f" {name} " in step else step for step in todo]
    for step in todo:
        if args.epochs is not None:
            step = re.sub(r"--(max-epoch|last) \d+", rf"--\1 {args.epochs}", step)
        print(f"\n$ {step}", flush=True)
        start = time.monotonic()
        shell.stdin.write(f"{step}\necho {END} $?\n")
        shell.stdin.flush()
        for line in shell.stdout:
            if line.startswith(END):
                break
            print(line, end="", flush=True)
        print(f"({time.monotonic() - start:.0f} s)", flush=True)
        if line.split() != [END, "0"]:
            print(f"follow_readme: error: this command of README.md failed: {step}", file=sys.stderr)
            return 1
    print(f"\n{len(todo)} commands of README.md did what they should")
    return 0


if __name__ == "__main__":
    sys.exit(main())
