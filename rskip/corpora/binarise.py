"""Binarises a corpus with fairseq-preprocess, in a separate process."""

from __future__ import annotations

import errno
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


def find_fairseq_preprocess() -> Path:
    """The command in the folder of the running Python. :raises FileNotFoundError: fairseq is not installed."""
    path = Path(sys.executable).parent / "fairseq-preprocess"
    if not path.is_file():
        raise FileNotFoundError(f"no fairseq-preprocess in {path.parent}: install fairseq with `rskip setup-fairseq`")
    return path


def binarise(
    text: Path,
    destination: Path,
    *,
    languages: tuple[str, str],
    sentences: Mapping[str, int],
    dictionary: Path,
    workers: int,
) -> None:
    """Writes dict.<language>.txt and each split's .bin and .idx of both languages.

    :param text: folder with `<split>.<language>`: tokens joined by spaces, one sentence per line.
    :param sentences: the expected number of sentences of each split. Several test sets are test, test1, test2 and so
        on, in this order.
    :param dictionary: the dictionary of both languages.
    :param workers: number of processes; it does not change the result.
    """
    command = [str(find_fairseq_preprocess()), "--source-lang", languages[0], "--target-lang", languages[1]]
    tests = [split for split in sentences if split.startswith("test")]
    for kind, splits in (("train", ["train"]), ("valid", ["valid"]), ("test", tests)):
        if present := [str(text / split) for split in splits if split in sentences]:
            command += [f"--{kind}pref", ",".join(present)]
    command += ["--destdir", str(destination), "--joined-dictionary", "--srcdict", str(dictionary)]
    # fairseq binarises all parts but the first in parallel, and then the first one.
    command += ["--workers", str(workers if workers == 1 else workers + 1)]
    # The child inherits the lock of one_at_a_time: if this process is killed, the next one waits for the child.
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, close_fds=False, start_new_session=True) as process:
        try:
            printed = b"".join(process.communicate()).decode("utf-8", errors="replace")
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # also fairseq's workers
            raise
    if process.returncode:
        output = [line for line in printed.splitlines() if line.strip()]
        last = output[-1].strip() if output else "it printed nothing"
        if os.strerror(errno.ENOSPC) in last:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(destination))
        raise OSError(f"fairseq-preprocess ended with status {process.returncode}: {last}")
    (destination / "preprocess.log").unlink(missing_ok=True)  # its paths will not exist any more
    for split, expected in sentences.items():
        for language in languages:
            path = destination / f"{split}.{'-'.join(languages)}.{language}.idx"
            with path.open("rb") as file:
                (count,) = struct.unpack("<18xQ", file.read(26))
            if count != expected:
                raise OSError(f"fairseq-preprocess wrote {count:,} of {expected:,} sentences: {path.name}")
