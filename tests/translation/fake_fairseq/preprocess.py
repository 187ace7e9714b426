"""Stands for fairseq-preprocess: sentences of the right lengths, whose tokens are all 0."""

import itertools
import pathlib
import struct
import sys

option = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=False))
out, languages = pathlib.Path(option["--destdir"]), (option["--source-lang"], option["--target-lang"])
out.mkdir(parents=True, exist_ok=True)
for split in ("train", "valid", "test"):
    for language in languages:
        lines = pathlib.Path(f"{option[f'--{split}pref']}.{language}").read_text().splitlines()
        sizes = [len(line.split()) + 1 for line in lines]
        ends = [4 * end for end in itertools.accumulate(sizes)]
        header = b"MMIDIDX\0\0" + struct.pack("<QBQ", 1, 4, len(sizes))
        index = struct.pack(f"<{len(sizes)}i{len(sizes)}q", *sizes, *[0, *ends][: len(sizes)])
        name = f"{split}.{'-'.join(languages)}.{language}"
        (out / f"{name}.idx").write_bytes(header + index)
        (out / f"{name}.bin").write_bytes(bytes(ends[-1] if ends else 0))
        (out / f"dict.{language}.txt").write_text("a 1\n")
