"""Writes all that the kernels need to translate sentences as an image for tests/cpu/translation.c.

    RSKIP_NATIVE=plain python translation_image.py MODEL IMAGE SENTENCE...

The image holds every array and structure that the programs of encoder, memory and decoder point to, and where the
pointers are. Weights are packed for vectors of four numbers, as on Arm. Prints what the search finds here: one line of
score and tokens per hypothesis.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np

from rskip.cpu.structures import address
from rskip.generation.compiled import CompiledSearch
from rskip.generation.options import SearchOptions
from rskip.generation.runtime import RuntimeModel
from rskip.generation.special_tokens import SpecialTokens
from rskip.text import Tokenizer

OPTIONS = SearchOptions(beam=4, nbest=2, attention=True, max_length_b=20)


class Image:
    """Arrays and structures with the places of pointers in them."""

    def __init__(self) -> None:
        self.parts: dict[int, tuple[int, bool]] = {}  # address: size, and whether it holds pointers
        self._seen: set[int] = set()

    def add(self, target: Any) -> None:
        """Adds an array or structure, and what it points to."""
        if id(target) in self._seen:
            return
        self._seen.add(id(target))
        if isinstance(target, np.ndarray):
            self._part(address(target), target.nbytes, pointers=False)
        elif isinstance(target, (ctypes.Structure, ctypes.Array)):
            self._part(ctypes.addressof(target), ctypes.sizeof(target), pointers=True)
            for each in getattr(target, "__dict__", {}).values():
                self.add(each)
        elif isinstance(target, (list, tuple)):
            for each in target:
                self.add(each)

    def _part(self, start: int, size: int, *, pointers: bool) -> None:
        known, had = self.parts.get(start, (0, False))
        self.parts[start] = max(size, known), pointers or had

    def place(self, pointer: int) -> tuple[int, int] | None:
        """The number of the part that an address is in, and its place there."""
        for number, (start, (size, _)) in enumerate(self.parts.items()):
            if start <= pointer < start + size:
                return number, pointer - start
        return None

    def write(self, path: Path, *roots: int) -> None:
        """Writes numbers and addresses that the reader knows by their order, then all parts and pointers."""
        pointers = []
        for number, (start, (size, has_pointers)) in enumerate(self.parts.items()):
            for offset in range(0, size // 8 * 8 * has_pointers, 8):
                value = ctypes.c_uint64.from_address(start + offset).value
                if value > 2**20 and (place := self.place(value)) is not None:
                    pointers.append((number, offset, *place))
        known = [self.place(root) or (-1, root) for root in roots]
        with path.open("wb") as file:
            for table in ([(len(self.parts), len(pointers))], known, pointers):
                file.write(b"".join(struct.pack(f"<{len(row)}q", *row) for row in table))
            for start, (size, _) in self.parts.items():
                file.write(struct.pack("<q", size) + ctypes.string_at(start, size))


def main() -> None:
    folder, image, sentences = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    tokenizer = Tokenizer.load(folder)
    sizes = {"source_words": len(tokenizer.source), "target_words": len(tokenizer.target)}
    runtime = RuntimeModel(folder / "model.safetensors", **sizes)
    sources = [tokenizer.encode(sentence) for sentence in sentences]
    for found in runtime.search(sources, OPTIONS, special=SpecialTokens()):
        for each in found:
            print(each.score, *each.tokens)

    model = runtime
    memory = model.encode(sources)
    length = max(map(len, sources))
    rows = len(sources) * length
    encoding, projection = model._encodings.program(rows), model._projections.program(rows)
    limits = [OPTIONS.max_length(len(source), None) for source in sources]
    search = CompiledSearch(model.library, OPTIONS, limits=limits, prefixes=None, special=SpecialTokens())
    decoding = model.decoding(memory, OPTIONS.beam)
    search.open(decoding.words, decoding.arguments.source)
    decoding.know(max(limits) + 1)
    encoder, projector = (each.program.whole()[0] for each in (encoding, projection))
    settings, states = search.search._settings, (encoding.x, projection.x)
    written = Image()
    for each in (encoder, projector, decoding.arguments, settings, *states, memory.keys_values):
        written.add(each)
    for each in (*states, *(array for pair in memory.keys_values for array in pair)):
        each[...] = 0  # the reader computes them
    structures = map(ctypes.addressof, (encoder, projector, decoding.arguments, settings))
    numbers = len(sources), OPTIONS.nbest, rows * encoding.x.shape[1] * 4
    written.write(image, *structures, *map(address, states), *numbers)


if __name__ == "__main__":
    main()
