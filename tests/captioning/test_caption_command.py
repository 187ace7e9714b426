"""`rskip caption`: lines of text for images, JSON lines for folders, and plots."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from rskip.captioning import captioner as captioner_module
from rskip.captioning.captioner import Captioner
from rskip.captioning.outputs import attention_files
from rskip.cli.main import build_parser, main


@pytest.fixture(scope="module")
def model(captioning_folder, mean_colours):
    return captioning_folder(mean_colours().description)


@pytest.fixture
def caption(model, mean_colours, capsys, monkeypatch):
    """Runs the command in this process: gives its status, its output and its stderr."""
    monkeypatch.setattr(captioner_module, "backbone_of", lambda *_, **__: mean_colours())

    def caption(*arguments):
        status = main(["caption", "--model", str(model), "--device", "cpu", *map(str, arguments)])
        return status, *capsys.readouterr()

    return caption


@pytest.fixture
def expected(model, mean_colours, pictures):
    """The captions of the folder's images by path."""
    loaded = Captioner.from_pretrained(model)
    captioner = Captioner(loaded.model, loaded.dictionary, backbone=mean_colours)
    paths = [pictures / name for name in ("a.png", "b.jpg", "c.JPG", "d.webp", "more/a.png")]
    return {str(path): captioner(path) for path in paths}


def written(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_a_picture_and_the_failed_ones_at_the_end(caption, expected, pictures):
    lines = [f"{path}\t{text}" for path, text in expected.items()]
    assert caption(pictures) == (0, "".join(f"{line}\n" for line in lines), "")
    assert caption(pictures / "b.jpg", pictures / "a.png")[1].splitlines() == [lines[1], lines[0]]
    (pictures / "b.jpg").write_text("words")
    status, out, err = caption(pictures, "--batch-size", "2")
    assert status == 2 and out.splitlines() == [lines[0], *lines[2:]]
    assert "b.jpg: not an image" in err and err.splitlines()[-1] == "rskip caption: 1 of 5 images failed"


def test_several_captions_and_json(caption, expected, pictures):
    best, second = caption(pictures / "a.png", "--nbest", "2")[1].splitlines()
    path, score, text = best.split("\t")
    assert text == expected[path] and float(score) >= float(second.split("\t")[1])
    content = json.loads(caption(pictures / "a.png", "--nbest", "2", "--format", "json")[1])
    assert content["image"] == path and content["caption"] == text and len(content["hypotheses"]) == 2
    assert content["hypotheses"][0]["tokens"] == text.split()
    assert len(content["hypotheses"][0]["token_scores"]) == len(text.split()) + 1


def test_a_folder_becomes_json_lines(caption, expected, pictures, tmp_path):
    output = tmp_path / "out" / "captions.jsonl"
    assert caption(pictures, "--output", output)[0] == 0
    assert {each["image"]: each["caption"] for each in written(output)} == expected
    assert list(output.parent.iterdir()) == [output]
    status, _, err = caption(pictures, "--output", output, "--resume")
    said = "exists and was not checked against this input or these settings: delete it to start again"
    assert status == 0 and err == f"{output} {said}\n"


def test_resuming_tries_failed_images_again(caption, pictures, tmp_path, monkeypatch):
    whole, output = tmp_path / "whole.jsonl", tmp_path / "captions.jsonl"
    options = ["--output", output, "--batch-size", "2", "--quiet", "--resume"]
    assert caption(pictures, "--output", whole, "--batch-size", "2")[0] == 0
    content = (pictures / "b.jpg").read_bytes()
    (pictures / "b.jpg").write_text("words")
    for changed in ((), ("--max-len-b", "1")):
        status, _, err = caption(pictures, *options, *changed)
        assert status == 2 and "b.jpg: not an image" in err and "--resume retries them" in err
    kept = [each for each in written(output) if "error" not in each]  # also in the batch of the failed image
    assert kept == [each for each in written(whole) if not each["image"].endswith("b.jpg")]
    (pictures / "b.jpg").write_bytes(content)
    status, _, err = caption(pictures / "b.jpg", *options)  # of the others the captions would be lost
    assert status == 2 and "images that are not given" in err and len(output.read_text().splitlines()) > 1
    search, sizes = Captioner.search, []
    monkeypatch.setattr(Captioner, "search", lambda *args: sizes.append(len(args[1])) or search(*args))
    assert caption(pictures, *options) == (0, "", "") and sizes == [2]  # the batch of the failed image
    assert output.read_bytes() == whole.read_bytes() and {*tmp_path.glob("*.jsonl*")} == {whole, output}


WITHOUT_EFFECT = {
    "images",  # compared by their checksums
    "output", "resume", "quiet", "format", "attention_folder", "sheet",  # --output always writes JSON lines
    "backbone_weights",  # must be those of the model's features
    "version", "user_dir", "command", "work", "imports_user_dir", "flags",  # of every command
}  # fmt: skip


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_an_interrupted_run_is_resumed(stop, caption, pictures, tmp_path, monkeypatch):
    (pictures / "b.jpg").write_text("words")
    whole, output = tmp_path / "whole.jsonl", tmp_path / "captions.jsonl"
    assert caption(pictures, "--output", whole, "--batch-size", "2")[0] == 2
    search, calls = Captioner.search, []

    def stopped(self, features, options):
        calls.append(len(features))
        if len(calls) == 2:
            raise stop
        return search(self, features, options)

    monkeypatch.setattr(Captioner, "search", stopped)
    options = ["--output", output, "--batch-size", "2"]
    status, _, err = caption(pictures, *options)
    assert status == (130 if stop is KeyboardInterrupt else 2)
    assert "the captions of 2 images are in" in err and "--resume continues from there" in err
    assert not output.exists()
    words = ["caption", "IMAGE", "--model", "MODEL"]
    recorded = json.loads((tmp_path / "captions.jsonl.partial.journal").read_text().splitlines()[0])
    unknown = vars(build_parser(words).parse_args(words)).keys() - {each.removesuffix("_sha256") for each in recorded}
    assert unknown <= WITHOUT_EFFECT, "record a flag that changes lines in `write_captions`, or list it here"
    assert "resume" in caption(pictures, *options)[2]
    assert "started with other settings (beam: 4, now 5)" in caption(pictures, *options, "--resume", "--beam", "5")[2]
    (pictures / "0.png").write_bytes((pictures / "a.png").read_bytes())
    assert "made from another input" in caption(pictures, *options, "--resume")[2]
    (pictures / "0.png").unlink()
    calls[:] = [0] * 5
    status, _, err = caption(pictures, *options, "--resume")
    assert status == 2 and "b.jpg: not an image" in err and len(calls) == 7  # of the first run's picture too
    assert output.read_bytes() == whole.read_bytes()
    assert "not an image" in written(output)[1]["error"]


def test_attention_and_a_sheet_are_drawn(caption, expected, pictures, tmp_path):
    pytest.importorskip("matplotlib", reason="extra plots is not installed")
    sheet = tmp_path / "sheet.png"
    options = ["--attention", tmp_path / "looked", "--sheet", sheet]
    assert caption(pictures / "a.png", pictures / "more", *options)[::2] == (0, "")
    drawn = sorted(path.name for path in (tmp_path / "looked").iterdir())
    assert drawn == ["a-2.png", "a.png"]
    files = attention_files([Path(each) for each in ("a/x.jpg", "b/x.jpg", "a/x-2.jpg", "X.bmp")], Path("f"))
    assert [path.name for path in files] == ["x.png", "x-3.png", "x-2.png", "X-4.png"]
    for path in (sheet, *(tmp_path / "looked" / name for name in drawn)):
        with Image.open(path) as image:
            assert image.width > 250 and len(image.convert("RGB").getcolors(1 << 24)) > 100


def test_no_picture_is_overwritten(caption, pictures, monkeypatch):
    pytest.importorskip("matplotlib", reason="extra plots is not installed")
    monkeypatch.chdir(pictures)
    before = {path: path.read_bytes() for path in pictures.rglob("*.*")}
    for options, words in (
        (["--attention", "."], "--attention would overwrite the image a.png: choose another"),
        (["--sheet", "more/../a.png"], "--sheet would overwrite the image more/../a.png: choose another"),
        (["--output", pictures / "a.png"], "--output would overwrite the image"),
        (["--attention", "new", "--sheet", "new/a.png"], "--sheet and --attention would both write new/a.png"),
    ):
        status, out, err = caption("a.png", "b.jpg", *options)
        assert status == 2 and out == "" and words in err and len(err.splitlines()) == 1
    assert {path: path.read_bytes() for path in pictures.rglob("*.*")} == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.jpg"], "none.jpg: No such file"),
        (["pictures", "--resume"], "--resume needs --output"),
        (["pictures", "--output", "o", "--sheet", "s.png"], "--sheet can't be combined with --output"),
        (["pictures", "--sheet", "s.jpg"], "expected a file name that ends in .png or .svg"),
        (["pictures", "--batch-size", "0"], "--batch-size is 0"),
        (["pictures", "--model", "multi30k"], "no captioning model in multi30k"),
    ],
)
def test_mistakes_end_in_one_line(arguments, words, caption, pictures, monkeypatch):
    monkeypatch.chdir(pictures.parent)
    status, out, err = caption(*arguments)
    assert status == 2 and out == "" and words in err and len(err.splitlines()) == 1
    assert not Path("o").exists()
