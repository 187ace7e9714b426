"""Installs a wheel with each extra into a fresh environment, and runs the first example of the extra's guide there.

    make dist && python benchmarks/environments.py dist/*.whl --pythons python3.10 python3.13 --extras translate vision

Environments that need PyTorch share one installation of it per Python, since it takes minutes and 6 GB. Size and time
of their own packages are measured without it. Prints a table and appends one JSON line per Python to
study/results/benchmarks/environments.jsonl. Exit status 1 if an example failed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measuring.record import append_record, benchmark_parser

from rskip.records.tables import markdown_table

ROOT = Path(__file__).resolve().parent.parent
MODEL = "checkpoints/multi30k_en_de/2rskip_ln"
PREPARE = "rskip prepare --source train.en --target train.de --output data"
SERVE = f"""import subprocess, time, urllib.request
server = subprocess.Popen(["rskip", "serve", "--model", "{MODEL}", "--port", "8765"])
for attempt in range(100):
    try:
        form = b"q=A dog runs.&source=en&target=de"
        print(urllib.request.urlopen("http://127.0.0.1:8765/translate", form).read())
        break
    except OSError:
        time.sleep(0.2)
server.terminate()
assert attempt < 99"""
COMPRESS = """import pathlib
try:
    from compression import zstd
except ImportError:
    from backports import zstd
pathlib.Path("train.en.zst").write_bytes(zstd.compress(pathlib.Path("train.en").read_bytes()))"""
SMALL = "--layers 2 --features 32 --data book.txt"
# The extras of an environment, and what runs in it: a shell command, Python code, or a guide's first Python example.
EXAMPLES: dict[str, list[str]] = {
    "translate": [f'echo "Two dogs are playing in the snow." | rskip translate --model {MODEL}'],
    "serve,translate": [SERVE],
    "torch": ["own_model.md"],
    "translation": ["translation.md", "rskip prepare --text book.txt --output book"],
    "plots,report,translation": [f"rskip compare gpt2 {SMALL} --connections mhc --updates 4 --html page.html"],
    "report,translation": ["rskip report multi30k_en_de"],
    "ct2,translation": ["rskip export ct2 --model checkpoints/multi30k_en_de/1xskip_ln --output ct2"],
    "onnx,translation": [f"rskip export onnx --model {MODEL} --output onnx", "rskip translate --model onnx test.en"],
    "huggingface,translation": ["import huggingface_hub\nfrom rskip.checkpoint.hugging_face import hub_folder"],
    "ray,translation": ["rskip run line.yaml --user-dir mine --seeds 1 2 --ray"],
    "vision": ["vision.md", "rskip vision train --data photos --epochs 1 --output runs/photos"],
    "tensorboard,vision": ["rskip vision train --data photos --epochs 1 --tracker tensorboard --output runs/logged"],
    "captioning": ["captioning.md"],
    "fairseq,langid,numbers,zstd": [
        "rskip setup-fairseq",
        PREPARE,
        "rskip prepare numbers-en-de --pairs 2000",
        COMPRESS,
        f"{PREPARE}-filtered --language-filter".replace("train.en", "train.en.zst"),
        "rskip train data --updates 4 --output model",
    ],
}
EXAMPLES["all"] = [*dict.fromkeys(example for examples in EXAMPLES.values() for example in examples)]
WITHOUT_TORCH = ("translate", "serve,translate")


def command(*words: str | Path, folder: Path, **variables: str) -> None:
    """Runs a command.

    :raises RuntimeError: it fails. The message is the end of its output.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    kept.update(OMP_NUM_THREADS="1", **variables)
    done = subprocess.run(
        list(map(str, words)), cwd=folder, env=kept, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode:
        raise RuntimeError(done.stdout[-2000:])


def write_data(folder: Path) -> None:
    """The files that a reader of the guides has: text, images, models, and CONTRIBUTING.md's example of a task."""
    from PIL import Image

    for name in ("checkpoints", "recipes", "study"):
        (folder / name).symlink_to(ROOT / name)
    numbers = [f"{a} {b} {c}" for a in ("one", "two", "three") for b in map(str, range(30)) for c in "abcdefgh"]
    for language in ("en", "de"):
        (folder / f"train.{language}").write_text("".join(f"{language} {line} .\n" for line in numbers))
    (folder / "test.en").write_text("A man sleeps.\n")
    (folder / "book.txt").write_text("To be or not to be, that is the question. " * 400)
    for number in range(40):
        image = Image.new("RGB", (64, 64), (number * 6, 40, 255 - number * 6))
        path = folder / "photos" / ("dog" if number % 2 else "cat") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path)
    image.save(folder / "dog.jpg")
    guide = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("## Add a task")[2]
    code, recipe = re.findall(r"```(?:python|yaml)\n(.*?)```", guide, re.DOTALL)[:2]
    (folder / "mine").mkdir()
    (folder / "mine/__init__.py").write_text(code)
    (folder / "line.yaml").write_text(recipe)


def size(environment: Path) -> float:
    """The environment's size in MB."""
    return sum(path.lstat().st_size for path in environment.rglob("*")) / 1e6


def torch_packages(python: str, folder: Path) -> Path:
    """The folder of packages of an environment that has PyTorch, which is made at the first call."""
    base = folder / f"{Path(python).name}-torch"
    if not base.exists():
        command(python, "-m", "venv", base, folder=folder)
        command(base / "bin/python", "-m", "pip", "install", "--quiet", "torch>=2.6", folder=folder)
    return next(base.glob("lib/python*/site-packages"))


def try_extras(python: str, extras: str, wheel: Path, folder: Path) -> dict[str, Any]:
    """Makes the environment and runs its examples. A failure is the end of the output, under "error"."""
    packages = None if extras in WITHOUT_TORCH else torch_packages(python, folder)
    row: dict[str, Any] = {"extras": extras}
    with tempfile.TemporaryDirectory(dir=folder) as name:
        environment, work = Path(name, "environment"), Path(name, "work")
        work.mkdir()
        write_data(work)
        command(python, "-m", "venv", environment, folder=work)
        if packages:
            (next(environment.glob("lib/python*/site-packages")) / "torch.pth").write_text(f"{packages}\n")
        before, start = size(environment), time.perf_counter()
        path = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
        try:
            wanted = f"rskip[{extras}] @ {wheel.resolve().as_uri()}"
            command(environment / "bin/pip", "install", "--quiet", wanted, folder=work)
            row |= {"install_seconds": round(time.perf_counter() - start), "mb": round(size(environment) - before)}
            start = time.perf_counter()
            for example in EXAMPLES[extras]:
                if example.endswith(".md"):
                    text = (ROOT / "docs" / example).read_text("utf-8")
                    example = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[0]
                shell = example.startswith(("rskip ", "echo "))
                words = ["bash", "-o", "pipefail", "-c"] if shell else [str(environment / "bin/python"), "-c"]
                print(f"{extras}: {example.splitlines()[0]}", file=sys.stderr)
                command(*words, example, folder=work, PATH=path)
            row["example_seconds"] = round(time.perf_counter() - start, 1)
        except RuntimeError as error:
            row["error"] = str(error)
    return row


def main() -> int:
    parser = benchmark_parser(__doc__, "environments")
    parser.add_argument("wheel", type=Path, help="the wheel of rskip")
    parser.add_argument("--pythons", nargs="+", default=[sys.executable], help="Pythons to try, by path or name")
    parser.add_argument("--extras", nargs="+", choices=EXAMPLES, default=[*EXAMPLES], help="extras to try")
    parser.add_argument("--folder", type=Path, help="folder that keeps PyTorch for the next call (default: temporary)")
    args = parser.parse_args()
    folder = args.folder or Path(tempfile.mkdtemp())
    failed = False
    for python in args.pythons:
        asked = [python, "-c", "import platform; print(platform.python_version())"]
        version = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        rows = [try_extras(python, extras, args.wheel, folder) for extras in args.extras]
        append_record(args.output, "environments", {"python": version, "wheel": args.wheel.name, "rows": rows})
        names = ("extras", "mb", "install_seconds", "example_seconds", "error")
        print(version, markdown_table(names, [[str(row.get(name, "")) for name in names] for row in rows]), sep="\n\n")
        failed |= any("error" in row for row in rows)
    if args.folder is None:
        shutil.rmtree(folder)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
