#!/usr/bin/env bash
# Gathers wheels, and compiles fairseq, for a machine with a GPU and PyTorch for Python 3.12 but without network.
#
#   scripts/gather-gpu-wheels.sh [FOLDER]      (default: gpu-wheels; PYTHON=python3.12 names the interpreter)
#
# benchmarks/gpu_job.sh installs from this folder. The machine must already have numpy, safetensors, sentencepiece,
# sacrebleu, tqdm, PyYAML, regex, requests, joblib, click, pytest and setuptools.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-gpu-wheels}
python=${PYTHON:-python3.12}
constraints=$PWD/constraints.txt
needed=(hydra-core omegaconf antlr4-python3-runtime cffi pycparser bitarray sacremoses subword-nmt msgspec
    filelock pooch platformdirs)

mkdir -p "$folder"
"$python" -m pip wheel --quiet --no-deps --constraint "$constraints" --wheel-dir "$folder" "${needed[@]}"
# constraints for compiling fairseq: older pips read the first variable, newer ones the second
PIP_CONSTRAINT=$constraints PIP_BUILD_CONSTRAINT=$constraints CFLAGS=-g0 CXXFLAGS=-g0 LDFLAGS=-s \
    "$python" -m pip wheel --quiet --no-deps --wheel-dir "$folder" fairseq==0.12.2
# two thirds of the wheel are examples with their data, which fairseq never imports
"$python" - "$folder"/fairseq-0.12.2-*.whl <<'END'
import re, sys, zipfile
from pathlib import Path

path = Path(sys.argv[1])
with zipfile.ZipFile(path) as wheel:
    files = {name: wheel.read(name) for name in wheel.namelist() if not name.startswith("fairseq/examples/")}
record = "fairseq-0.12.2.dist-info/RECORD"
files[record] = re.sub(rb"(?m)^fairseq/examples/.*\n", b"", files[record])
with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
    for name, content in files.items():
        wheel.writestr(name, content)
END
du -ch "$folder"/*.whl
