"""Writes the report of `rskip prepare` on the user's own text."""

from __future__ import annotations

from rskip.corpora.own_corpus import WITHOUT_SPACES, OwnCorpus
from rskip.corpora.record import OwnRecord
from rskip.machine.terminal import columns


def reading_report(corpus: OwnCorpus, made: OwnRecord) -> str:
    """A table of the files, the remarks, and the sizes of the sets that were split off, without a last line feed.

    :param made: the content of the prepared folder's corpus.json.
    """
    rows: list[tuple[str, ...]] = [("read", "file", "pairs", f"words {corpus.source}", f"words {corpus.target}")]
    for split, texts in corpus.texts.items():
        for summary in texts:
            files = ", ".join(str(file) for file in summary.text.files)
            rows.append((split, files, f"{summary.pairs:,}", *(f"{count:,}" for count in summary.words)))
    lines = [columns(rows, left=(0, 1)), *corpus.remarks]
    if corpus.split_off:
        counts = ", ".join(f"{split} {made['options'][split]:,}" for split in corpus.split_off)
        line = f"split off the training pairs: {counts} (seed {made['options']['seed']})"
        if left_out := made["left_out"]:
            line += f"; dropped: {left_out:,} other pairs with the same source sentences"
        lines.append(line)
    for language in sorted({corpus.source, corpus.target} & WITHOUT_SPACES):
        if made["options"]["subwords"] == "bpe":
            lines.append(f"{language} is written without spaces: --subword sentencepiece may be better")
    return "\n".join(lines)
