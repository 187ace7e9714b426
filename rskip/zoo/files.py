"""Finds or downloads the files of a published model, and verifies them."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from urllib.parse import quote

from rskip.extras import MissingExtra
from rskip.files.cache import ADDRESSES, expanded_path
from rskip.files.checksum import file_difference
from rskip.zoo.registry import FILE_NAME, WEIGHTS, ModelEntry, release_url

MIRROR = "RSKIP_HUB_MIRROR"
OFFLINE = "RSKIP_OFFLINE"
ATTEMPTS = 3


def model_folder(entry: ModelEntry, *, root: Path) -> Path:
    """The folder with all files of the model, verified against the registry.

    Uses the first of these that has them, each with the right checksum: the model's folder in the checkout; its folder
    in the working folder, if that is a clone; the cache; NAME in the folder or URL $RSKIP_HUB_MIRROR, or the model's
    `folder` there if it is a clone; the model's own URL; its `folder` at the URL of the release. Folders are read in
    place. Files of a URL go into the cache, where damaged files are downloaded again. With $RSKIP_OFFLINE, nothing is
    downloaded.

    :param root: root of the checkout, or the folder of the installed package, which has no models.
    :raises FileNotFoundError: the files can't be found, intact and of this version.
    :raises ValueError: a file on the server is damaged.
    :raises OSError: the server can't be reached, or the cache can't be written.
    """
    cached, mirror = cached_folder(entry), _mirror()
    folders = [root / entry.folder] if entry.folder else []
    if entry.folder and Path(FILE_NAME).is_file():
        folders.append(Path.cwd() / entry.folder)
    folders.append(cached)
    if mirror and not mirror.startswith(ADDRESSES):
        folders += [expanded_path(mirror, MIRROR) / each for each in (entry.name, entry.folder) if each]
    for folder in folders:
        if _is_whole(folder, entry):
            return folder

    looked = ", ".join(dict.fromkeys(map(str, folders)))
    nowhere = f"{entry.name}: its files, intact and of this version, are in none of the folders {looked}"
    wanted = f"{entry.name}/{WEIGHTS} and the files next to it"
    refusals: list[OSError | ValueError] = []
    offline = os.environ.get(OFFLINE, "") not in ("", "0")
    for address in [] if offline else _addresses(entry, mirror, root / FILE_NAME):
        try:
            fetch_model(entry, address, cached)
            return cached
        except MissingExtra:
            raise
        except (OSError, ValueError) as error:
            refusals.append(error)
    if len(refusals) == 1 and not isinstance(refusals[0], FileNotFoundError):
        raise refusals[0]
    tried = "; ".join(map(str, refusals)) or "no address is known from which to download them"
    tried = f"{OFFLINE} forbids downloads (unset it)" if offline else tried
    raise FileNotFoundError(f"{nowhere}; {tried}: set {MIRROR} to a clone, or to a folder or URL that has {wanted}")


def cached_folder(entry: ModelEntry) -> Path:
    """The model's folder in the cache: below `rskip` in torch.hub's folder (`torch.hub.set_dir`, $TORCH_HOME, or
    ~/.cache/torch/hub).

    The name ends in part of a checksum over all files, so each version of the model has its own folder. A file in this
    folder is either correct or damaged.
    """
    sums = "".join(f"{path} {file.sha256}\n" for path, file in sorted(entry.files.items()))
    version = hashlib.sha256(sums.encode()).hexdigest()[:8]
    return Path(_hub_folder(), "rskip", f"{entry.name}-{version}")


def _hub_folder() -> str:
    """`torch.hub.get_dir()`, without the second that importing torch takes."""
    if (torch := sys.modules.get("torch")) is not None:
        return str(torch.hub.get_dir())
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.join(os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(cache, "torch"))), "hub")


def fetch_model(entry: ModelEntry, address: str, folder: Path) -> None:
    """Downloads missing or damaged files of the model from `address`/PATH into `folder`.

    :raises FileNotFoundError: the server lacks a file, or sends a web page instead.
    :raises ValueError: a file has another size or checksum; it is removed.
    :raises OSError: the server can't be reached, or `folder` can't be written.
    """
    from rskip.files.download import download  # needs an extra

    for path, file in entry.files.items():
        download(
            f"{address}/{quote(path)}",
            folder / path,
            size=file.size,
            sha256=file.sha256,
            otherwise=f"set {MIRROR} to another folder or URL that has it",
            attempts=ATTEMPTS,
        )


def _mirror() -> str:
    mirror = os.environ.get(MIRROR, "")
    if "://" in mirror and not mirror.startswith(ADDRESSES):
        raise ValueError(f"{MIRROR}={mirror}: expected a folder, or a URL that begins with {' or '.join(ADDRESSES)}")
    return mirror


def _addresses(entry: ModelEntry, mirror: str, registry: Path) -> list[str]:
    mirrored = [f"{mirror.rstrip('/')}/{entry.name}"] if mirror.startswith(ADDRESSES) else []
    own = [entry.url.rstrip("/")] if entry.url else []
    release = release_url(registry) if entry.folder and registry.is_file() else None
    return mirrored + own + ([f"{release.rstrip('/')}/{quote(entry.folder or '')}"] if release else [])


def _is_whole(folder: Path, entry: ModelEntry) -> bool:
    """Whether the folder has every file, readable and with the right checksum."""
    try:
        return all(
            file_difference(folder / path, size=file.size, sha256=file.sha256) is None
            for path, file in entry.files.items()
        )
    except OSError:  # a file can't be read, or the folder's name is too long
        return False
