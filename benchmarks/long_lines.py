"""Translation of lines with several sentences, unsplit and split, with a model trained on one sentence per line.

It translates Multi30k's test set with k sentences per line, with this project's `2rskip+ln` model. It reports sacreBLEU
of lines that were translated whole, and sentence by sentence. Then it translates one line of 5,000 words with rskip and
with CTranslate2. Prints tables and appends one JSON line to
study/results/benchmarks/long_lines.jsonl.

    python benchmarks/long_lines.py [--mirror FOLDER] [--sentences 1000] [--words 5000]
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ctranslate2
from decoding.workloads import CHECKPOINTS
from measuring.multi30k import multi30k
from measuring.record import append_record, benchmark_parser

from rskip.checkpoint import build_transformer, read_checkpoint
from rskip.translation import Translator
from rskip.translation.ctranslate2_model import write_ctranslate2
from rskip.translation.metrics import score

SENTENCES_A_LINE = (1, 2, 4, 8, 40)
STOCK, RECURSIVE = "multi30k_en_de/1xskip_ln", "multi30k_en_de/2rskip_ln"


def test_set(mirror: str | None, sentences: int) -> tuple[list[str], list[str]]:
    """Sources and references."""
    texts = multi30k("test", mirror)
    return texts["en"][:sentences], texts["de"][:sentences]


def joined(sentences: Sequence[str], count: int) -> list[str]:
    """Joins this number of sentences per line."""
    return [" ".join(sentences[start : start + count]) for start in range(0, len(sentences), count)]


def measure_lines(source: Sequence[str], reference: Sequence[str]) -> list[dict[str, Any]]:
    """sacreBLEU by the number of sentences per line."""
    translator = Translator.from_pretrained(CHECKPOINTS / RECURSIVE)
    rows = []
    for count in SENTENCES_A_LINE:
        lines, references = joined(source, count), joined(reference, count)
        row: dict[str, Any] = {"sentences_a_line": count}
        for name, split in (("whole", False), ("split", True)):
            found = translator.translate(lines, too_long="keep", split_sentences=split)
            row[name] = round(score([each.text for each in found], references)["sacrebleu"].value, 2)
        rows.append(row)
    return rows


def measure_line(words: Sequence[str]) -> list[dict[str, Any]]:
    """The number of words in the translation of one long line."""
    line, rows = " ".join(words), []
    translator = Translator.from_pretrained(CHECKPOINTS / STOCK)
    for name, split in (("split", True), ("whole", False)):
        (found,) = translator.translate([line], too_long="keep", split_sentences=split)
        rows.append({"system": f"ours, {name}", "words": len(found.text.split())})
    checkpoint = read_checkpoint(CHECKPOINTS / STOCK / "model.safetensors")
    source, target = translator.tokenizer.source, translator.tokenizer.target
    model = build_transformer(checkpoint, source_vocabulary=len(source), target_vocabulary=len(target))
    tokens = translator.tokenizer.tokens(line)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "model")
        write_ctranslate2(model, folder, source=source, target=target)
        other = ctranslate2.Translator(str(folder), device="cpu", compute_type="float32")
        for name, settings in (("CTranslate2", {}), ("CTranslate2, max_input_length=0", {"max_input_length": 0})):
            try:
                found = other.translate_batch([tokens], beam_size=4, **settings)[0].hypotheses[0]
                rows.append({"system": name, "words": len(translator.tokenizer.text.decode(" ".join(found)).split())})
            except RuntimeError as error:
                rows.append({"system": name, "words": None, "error": str(error)})
    return rows


def main() -> None:
    parser = benchmark_parser(__doc__, "long_lines")
    parser.add_argument("--mirror", help="folder or address with Multi30k's files (default: its publisher)")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--words", type=int, default=5000)
    args = parser.parse_args()

    source, reference = test_set(args.mirror, args.sentences)
    lines = measure_lines(source, reference)
    print("| sentences per line | whole | split |\n|---|---|---|")
    for row in lines:
        print(f"| {row['sentences_a_line']} | {row['whole']} | {row['split']} |")
    line = measure_line(" ".join(source).split()[: args.words])
    print("\n| system | words of the translation |\n|---|---|")
    for row in line:
        print(f"| {row['system']} | {row['words'] if row['words'] is not None else row['error']} |")
    append_record(args.output, "long_lines", {"lines": lines, "words": args.words, "line": line})


if __name__ == "__main__":
    main()
