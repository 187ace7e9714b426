"""What tells one model from another."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from rskip.files.checksum import sha256_file
from rskip.text import TextPipeline
from rskip.translation.model_files import find_checkpoint
from rskip.translation.translator import Translator


def model_sha256(path: str | os.PathLike[str], translator: Translator) -> str:
    """Hexadecimal SHA-256 of the checkpoint at `path`, and of the translator's dictionaries and text pipeline."""
    parts = [sha256_file(find_checkpoint(path)), translator.source_language, translator.target_language]
    for dictionary in (translator.source_dictionary, translator.target_dictionary):
        parts.append(hashlib.sha256("\n".join(dictionary.tokens).encode("utf-8")).hexdigest())
    if isinstance(translator.text, TextPipeline):
        with tempfile.TemporaryDirectory() as folder:
            translator.text.save(folder)
            parts += [sha256_file(each) for each in sorted(Path(folder).iterdir())]
    return hashlib.sha256("\n".join(parts).encode("utf-8")).hexdigest()
