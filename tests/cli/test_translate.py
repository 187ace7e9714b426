"""`rskip translate`: from files and pipes to files and pipes, with a trained model."""

from __future__ import annotations

import functools
import gzip
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch

from rskip.cli._options import flag_of
from rskip.cli._translate import journal_settings
from rskip.cli.main import build_parser, main
from rskip.cpu import precision
from rskip.cpu.linear import largest_int8_weight
from rskip.generation import SearchOptions
from rskip.kernel_forms import PRECISIONS
from rskip.machine.device import bfloat16_is_slow
from rskip.text import Dictionary, Tokenizer
from rskip.text.pipeline import TokenText
from rskip.translation import Translator
from rskip.translation.options import DEFAULT_OPTIONS, MAX_TOKENS, BatchSettings

TEXT = "A dog runs.\n\n   \nTwo men play football\r\nA woman."


@pytest.fixture(scope="session")
def model(root):
    return root / "checkpoints" / "multi30k_en_de/2rskip_ln"


@pytest.fixture(scope="session")
def translator(model):
    return Translator.from_pretrained(model)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.en"
    path.write_text(TEXT, newline="")
    return path


@pytest.fixture(scope="module")
def load():
    """`Translator.from_pretrained`, which reads each model with its own text once for all commands."""
    original = Translator.from_pretrained
    own_text = functools.cache(original)

    def load(path, *, text, text_settings, **settings):
        if text is None and not text_settings:
            return own_text(path, **settings)
        return original(path, text=text, text_settings=text_settings, **settings)

    return load


@pytest.fixture
def translate(model, capfd, load, monkeypatch):
    """Runs the command in this process: gives its status, its output and its stderr."""
    monkeypatch.setattr(Translator, "from_pretrained", load)

    def translate(*arguments):
        status = main(["translate", "--model", str(model), "--device", "cpu", *map(str, arguments)])
        captured = capfd.readouterr()
        return status, captured.out, captured.err

    return translate


@pytest.fixture
def standard_input(tmp_path):
    """Makes these bytes this process's standard input."""
    before = os.dup(0)

    def give(data: bytes) -> None:
        path = tmp_path / "standard-input"
        path.write_bytes(data)
        descriptor = os.open(path, os.O_RDONLY)
        os.dup2(descriptor, 0)
        os.close(descriptor)

    yield give
    os.dup2(before, 0)
    os.close(before)


@pytest.fixture(scope="session")
def command(model):
    return [sys.executable, "-m", "rskip", "translate", "--model", str(model), "--device", "cpu"]


@pytest.fixture(scope="session")
def sentences(shared):
    """Lines of a real test set, line ends included."""
    with gzip.open(shared / "data" / "multi30k" / "test_2016_flickr.en.gz", "rt", encoding="utf-8") as file:
        return list(file)


def take_signals():
    """A job that a shell put in the background ignores SIGINT, and so do its children, unless told otherwise."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_a_file_to_standard_output(translate, translator, text):
    status, output, error = translate(text)
    best = [translator(each) for each in ("A dog runs.", "Two men play football", "A woman.")]
    assert (status, output) == (0, f"{best[0]}\n\n   \n{best[1]}\n{best[2]}\n")
    assert "Hund" in best[0]
    assert re.fullmatch(
        r"rskip translate: 5 lines in \d.* s: .* sentences/s   .* tokens/s \(cpu, float32\)\n", error
    ), error


@pytest.mark.parametrize("arguments", [[], ["-"]])
def test_standard_input_to_a_file(translate, text, standard_input, tmp_path, arguments):
    expected = translate(text)[1]
    standard_input(TEXT.encode())
    assert translate(*arguments, "--output", tmp_path / "new" / "out.de", "--quiet") == (0, "", "")
    assert (tmp_path / "new" / "out.de").read_text() == expected
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out.de"]


def test_several_files_become_one_or_one_each(translate, text, tmp_path):
    other = tmp_path / "other.en"
    other.write_text("A cat.\n")
    first, second = translate(text)[1], translate(other)[1]
    assert translate(text, other)[1] == first + second
    translate(text, other, "--output", tmp_path / "both")
    assert (tmp_path / "both").read_text() == first + second
    translate(text, other, "--output", f"{tmp_path}/folder/")
    assert {path.name: path.read_text() for path in (tmp_path / "folder").iterdir()} == {
        "text.en": first,
        "other.en": second,
    }
    (tmp_path / "folder" / "text.en").unlink()
    (tmp_path / "folder" / "other.en").write_text("mine")
    status, _, error = translate(text, other, "--output", tmp_path / "folder", "--resume")
    said = "exists and was not checked against this input or these settings: delete it to start again"
    assert status == 0 and f"{tmp_path}/folder/other.en {said}\n" in error
    assert (tmp_path / "folder" / "text.en").read_text() == first
    assert (tmp_path / "folder" / "other.en").read_text() == "mine"


GIVEN = {
    "beam": 6, "nbest": 2, "length_penalty": 0.6, "length_penalty_kind": "gnmt", "min_length": 2, "max_length_a": 1.5,
    "max_length_b": 20, "unknown_penalty": 1.0, "temperature": 0.9, "no_repeat_ngram": 3, "sampling": True, "top_k": 5,
    "top_p": 0.9, "seed": 7,
}  # fmt: skip


def test_every_search_option_arrives(translate, text, monkeypatch):
    seen = []
    read, search = Translator.read, Translator.search
    monkeypatch.setattr(
        Translator, "read", lambda self, lines, options, **rest: seen.append(rest) or read(self, lines, options, **rest)
    )

    def searched(self, sources, options, *, max_tokens, searcher):
        seen.append((options, max_tokens))
        return search(self, sources, DEFAULT_OPTIONS, max_tokens=max_tokens, searcher=searcher)

    monkeypatch.setattr(Translator, "search", searched)
    flags = [(flag_of(SearchOptions, name), *([] if value is True else [value])) for name, value in GIVEN.items()]
    translate(text, *(each for flag in flags for each in flag), "--max-tokens", 100, "--too-long", "cut",
              "--max-source-positions", 50, "--no-split-sentences")  # fmt: skip
    assert seen == [{"split_sentences": False, "too_long": "cut", "limit": 50}, (SearchOptions(**GIVEN), 100)]
    translate(text)
    assert seen[2:] == [{"split_sentences": True, "too_long": "split", "limit": None}, (DEFAULT_OPTIONS, MAX_TOKENS)]


def test_help_names_the_flags_and_defaults_without_loading_torch(environment):
    code = "import sys; from rskip.cli.main import main; main(['translate', '--help'])"
    code = f"import atexit, sys; atexit.register(lambda: print('torch' in sys.modules)); {code}"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(COLUMNS="200"))
    assert found.stdout.endswith("False\n"), found.stderr
    words = " ".join(found.stdout.split())
    for flag, told in (("--beam N", "(default: 4)"), ("--length-penalty-kind {fairseq,gnmt}", "(default: fairseq)")):
        assert told in words.partition(f" {flag} ")[2].partition(" --")[0], flag
    assert PRECISIONS == precision.PRECISIONS


@pytest.mark.parametrize("precision", PRECISIONS)
def test_precisions(translate, text, precision):
    status, output, error = translate(text, "--precision", precision)
    if precision == "int8" and not largest_int8_weight():
        assert (status, output) == (2, "")
        assert "no exact 8-bit products: use float32 or bfloat16" in error
        return
    assert output.splitlines()[0] in ("Ein Hund rennt.", "Ein Hund läuft.") and f"(cpu, {precision})" in error
    warned = "has no bfloat16 instructions: --precision float32 is faster" in error
    assert warned == (precision == "bfloat16" and bfloat16_is_slow(torch.device("cpu")))


MISTAKES = (
    (["TMP/none.en"], "TMP/none.en"),
    (["TEXT", "--output", "TEXT"], "TEXT is an input"),
    (["TEXT", "--output", "/dev/null", "--resume"], "--resume needs --output"),
    (["TEXT", "--interactive"], "FILE can't be combined with --interactive"),
    (["--interactive"], "--interactive needs a terminal"),
    (["TEXT", "--seed", "2"], "--seed is only for --sampling"),
    (["TEXT", "--nbest", "5"], "--nbest is 5: expected at most beam (--beam), which is 4"),
    (["TEXT", "--lenpen", "nan"], "--lenpen is nan: expected a number"),
    (["TEXT", "--max-source-positions", "3", "--too-long", "keep"], "or let it be cut or split (--too-long)"),
    (["TEXT", "--device", "nowhere"], "the device 'nowhere' can't be used"),
    (["TEXT", "--dictionaries", "TMP/none"], "no folder TMP/none"),
    (["TEXT", "--text", "TMP/none"], "is TMP/none, which holds no text pipeline"),
    (["TEXT", "--model", "rskip_zoo_name"], "no model rskip_zoo_name: expected a model folder or checkpoint"),
    (["TEXT", "--model", "opus-mt-en-xx"], ", or hf:Helsinki-NLP/opus-mt-en-xx for the model of the Hugging Face Hub"),
    (["TEXT", "--target-lang", "fr"], "but the languages are en and fr"),
    (["TEXT", "--model", "transformer_2rskip_ln.multi30k"], "(did you mean 'transformer_tiny_2rskip_ln.multi30k."),
    (["TEXT", "--model", "preact_resnet20_1xskip.cifar10"], "is a model for vision: expected "),
)


def test_mistakes_are_one_line(translate, text, tmp_path):
    def filled(value):
        return value.replace("TEXT", str(text)).replace("TMP", str(tmp_path))

    for arguments, message in MISTAKES:
        status, output, error = translate(*map(filled, arguments))
        assert (status, output) == (2, ""), arguments
        assert error.startswith("rskip translate: error: ") and error.count("\n") == 1
        assert filled(message) in error
        assert [path.name for path in tmp_path.iterdir()] == ["text.en"]


def test_notes_name_flags(translate, translator, text):
    note = "its translation reached the max length, 2 tokens ({}, {})"
    _, _, error = translate(text, "--max-len-a", "0", "--max-len-b", "2")
    assert f"{text}: line 1: {note.format('--max-len-a', '--max-len-b')}\n" in error
    (found,) = translator.translate(["A dog runs."], max_length_a=0.0, max_length_b=2)
    assert found.notes == (note.format("max_length_a", "max_length_b"),)


def test_a_name_of_the_zoo_is_its_model(translate, text, model, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # where the name is no folder's
    name = "transformer_tiny_2rskip_ln.multi30k.en-de"
    status, output, error = translate(text, "--model", name, "--scores")
    assert (status, output) == translate(text, "--scores")[:2] and status == 0 and output
    (tmp_path / name).mkdir()
    none = f"no checkpoint (.safetensors, .pt) in the folder {name}"
    assert translate(text, "--model", name)[2].endswith(f"{none}\n")
    for step in (500, 1000):
        (tmp_path / name / f"checkpoint-{step}").mkdir()
        (tmp_path / name / f"checkpoint-{step}" / "config.json").write_text('{"model_type": "marian"}')
    assert f"{none}: give {name}/checkpoint-1000, the newest" in translate(text, "--model", name)[2]


def test_several_models_are_an_ensemble(translate, text, model):
    status, output, error = translate(text, "--model", f"{model}:{model}")
    assert (status, output) == translate(text)[:2] and "the model is an ensemble of " in error


def test_damaged_text_is_named_and_output_so_far_is_whole(translate, tmp_path):
    (tmp_path / "bad.en").write_bytes(b"A dog.\nA cat.\nA man.\nA \xff.\nA woman.\n")
    expected = "bad.en: line 4 is not valid UTF-8 (byte 0xff at position 3): convert the text to UTF-8 "
    expected += "(from Latin-1: iconv -f LATIN1 -t UTF-8)"
    status, output, error = translate(tmp_path / "bad.en", "--buffer-size", 2, "--quiet")
    assert (status, output) == (2, "Ein Hund.\nEine Katze.\nEin Mann.\n")
    assert error == f"rskip translate: error: {tmp_path}/{expected}\n"
    status, _, error = translate(tmp_path / "bad.en", "--buffer-size", 2, "--quiet", "--output", tmp_path / "out")
    kept = f"lines up to 2 are in {tmp_path}/out.partial: --resume continues from there"
    assert error == f"rskip translate: error: {tmp_path}/{expected}; {kept}\n"
    assert (tmp_path / "out.partial").read_text() == output


def test_lines_of_a_slow_pipe_come_out_at_once(command):
    with subprocess.Popen(
        [*command, "--quiet"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        for line, expected in (("A dog.\n", "Ein Hund.\n"), ("\n", "\n"), ("A man.\n", "Ein Mann.\n")):
            process.stdin.write(line)
            process.stdin.flush()
            assert process.stdout.readline() == expected
        process.stdin.write("A cat.")
        process.stdin.close()
        assert process.stdout.read() == "Eine Katze.\n"
    assert process.returncode == 0


def partial_lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_for_lines(process, path, count):
    while process.poll() is None and partial_lines(path) < count:
        time.sleep(0.005)


@pytest.mark.slow
def test_killed_again_and_again_it_ends_with_the_same_bytes(command, translate, tmp_path, sentences, environment):
    (tmp_path / "in.en").write_text("".join(sentences[:240]), encoding="utf-8")
    whole = translate(tmp_path / "in.en", "--buffer-size", "20", "--beam", "2", "--output", tmp_path / "whole")
    assert whole[0] == 0
    output, partial = tmp_path / "out", tmp_path / "out.partial"
    arguments = [tmp_path / "in.en", "--buffer-size", "20", "--beam", "2", "--output", output, "--resume"]
    workers = ["--workers", "2", "--threads", "2"]  # tests/machine/test_workers.py has their end with a killed process
    ends = {signal.SIGTERM: "terminated", signal.SIGINT: "interrupted"}
    for count, number, status, more in (
        (20, signal.SIGKILL, -signal.SIGKILL, []), (40, signal.SIGTERM, 143, []), (80, signal.SIGINT, 130, workers),
    ):  # fmt: skip
        words = [*command, *map(str, arguments), *more]
        process = subprocess.Popen(words, env=environment(), stderr=subprocess.PIPE, preexec_fn=take_signals)
        wait_for_lines(process, partial, count)
        process.send_signal(number)
        error = process.communicate()[1].decode()
        assert process.returncode == status and not output.exists() and "Traceback" not in error
        if number in ends:
            assert f" in {partial}: --resume continues from there\n" in error and f": {ends[number]}\n" in error
    last = translate(*arguments, *workers)
    assert last[0] == 0 and 0 < int(re.search(r"(\d+) lines in .*, 2 workers\)", last[2])[1]) <= 200
    assert output.read_bytes() == (tmp_path / "whole").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.en", "out", "whole"]


@pytest.mark.parametrize("extra", [("--sampling", "--beam", 2), ("--format", "json", "--scores")])
def test_what_was_stopped_is_resumed_with_the_same_bytes(translate, sentences, tmp_path, extra):
    source, lines = tmp_path / "in.en", "".join(sentences[:9]).encode().splitlines(keepends=True)
    arguments = (source, "--buffer-size", 2, *extra, "--output")
    source.write_bytes(b"".join(lines))
    assert translate(*arguments, tmp_path / "whole")[0] == 0
    source.write_bytes(b"".join([*lines[:5], b"\xff\n", *lines[6:]]))
    assert translate(*arguments, tmp_path / "out")[0] == 2
    source.write_bytes(b"".join(lines))
    assert (
        "other settings (--lenpen: 1.0, now 2.0): use the same settings"
        in translate(*arguments, tmp_path / "out", "--resume", "--lenpen", 2)[2]
    )
    assert (
        "other settings (--escape: yes, now no): use the same settings"
        in translate(*arguments, tmp_path / "out", "--resume", "--no-escape")[2]
    )
    status, _, error = translate(*arguments, tmp_path / "out", "--resume")
    assert status == 0 and "5 lines in" in error
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()


def test_every_flag_is_recorded_for_resuming_or_changes_no_line(monkeypatch):
    words = ["translate", "--model", "MODEL"]
    args = build_parser(words).parse_args(words)
    tokenizer = Tokenizer(TokenText("en", "de"), Dictionary([]), Dictionary([]))
    stub = SimpleNamespace(precision="float32", device=torch.device("cpu"), tokenizer=tokenizer)
    monkeypatch.setattr("rskip.cli._translate.model_sha256", lambda path: "")
    recorded = journal_settings(args, DEFAULT_OPTIONS, BatchSettings(), stub).keys()
    fields = {name: flag_of(kind, name) for kind in (SearchOptions, BatchSettings) for name in kind.__annotations__}
    flags = {fields.get(name, f"--{name.replace('_', '-')}") for name in vars(args)}
    without_effect = {
        "--files",  # compared by their checksums
        "--output", "--resume", "--progress", "--quiet", "--interactive", "--threads", "--workers",
        "--tokeniser",  # recorded as --tokenizer
        "--version", "--user-dir", "--command", "--work", "--imports-user-dir", "--flags",  # of every command
    }  # fmt: skip
    assert not flags - recorded - without_effect, (
        "--resume would mix lines with and without this flag: record it in `journal_settings` of "
        "rskip/cli/_translate.py, or list it here if it changes no line"
    )


@pytest.mark.slow
def test_ranks_share_the_input_and_make_one_file(fairseq_program, translate, model, tmp_path, sentences):
    source, lines = tmp_path / "in.en", [*sentences[:150], "\n", *sentences[150:200]]
    source.write_text("".join(lines), encoding="utf-8")
    assert translate(source, "--buffer-size", 20, "--output", tmp_path / "whole")[0] == 0
    words = ["translate", "--model", str(model), "--device", "cpu", "in.en", "--buffer-size", "20", "--output", "out"]

    source.write_bytes("".join(lines[:110]).encode() + b"\xff\n")
    process = fairseq_program("rskip", *words, folder=tmp_path, fairseq=False, ranks=2)
    assert process.returncode != 0
    assert "in.en: line 111 is not valid UTF-8" in process.stderr
    source.write_text("".join(lines), encoding="utf-8")
    process = fairseq_program("rskip", *words, "--resume", folder=tmp_path, fairseq=False, ranks=2)
    assert process.returncode == 0, process.stderr
    assert 0 < int(re.search(r"(\d+) lines in", process.stderr)[1]) < 201
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()
    assert (tmp_path / "out").read_text(encoding="utf-8").split("\n")[150] == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.en", "out", "whole"]


@pytest.mark.slow
def test_a_conversation_at_a_terminal(command):
    child, terminal = pty.fork()
    if child == 0:
        take_signals()
        limit = ["--too-long", "keep", "--max-source-positions", "8", "--max-len-a", "1", "--max-len-b", "0"]
        os.execv(command[0], [*command, "--interactive", "--scores", *limit])

    def read_until(end: bytes) -> str:
        seen = b""
        while not seen.endswith(end):
            assert select.select([terminal], [], [], 60)[0], seen
            seen += os.read(terminal, 4096)
        return seen.decode()

    read_until(b"en-de> ")
    os.write(terminal, b"A dog.\n")
    assert re.search(r"-\d\.\d{4}\tEin Hund\.\r\n", read_until(b"en-de> "))
    os.write(terminal, b"A" + 9 * b" dog" + b".\n")
    assert "let it be cut or split (--too-long))\r\n" in read_until(b"en-de> ")
    os.write(terminal, b"Dog\n")
    assert "(its translation reached the max length, 2 tokens (--max-len-a, --max-len-b))" in read_until(b"en-de> ")
    os.write(terminal, b"A woman is")
    time.sleep(0.3)
    os.write(terminal, b"\x03")
    assert "Frau" not in read_until(b"en-de> ")
    os.write(terminal, b"A cat.\n")
    assert "\tEine Katze.\r\n" in read_until(b"en-de> ")
    os.write(terminal, b"\x04")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(terminal)
