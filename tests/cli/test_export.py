"""`rskip export`."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest
import torch

from rskip.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from rskip.cli.main import main
from rskip.text import TextPipeline, Tokenizer
from rskip.transformer import Transformer, TransformerConfig
from rskip.translation import Translator

SENTENCES = [
    "A dog runs through the grass.",
    "Two men are playing guitar on a stage.",
    "A young girl in a red dress is eating an ice cream.",
    "People are standing outside of a building.",
]


@pytest.fixture(scope="module")
def folder(root: Path) -> Path:
    return root / "checkpoints" / "multi30k_en_de/1xskip_ln"


def write_model(folder: Path, connection: str, *, vocabulary: int = 9, **settings: object) -> Path:
    """A model folder without text, of a small random model."""
    torch.manual_seed(0)
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in {"embed_dim": 8, "ffn_embed_dim": 16, "attention_heads": 2, "layers": 1}.items()
    }
    model = {**sides, "share_all_embeddings": True, **settings}
    config = TransformerConfig(
        vocabulary, vocabulary, encoder_connection=connection, decoder_connection=connection, **model
    )
    checkpoint = Checkpoint(
        model=Transformer(config).state_dict(),
        config={
            "arch": "transformer_skip_ln",
            "task": "translation",
            "source_lang": "a",
            "target_lang": "b",
            "model": {**model, "connection": connection},
        },
    )
    folder.mkdir()
    write_checkpoint(folder / "model.safetensors", checkpoint)
    lines = "".join(f"w{index} {vocabulary - index}\n" for index in range(vocabulary - 4))
    for language in "ab":
        (folder / f"dict.{language}.txt").write_text(lines)
    return folder


def test_a_folder_for_ctranslate2_translates_as_the_model_does(folder, tmp_path, capsys):
    ctranslate2 = pytest.importorskip("ctranslate2", reason="needs the extra ct2")
    output = tmp_path / "exported"
    assert main(["export", "ct2", "--model", str(folder), "--output", str(output)]) == 0
    assert str(output) in capsys.readouterr().out
    assert sorted(path.name for path in output.iterdir()) == [
        "config.json", "model.bin", "shared_vocabulary.json", "text",
    ]  # fmt: skip

    pipeline = TextPipeline.load(output / "text")
    translator = ctranslate2.Translator(str(output), intra_threads=1)
    results = translator.translate_batch([pipeline.encode(each).split() for each in SENTENCES], beam_size=4)
    found = [pipeline.decode(" ".join(result.hypotheses[0])) for result in results]
    assert found == [each.text for each in Translator.from_pretrained(folder).translate(SENTENCES, beam=4)]
    assert found[0] == "Ein Hund rennt durch das Gras."


def needs_onnx() -> None:
    for name in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(name, reason="needs the extra onnx")


def test_a_folder_of_onnx_graphs_is_asked_for_and_not_taken_for_a_checkpoint(tmp_path, capsys, refused, monkeypatch):
    """tests/translation/test_onnx.py shows what is in the folder."""
    needs_onnx()
    model, output = write_model(tmp_path / "model", "2rskip+ln"), tmp_path / "exported"
    command = ["export", "onnx", "--model", model, "--text", "tokens", "--output", output]
    asked = []

    def write(model: Transformer, folder: Path, tokenizer: Tokenizer, *, precision: str) -> None:
        asked.append((model.config.encoder_connection, len(tokenizer.source), precision))
        (folder / "onnx.json").write_text("{}")

    monkeypatch.setattr("rskip.translation.onnx_model.write_onnx", write)
    assert main([*map(str, command)]) == 0
    assert f"translate with rskip translate --model {output}" in capsys.readouterr().out
    assert main([*map(str, command), "--force", "--quantization", "int8"]) == 0
    assert asked == [("2rskip+ln", 9, "float32"), ("2rskip+ln", 9, "int8")]

    for other in ("ct2", "onnx"):
        command = ["export", other, "--model", output, "--output", tmp_path / "again"]
        refused(f"{output} holds ONNX graphs, not a checkpoint: give the model they were exported from", *command)


def test_what_is_there_is_replaced_only_if_asked_and_if_it_is_an_export(tmp_path, refused):
    pytest.importorskip("ctranslate2", reason="needs the extra ct2")
    model, output = write_model(tmp_path / "model", "2xskip+ln"), tmp_path / "exported"
    command = ["export", "ct2", "--model", model, "--text", "tokens", "--output", output]
    assert main([*map(str, command)]) == 0
    before = (output / "model.bin").read_bytes()
    refused(" exists: choose another --output", *command, "--quantization", "int8")
    assert (output / "model.bin").read_bytes() == before
    assert main([*map(str, command), "--quantization", "int8", "--force"]) == 0
    assert (output / "model.bin").read_bytes() != before

    linked = tmp_path / "linked"
    linked.symlink_to(output)
    command[-1] = linked
    assert main([*map(str, command), "--force"]) == 0 and linked.is_symlink()
    assert (output / "model.bin").read_bytes() == before and not list(tmp_path.glob(".*"))
    command[-1] = output

    for name in ("text/thesis.txt", "notes.txt"):
        (output / name).parent.mkdir(exist_ok=True)
        (output / name).write_text("mine")
        refused(f"{Path(name).name} would be lost", *command, "--force")
        (output / name).unlink()
    (output / "notes.txt").write_text("mine")
    onto_itself = ["export", "ct2", "--model", model, "--text", "tokens", "--output", model, "--force"]
    refused("would be lost", *onto_itself)
    assert (model / "model.safetensors").is_file()
    command[-1] = output / "notes.txt"
    refused("would be lost", *command, "--force")


def test_a_folder_for_hugging_face_needs_a_text_pipeline(tmp_path, refused):
    model, output = write_model(tmp_path / "model", "1xskip+ln"), tmp_path / "out"
    words = ["export", "huggingface", "--model", model, "--text", "tokens", "--output", output]
    refused("--text is tokens, but the folder needs a text pipeline", *words)
    assert not output.exists()


def test_mistakes_with_fairseqs_file(folder, tmp_path, refused):
    command = ["export", "fairseq", "--model", folder, "--output"]
    refused("ends in .pt", *command, tmp_path / "model.safetensors")
    (tmp_path / "model.pt").write_text("mine")
    refused(" exists: choose another --output", *command, tmp_path / "model.pt")
    assert (tmp_path / "model.pt").read_text() == "mine"


@pytest.mark.slow
def test_stock_fairseq_generates_what_our_translator_does(root, shared, tmp_path, fairseq_program):
    """Greedy, the first 100 test sentences, with a 2xskip+ln model that equals the trained 1xskip+ln one."""
    folder = tmp_path / "model"
    shutil.copytree(root / "checkpoints" / "multi30k_en_de/1xskip_ln", folder)
    checkpoint = read_checkpoint(folder / "model.safetensors")
    checkpoint.config["model"]["connection"] = "2xskip+ln"
    checkpoint.model.update(
        {name: 2 * tensor for name, tensor in checkpoint.model.items() if ".out_proj." in name or ".fc2." in name}
    )
    write_checkpoint(folder / "model.safetensors", checkpoint)
    with gzip.open(shared / "data" / "multi30k" / "test_2016_flickr.en.gz", "rt", encoding="utf-8") as file:
        sentences = [file.readline().rstrip("\n") for _ in range(100)]
    translator = Translator.from_pretrained(folder)
    tokens = [translator.tokenizer.text.encode(sentence) for sentence in sentences]

    assert main(["export", "fairseq", "--vanilla", "--model", str(folder), "--output", str(tmp_path / "stock.pt")]) == 0
    process = fairseq_program(
        "fairseq-interactive", str(folder), "-s", "en", "-t", "de", "--path", str(tmp_path / "stock.pt"), "--cpu",
        "--beam", "1", "--buffer-size", "100", "--batch-size", "100",
        folder=tmp_path, text="".join(f"{line}\n" for line in tokens),
    )  # fmt: skip
    assert process.returncode == 0, process.stderr[-2000:]
    lines = [line.split("\t") for line in process.stdout.splitlines() if line.startswith("H-")]
    found = [columns[2] for columns in sorted(lines, key=lambda columns: int(columns[0][2:]))]
    ours = [" ".join(each.hypotheses[0].tokens) for each in translator.translate(sentences, beam=1)]
    same = sum(one == other for one, other in zip(found, ours, strict=True))
    assert same >= 99
