"""Defines torch.hub's entries: each pretrained model in checkpoints.json under its name, and four architectures.

torch.hub.load("OWNER/rskip", "transformer_tiny_2rskip_ln.multi30k.en-de") returns a translator. For a clone use
torch.hub.load(FOLDER, NAME, source="local"). torch.hub.help describes an entry.
"""

import sys as _sys
from importlib.util import find_spec as _find_spec
from pathlib import Path as _Path

if _sys.version_info < (3, 10):
    raise RuntimeError("rskip needs Python 3.10 or newer, and this is Python {}.{}".format(*_sys.version_info))

# loading reports what else a kind of model needs
dependencies = ["torch", "numpy", "safetensors", "msgspec", "filelock"]
if _missing := [name for name in dependencies if _find_spec(name) is None]:  # torch.hub would check them later
    raise RuntimeError(f"rskip needs {', '.join(_missing)}: pip install {' '.join(_missing)}")

from rskip.zoo.hub import entry_points as _entry_points

# torch.hub removes this folder from the path after the import, but processes of `Workers` import rskip later
if (_folder := str(_Path(__file__).resolve().parent)) not in _sys.path[1:]:
    _sys.path.append(_folder)

globals().update(_entry_points(root=_Path(__file__).resolve().parent))
