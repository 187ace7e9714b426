"""Stands for fairseq-preprocess: indices with the right counts, no data."""

import pathlib
import struct
import sys

option = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=False))
out, languages = pathlib.Path(option["--destdir"]), (option["--source-lang"], option["--target-lang"])
out.mkdir(parents=True, exist_ok=True)
for split in ("train", "valid", "test"):
    for language in languages:
        count = len(pathlib.Path(f"{option[f'--{split}pref']}.{language}").read_text().splitlines())
        name = f"{split}.{'-'.join(languages)}.{language}"
        (out / f"{name}.idx").write_bytes(b"MMIDIDX\0\0" + struct.pack("<QBQ", 1, 4, count))
        (out / f"{name}.bin").write_bytes(b"")
        (out / f"dict.{language}.txt").write_text("a 1\n")
