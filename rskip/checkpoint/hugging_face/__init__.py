"""Folders of translation and language models as transformers writes them, read without transformers."""

from rskip.checkpoint.hugging_face.folder import Folder, folder_at
from rskip.checkpoint.hugging_face.hub import hub_folder, is_hub_name
from rskip.checkpoint.hugging_face.readers import HuggingFaceModel, read_hugging_face

__all__ = ["Folder", "HuggingFaceModel", "folder_at", "hub_folder", "is_hub_name", "read_hugging_face"]
