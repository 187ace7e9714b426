"""A stock Transformer that fairseq trained, averaged and converted, translates in fairseq-generate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rskip.checkpoint import (
    average_to_file,
    best_checkpoints,
    from_stock,
    last_checkpoints,
    read_checkpoint,
    to_stock,
    write_checkpoint,
)
from rskip.checkpoint.tensors import tied_names

SIZES = {"embed-dim": 16, "ffn-embed-dim": 32, "layers": 2, "attention-heads": 2}
WORDS = {"one": "eins", "two": "zwei", "three": "drei", "four": "vier", "five": "fünf"}


@pytest.fixture(scope="module")
def fairseq(fairseq_program) -> Callable[..., str]:
    """Runs one of fairseq's commands and gives its standard output."""
    pytest.importorskip("fairseq")

    def run(command: str, *arguments: object, cwd: Path) -> str:
        done = fairseq_program(f"fairseq-{command}", *map(str, arguments), folder=cwd)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return run


@pytest.fixture(scope="module")
def corpus(fairseq, tmp_path_factory) -> Path:
    """A folder with the binarised corpus in `bin`."""
    folder = tmp_path_factory.mktemp("corpus")
    words = list(WORDS)
    for split, number in (("train", 40), ("valid", 5), ("test", 8)):
        sentences = [[words[(i * k + k) % 5] for k in range(1, 3 + i % 4)] for i in range(number)]
        (folder / f"{split}.en").write_text("".join(" ".join(s) + "\n" for s in sentences), encoding="utf-8")
        (folder / f"{split}.de").write_text(
            "".join(" ".join(WORDS[word] for word in s) + "\n" for s in sentences), encoding="utf-8"
        )
    prefixes = [argument for split in ("train", "valid", "test") for argument in (f"--{split}pref", split)]
    fairseq("preprocess", "-s", "en", "-t", "de", *prefixes, "--joined-dictionary", "--destdir", "bin", cwd=folder)
    return folder


@pytest.mark.slow
def test_averaged_and_converted_files_translate_alike(fairseq, corpus, tmp_path):
    flags = [
        flag for stack in ("encoder", "decoder") for name, size in SIZES.items() for flag in (f"--{stack}-{name}", size)
    ]
    run = tmp_path / "checkpoints"
    fairseq(
        *("train", "bin", "-s", "en", "-t", "de", "--arch", "transformer", *flags, "--share-all-embeddings"),
        *("--optimizer", "adam", "--lr", "1e-2", "--max-tokens", 100, "--max-epoch", 3, "--save-dir", run, "--cpu"),
        *("--eval-bleu", "--eval-bleu-args", '{"beam": 1}', "--keep-best-checkpoints", 2, "--num-workers", 0),
        cwd=corpus,
    )
    assert len(best_checkpoints(run, 2)) == 2
    averaged = tmp_path / "averaged.pt"
    average_to_file(last_checkpoints(run, 3), averaged)

    published, converted = tmp_path / "model.safetensors", tmp_path / "converted.pt"
    average_to_file(last_checkpoints(run, 3), published)
    average_to_file([published], converted)
    checkpoint = read_checkpoint(published)
    assert checkpoint.config["arch"] == "transformer"
    assert (checkpoint.config["source_lang"], checkpoint.config["target_lang"]) == ("en", "de")
    assert checkpoint.config["model"]["encoder_layers"] == 2
    assert checkpoint.config["model"]["encoder_normalize_before"] is False
    assert set(tied_names(checkpoint.model)) == {
        "decoder.embed_tokens.weight",
        "decoder.output_projection.weight",
    }
    for place in (str(tmp_path), str(corpus), "save_dir"):
        assert place.encode() not in published.read_bytes()

    renamed = tmp_path / "renamed.pt"
    checkpoint.model = to_stock(from_stock(checkpoint.model), connection="1xskip+ln")
    write_checkpoint(renamed, checkpoint)

    def translations(path: Path) -> list[str]:
        output = fairseq("generate", "bin", "--path", path, "--beam", 2, "--cpu", "--num-workers", 0, cwd=corpus)
        return [line for line in output.splitlines() if line[:2] in ("H-", "P-")]

    expected = translations(averaged)
    assert len(expected) == 16
    assert translations(converted) == expected
    assert translations(renamed) == expected
