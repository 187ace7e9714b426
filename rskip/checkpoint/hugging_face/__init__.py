"""Folders of translation and language models as transformers writes them, read without transformers.

The readers are imported on first use, since they lengthen the start of a translation.
"""

from typing import TYPE_CHECKING

from rskip.checkpoint.hugging_face.folder import Folder, folder_at, suggest_newest
from rskip.checkpoint.hugging_face.hub import hub_folder, is_hub_name
from rskip.machine.lazy import imported_on_use

if TYPE_CHECKING:
    from rskip.checkpoint.hugging_face.model import (
        TRANSLATION_MODELS,
        HuggingFaceModel,
        StoredFolder,
        read_hugging_face,
    )

__all__ = [
    "TRANSLATION_MODELS", "Folder", "HuggingFaceModel", "StoredFolder", "folder_at", "hub_folder", "is_hub_name",
    "read_hugging_face", "suggest_newest",
]  # fmt: skip

_OF_MODEL = ("TRANSLATION_MODELS", "HuggingFaceModel", "StoredFolder", "read_hugging_face")
__getattr__ = imported_on_use(__name__, dict.fromkeys(_OF_MODEL, "model"))
