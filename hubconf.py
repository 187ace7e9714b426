"""torch.hub's entries: every pretrained model of checkpoints.json under its own name, and three architectures.

torch.hub.load("OWNER/rskip", "transformer_tiny_2rskip_ln.multi30k.en-de") gives a translator; from a clone:
torch.hub.load(FOLDER, NAME, source="local"). torch.hub.help shows what an entry is.
"""

import sys as _sys
from pathlib import Path as _Path

if _sys.version_info < (3, 10):
    raise RuntimeError("rskip needs Python 3.10 or newer, and this is Python {}.{}".format(*_sys.version_info))

from rskip.zoo.hub import entry_points as _entry_points

# torch.hub looks for them before it calls an entry; what one kind of model needs, loading it names
dependencies = ["torch", "safetensors", "msgspec"]

# torch.hub takes this folder off the path's front again, but the processes of `Workers` import rskip too
if (_folder := str(_Path(__file__).resolve().parent)) not in _sys.path[1:]:
    _sys.path.append(_folder)

globals().update(_entry_points(root=_Path(__file__).resolve().parent))
