"""Joins the chunks into the texts and the dictionary that fairseq-preprocess reads."""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any

from rskip.corpora.stages.deduplicate import KeptChunk
from rskip.corpora.stages.setting import Setting
from rskip.corpora.stages.subwords import COUNTS, TOKENS
from rskip.files.state import read_state
from rskip.files.whole import whole_folder
from rskip.settings.errors import SettingError
from rskip.settings.kinds import Whole
from rskip.text.dictionary import BOS, EOS, PAD, UNK
from rskip.text.pipeline import TextPipeline

ASSEMBLED = "assembled"
DICTIONARY = "dict.txt"
SPECIAL_TOKENS = (BOS, PAD, EOS, UNK)
PADDED_TO = 8


def assemble(setting: Setting, pipeline: TextPipeline, chunks: Sequence[KeptChunk], splits: Sequence[str]) -> Path:
    """Writes `shard1/train.<language>` and so on, the other splits in `shard1`, and `dict.txt`.

    The n-th of N shards gets the pairs n, n + N, n + 2N and so on, so each shard is a fair sample.

    :param splits: all splits except train.
    :returns: the folder.
    :raises SettingError: there are more shards than pairs.
    """
    folder = setting.work.path / ASSEMBLED
    if folder.exists():
        return folder
    pairs = sum(chunk.size for chunk in chunks)
    if pairs < setting.options.shards:
        raise SettingError.of_value("shards", setting.options.shards, f"at most the {pairs:,} training pairs")
    counts = setting.work.folder(COUNTS)
    subwords: Any = pipeline.subwords
    always = subwords.units() if setting.options.subwords == "sentencepiece-bytes" else []
    with whole_folder(folder) as building:
        shards = [building / f"shard{number}" for number in range(1, setting.options.shards + 1)]
        for shard in shards:
            shard.mkdir()
        write_dictionary(building / DICTIONARY, [counts / f"{chunk.name}.json" for chunk in chunks], always=always)
        for side, language in enumerate(setting.languages):
            deal_lines(
                [setting.sides(TOKENS, chunk.name)[side] for chunk in chunks],
                [shard / f"train.{language}" for shard in shards],
            )
            for split in splits:
                shutil.copyfile(setting.sides(TOKENS, split)[side], shards[0] / f"{split}.{language}")
    for chunk in chunks:
        for path in setting.sides(TOKENS, chunk.name):
            path.unlink()
    return folder


def deal_lines(sources: Sequence[Path], targets: Sequence[Path]) -> None:
    """Distributes the lines of all sources over the targets, one line to each in turn."""
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(path.open("wb")) for path in targets]
        turn = 0
        for source in sources:
            with source.open("rb") as lines:
                if len(files) == 1:
                    shutil.copyfileobj(lines, files[0], 1 << 20)
                    continue
                for line in lines:
                    files[turn].write(line)
                    turn = (turn + 1) % len(files)


def write_dictionary(path: Path, count_files: Sequence[Path], *, always: Sequence[str] = ()) -> None:
    """Writes the dictionary that fairseq-preprocess would write for the text of all chunks.

    The most frequent tokens come first, and equally frequent ones in alphabetical order. fairseq's own tokens are not
    listed. The dictionary is padded to a multiple of eight.

    :param always: tokens that are always listed, even if they don't occur.
    """
    total: Counter[str] = Counter(dict.fromkeys(always, 0))
    for counts in count_files:
        total.update(read_state(counts, dict[str, Whole], advice="remove it to prepare the corpus again"))
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{token} {count}\n" for token, count in dictionary_entries(total))


def dictionary_entries(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """The tokens of a dictionary and their counts, in the order of its lines."""
    entries = sorted(
        ((token, count) for token, count in counts.items() if token not in SPECIAL_TOKENS),
        key=lambda entry: (-entry[1], entry[0]),
    )
    padding = -(len(entries) + len(SPECIAL_TOKENS)) % PADDED_TO
    unused = (name for number in count() if (name := f"madeupword{number:04d}") not in counts)
    return entries + [(name, 0) for name in islice(unused, padding)]
