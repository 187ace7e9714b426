"""Models of the Hugging Face Hub by name: `hf:OWNER/NAME`, or `hf:OWNER/NAME@REVISION`."""

from __future__ import annotations

import os
from pathlib import Path

from rskip.extras import extra
from rskip.settings.errors import SettingError

PREFIX = "hf:"
# settings, vocabularies and SentencePiece models; no code
_TEXT_FILES = ("*.json", "*.txt", "*.spm", "*.model")
# the first of which the repository holds files
_WEIGHTS = (("model.safetensors", "model-*.safetensors"), ("pytorch_model.bin", "pytorch_model-*.bin"))


def is_hub_name(path: str | os.PathLike[str]) -> bool:
    """Whether this names a model of the Hub, and not a path."""
    return os.fspath(path).startswith(PREFIX)


def hub_folder(name: str | os.PathLike[str]) -> Path:
    """The folder of a model of the Hugging Face Hub, in the cache of huggingface_hub; missing files are downloaded.

    huggingface_hub decides by its environment variables: `HF_HOME` moves the cache, `HF_HUB_OFFLINE=1` forbids
    downloads, `HF_TOKEN` opens private models, `HF_ENDPOINT` names another server. Only settings, vocabularies and
    weights are downloaded. Nothing from the repository is executed.

    :param name: `hf:OWNER/NAME`; `@REVISION` after it pins a branch, a tag or a commit.
    :raises SettingError: the name is malformed, or the Hub has no such model or revision.
    :raises ImportError: huggingface_hub is missing (extra `huggingface`).
    :raises OSError: the server can't be reached and the cache doesn't hold the model.
    """
    text = os.fspath(name)
    repository, _, revision = text.removeprefix(PREFIX).partition("@")
    with extra("huggingface", what="a model of the Hugging Face Hub"):
        from huggingface_hub import constants, snapshot_download
        from huggingface_hub.errors import (
            HFValidationError,
            LocalEntryNotFoundError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )

    if repository.count("/") != 1:
        raise SettingError("", f"{text} is not a model of the Hub", expected="hf:OWNER/NAME or hf:OWNER/NAME@REVISION")
    try:
        for patterns in _WEIGHTS:
            wanted = [*_TEXT_FILES, *patterns]
            folder = Path(
                snapshot_download(repository, revision=revision or None, allow_patterns=wanted, ignore_patterns=["*/*"])
            )
            if any(path for pattern in patterns for path in folder.glob(pattern)):
                break
        # of models that rskip exported
        snapshot_download(repository, revision=revision or None, allow_patterns=["text/*"])
    except HFValidationError as error:
        raise SettingError("", f"{text} is not a model of the Hub: {str(error).splitlines()[0]}") from None
    except (RepositoryNotFoundError, RevisionNotFoundError):  # also of a model whose terms are not accepted
        asked = f"{repository} with the revision {revision}" if revision else repository
        advice = "check the spelling; a private model needs HF_TOKEN, or first that you accept its terms on its page"
        raise SettingError("", f"the Hub gives no model {asked}", advice=advice) from None
    except LocalEntryNotFoundError:
        reason = "HF_HUB_OFFLINE forbids downloads" if constants.HF_HUB_OFFLINE else "the Hub can't be reached"
        advice = "copy the model's folder here and give its path, or set HF_HOME or HF_ENDPOINT"
        raise OSError(f"{text} is not in the cache, and {reason}: {advice}") from None
    return folder
