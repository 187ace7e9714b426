"""`rskip evaluate`."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from rskip.cli.main import main
from rskip.text import TextConfig, TextPipeline
from rskip.text.subwords import BytePairEncoding
from rskip.translation.metrics import score

REFERENCES = ["Ein Hund läuft schnell.", "Zwei Männer, die im Park sitzen.", "Ja!"]
HYPOTHESES = ["Ein Hund läuft schnell.", "Zwei Frauen, die im Park sitzen.", "Nein!"]


def write(path: Path, lines: list[str]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return str(path)


def as_json(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict:
    capsys.readouterr()
    assert main(["evaluate", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def data(tmp_path) -> Path:
    """A folder as `rskip prepare` makes it, as far as scoring needs it."""
    folder = tmp_path / "data-bin"
    config = TextConfig(source_language="en", target_language="de")
    TextPipeline(config, BytePairEncoding("#version: 0.2\nH u\n")).save(folder / "text")
    write(folder / "reference" / "test.de", REFERENCES)
    write(folder / "reference" / "test.en", ["A dog runs fast.", "Two men sitting in the park.", "Yes!"])
    return folder


def test_raw_text(tmp_path, capsys):
    hypothesis, reference = write(tmp_path / "hyp", HYPOTHESES), write(tmp_path / "ref", REFERENCES)
    assert main(["evaluate", "--hypothesis", hypothesis, "--reference", reference]) == 0
    expected = score(HYPOTHESES, REFERENCES)
    assert capsys.readouterr().out.splitlines() == [
        f"{hypothesis}: 3 sentences",
        "  sacreBLEU       {:6.2f}  {}".format(*expected["sacrebleu"]),
        "  chrF2           {:6.2f}  {}".format(*expected["chrf"]),
        "  exact matches    33.33 %",
    ]


def test_output_of_fairseq_generate_is_decoded_and_its_tokens_scored_too(data, tmp_path, capsys):
    # With Moses' tokenisation, subword marks, and the corpus out of order.
    lines = [
        "T-2\tJa !",
        "H-2\t-0.3\tN@@ ein !",
        "T-0\tEin H@@ und läuft schnell .",
        "H-0\t-0.1\tEin H@@ und läuft schn@@ ell .",
        "T-1\tZwei Männer , die im Park sitzen .",
        "H-1\t-0.2\tZwei Fr@@ auen , die im Park sitzen .",
    ]
    arguments = ["--generated", write(tmp_path / "generate-test.txt", lines), "--data", str(data)]
    written = as_json(arguments, capsys)
    raw = score(HYPOTHESES, REFERENCES)
    assert written.keys() == {"system"}
    assert written["system"]["sacrebleu"] == pytest.approx(raw["sacrebleu"].value)
    assert written["system"]["accuracy"] == pytest.approx(100 / 3)
    # By hand, hypotheses of 5, 8 and 2 words: 13 of 15 match, 9 of 12 pairs, 7 of 9 triples, 5 of 7 fours.
    tokenised = 100 * (13 / 15 * 9 / 12 * 7 / 9 * 5 / 7) ** 0.25
    assert written["system"]["tokenised_bleu"] == pytest.approx(tokenised)
    assert main(["evaluate", *arguments]) == 0
    printed = capsys.readouterr().out
    assert f"tokenised BLEU  {tokenised:6.2f}" in printed
    assert "not comparable with sacreBLEU" in printed


def test_data_of_fairseq_preprocess_have_only_tokenised_bleu(reversed_words, tmp_path, capsys, refused):
    references = (reversed_words / "test.b").read_text().splitlines()
    lines = [f"T-{number}\t{line}\nH-{number}\t-0.1\t{line}" for number, line in enumerate(references)]
    lines[3] = "T-3\tw1 w@@ 2 w3 w4\nH-3\t-0.1\tw1 w2 w3 w4"
    arguments = ["--generated", write(tmp_path / "log", lines), "--data", str(reversed_words / "bin")]
    written = as_json(arguments, capsys)
    assert written["system"] == {
        **dict.fromkeys(written["system"]), "sentences": 20, "tokenised_bleu": pytest.approx(100),
        "tokenised_signature": written["system"]["tokenised_signature"],
    }  # fmt: skip
    assert "tok:none" in written["system"]["tokenised_signature"]
    assert main(["evaluate", *arguments]) == 0
    printed = capsys.readouterr().out
    assert "  tokenised BLEU  100.00" in printed and "sacreBLEU  " not in printed
    assert "(on this corpus' own tokens, subwords joined: not comparable with sacreBLEU)" in printed
    for more, expected in (
        (["--split", "test1"], "has no split test1: give one of train, valid, test"),
        (["--split", "train"], "log has 20 translations but train of"),
        (["--reference", str(reversed_words / "test.b")], "--reference needs raw sentences"),
        (["--compound-split"], "--compound-split needs raw sentences"),
    ):
        refused(expected, "evaluate", *arguments, *more)
    arguments[1] = write(tmp_path / "log", ["H-0\t-0.1\ta"])
    refused("has no T lines", "evaluate", *arguments)


def test_compound_split_of_own_tokens(data, tmp_path, capsys, refused):
    lines = [
        "T-0\tEin Hund läuft @-@ schnell .",
        "H-0\t-0.1\tEin H@@ und läuft @-@ schn@@ ell .",
        "T-1\tZwei Männer , die im Park sitzen .",
        "H-1\t-0.2\tZwei Frauen , die im Park sitzen .",
        "T-2\tJa !",
        "H-2\t-0.3\tNein !",
    ]
    log = write(tmp_path / "generate-test.txt", lines)
    arguments = ["--generated", log, "--data", str(data), "--compound-split"]
    written = as_json(arguments, capsys)["system"]
    # By hand, hypotheses of 8, 8 and 2 tokens, `läuft @ ##AT##-##AT## @ schnell` in the first: 8 + 7 + 1 match,
    # 7 + 5 of 7 + 7 + 1 pairs, 6 + 4 of 6 + 6 triples, 5 + 3 of 5 + 5 fours.
    own = 100 * (16 / 18 * 12 / 15 * 10 / 12 * 8 / 10) ** 0.25
    assert written["compound_split_own_bleu"] == pytest.approx(own)
    assert written["compound_split_bleu"] != pytest.approx(own)
    assert main(["evaluate", *arguments]) == 0
    printed = capsys.readouterr().out
    assert f"    on own tokens {own:6.2f}  {written['compound_split_own_signature']}\n" in printed
    assert "tok:own|split:##AT##-##AT##" in printed

    config = TextConfig(source_language="de", target_language="en")
    TextPipeline(config, BytePairEncoding("#version: 0.2\nH u\n")).save(data / "text")
    message = "--compound-split is for translations into German, as in papers on WMT'14 "
    refused(message + f"English-German, but {data} translates into 'en': leave it out", "evaluate", *arguments)


def test_baseline(tmp_path, capsys):
    draw = random.Random(0)
    references = [" ".join(f"w{draw.randrange(30)}" for _ in range(8)) for _ in range(60)]
    worse = [line if draw.random() < 0.5 else "w0 w1 w2" for line in references]
    texts = {"hypothesis": references, "baseline": worse, "reference": references}
    arguments = [part for name, lines in texts.items() for part in (f"--{name}", write(tmp_path / name, lines))]
    arguments += ["--samples", "100"]
    written = as_json(arguments, capsys)
    assert written["system"]["sacrebleu"] == pytest.approx(100)
    assert written["baseline"]["sacrebleu"] == pytest.approx(score(worse, references)["sacrebleu"].value)
    assert [each["metric"] for each in written["comparisons"]] == ["BLEU", "chrF2"]
    assert written["comparisons"][0]["p_value"] == pytest.approx(1 / 101)
    assert main(["evaluate", *arguments]) == 0
    printed = capsys.readouterr().out
    assert "paired bootstrap, 100 resamples, system minus baseline:" in printed
    assert "p = 0.0099" in printed


def test_mistakes_are_one_line(data, tmp_path, refused):
    hypothesis, reference = write(tmp_path / "hyp", HYPOTHESES), write(tmp_path / "ref", REFERENCES)
    short = write(tmp_path / "short", HYPOTHESES[:2])
    empty = write(tmp_path / "empty", [])
    (tmp_path / "latin").write_bytes("Ein Hund\nMänner\nJa\n".encode("latin-1"))
    log = write(tmp_path / "log", ["H-0\t0\ta", "H-1\t0\tb"])
    against = ["--reference", reference]
    cases = [
        (["--hypothesis", short, *against], "short has 2 translations but"),
        (["--hypothesis", empty, *against], "empty is empty"),
        (["--hypothesis", str(tmp_path / "latin"), *against], "latin: line 2 is not valid UTF-8"),
        (["--hypothesis", str(tmp_path / "none"), *against], "No such file"),
        (["--hypothesis", hypothesis], "--hypothesis needs --reference"),
        (["--hypothesis", hypothesis, "--data", str(data), *against], "--data is only for --generated"),
        (["--generated", log, "--data", str(data), "--split", "valid", *against], "--split is not for the lines of"),
        (["--hypothesis", hypothesis, *against, "--samples", "9"], "--samples is only for --baseline"),
        (["--generated", log], "--generated needs --data"),
        (["--generated", log, "--data", str(tmp_path)], "no text pipeline in"),
        (["--generated", hypothesis, "--data", str(data)], "no H lines"),
    ]
    for arguments, message in cases:
        refused(message, "evaluate", *arguments)
