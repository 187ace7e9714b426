"""fairseq's binary format, made by fairseq-preprocess in a process of its own."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from rskip.corpora.record import RECORD_FILE
from rskip.corpora.stages.assemble import DICTIONARY
from rskip.corpora.stages.setting import Setting
from rskip.files.whole import DiskFull

BINARISED = "binarised"


def find_fairseq_preprocess() -> Path:
    """The command beside the running Python.

    :raises FileNotFoundError: fairseq is not installed there.
    """
    path = Path(sys.executable).parent / "fairseq-preprocess"
    if not path.is_file():
        raise FileNotFoundError(
            f"no fairseq-preprocess in {path.parent}: install fairseq with `rskip setup-fairseq`"
        )
    return path


def binarise_shard(setting: Setting, texts: Path, shard: int, sentences: Mapping[str, int]) -> None:
    """Leaves `binarised/shardN`, which appears when it is whole."""
    name = f"shard{shard + 1}"
    folder = setting.work.folder(BINARISED) / name
    if folder.exists() or (setting.work.result / RECORD_FILE).exists():
        return
    building = folder.with_name(f"{name}.new")
    if building.exists():
        shutil.rmtree(building)
    source, target = setting.languages
    pairs = sum(sentences.values())
    print(f"binarise: {pairs:,} pairs, by fairseq-preprocess (no progress output)", file=sys.stderr)
    binarise(
        texts / name,
        building,
        source=source,
        target=target,
        sentences=sentences,
        dictionary=texts / DICTIONARY,
        workers=setting.workers,
    )
    building.rename(folder)


def binarise(
    text: Path,
    destination: Path,
    *,
    source: str,
    target: str,
    sentences: Mapping[str, int],
    dictionary: Path,
    workers: int,
) -> None:
    """Writes dict.<language>.txt and each split's .bin and .idx of both languages.

    :param text: folder with `<split>.<language>`: tokens joined by spaces, one sentence a line.
    :param sentences: the splits, and how many sentences each must come out with. Several test sets are test, test1,
        test2 and so on, in this order.
    :param dictionary: of both languages.
    :param workers: processes; their number does not change the result.
    :raises OSError: fairseq-preprocess failed; says its last words.
    """
    command = [str(find_fairseq_preprocess()), "--source-lang", source, "--target-lang", target]
    tests = [split for split in sentences if split.startswith("test")]
    assert tests == [f"test{number or ''}" for number in range(len(tests))]
    for kind, splits in (("train", ["train"]), ("valid", ["valid"]), ("test", tests)):
        if present := [str(text / split) for split in splits if split in sentences]:
            command += [f"--{kind}pref", ",".join(present)]
    command += ["--destdir", str(destination), "--joined-dictionary", "--srcdict", str(dictionary)]
    # Of several parts fairseq makes all but the first at once, and that one when the others are done.
    command += ["--workers", str(workers if workers == 1 else workers + 1)]
    # It inherits the lock of one_at_a_time: if this process is killed, the next one waits for its child.
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, close_fds=False, start_new_session=True) as process:
        try:
            printed = b"".join(process.communicate()).decode("utf-8", errors="replace")
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # its workers too
            raise
    if process.returncode:
        output = [line for line in printed.splitlines() if line.strip()]
        last = output[-1].strip() if output else "it printed nothing"
        if os.strerror(errno.ENOSPC) in last:
            raise DiskFull(errno.ENOSPC, "in fairseq-preprocess", str(destination))
        raise OSError(f"fairseq-preprocess ended with status {process.returncode}: {last}")
    (destination / "preprocess.log").unlink(missing_ok=True)  # holds paths that are gone by then
    for split, expected in sentences.items():
        for language in (source, target):
            path = destination / f"{split}.{source}-{target}.{language}.idx"
            if (count := binarised_sentences(path)) != expected:
                raise OSError(
                    f"fairseq-preprocess wrote {count:,} of {expected:,} sentences: {path.name}"
                )


def binarised_sentences(index: Path) -> int:
    """How many sentences an .idx file of fairseq's "mmap" format counts.

    :raises ValueError: a file of another format.
    """
    with index.open("rb") as file:
        header = file.read(26)
    if len(header) < 26 or not header.startswith(b"MMIDIDX\0\0"):
        raise ValueError(f"{index} is not an index of fairseq's mmap format")
    return int(struct.unpack("<QBQ", header[9:])[2])
