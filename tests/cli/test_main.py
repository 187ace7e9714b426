"""`rskip SUBCOMMAND`: finding subcommands, exit statuses, one-line errors."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import types

import pytest

import rskip.cli
from rskip.cli import main as cli
from rskip.connections import parse_connection
from rskip.formulas import registry
from rskip.settings.errors import SettingError
from rskip.settings.user_dir import suggested_command, user_dir


def subcommand(run) -> types.SimpleNamespace:
    """A stand-in for a subcommand's module."""

    def add_arguments(parser) -> None:
        parser.add_argument("--gpus")

    return types.SimpleNamespace(__name__="it", __doc__="Do it: 100 %.\n\nMore.", add_arguments=add_arguments, run=run)


@pytest.fixture
def only(monkeypatch):
    """Makes `rskip it` the one subcommand, with this `run`."""

    def install(run) -> None:
        monkeypatch.setattr(cli, "subcommands", lambda group: ["it"] if group is rskip.cli else [])
        monkeypatch.setattr(cli, "documentation", lambda name, group: subcommand(run).__doc__)
        monkeypatch.setattr(cli, "subcommand_module", lambda name, group: subcommand(run))

    return install


def test_every_command_imports_the_package_of_ones_own_connections(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(registry, "_families", dict(registry._families))
    monkeypatch.setattr(sys, "path", list(sys.path))
    package = tmp_path / "own_package_of_test"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from rskip.connections import Connection, register_connection\n\n"
        "@register_connection('own_skip', source='a test')\n"
        "class Own(Connection):\n"
        "    def combine(self, x, f):\n"
        "        return x + f\n"
    )
    assert cli.main(["zoo", "list", "--user-dir", str(package)]) == 0
    assert parse_connection("own_skip").family == "own_skip" and "RSKIP_USER_DIR" not in os.environ
    with user_dir(str(package)):
        assert os.environ["RSKIP_USER_DIR"] == str(package), "child processes import it too"
    monkeypatch.setenv("RSKIP_USER_DIR", str(package))
    with user_dir(None):
        assert suggested_command("rskip", "report") == "rskip report", "the next command reads the variable too"
    monkeypatch.delenv("RSKIP_USER_DIR")
    for words in (["--user-dir", str(tmp_path)], []):
        monkeypatch.setenv("RSKIP_USER_DIR", str(tmp_path))
        capsys.readouterr()
        assert cli.main(["zoo", "list", *words]) == 2
        name = words[0] if words else "RSKIP_USER_DIR"
        assert f"{name} is '{tmp_path}': expected an existing folder with an __init__.py" in capsys.readouterr().err
    for name, problem in (("types", "has another module named types ("), ("my.parts", "has a dot in its name")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
        assert cli.main(["zoo", "list", "--user-dir", str(tmp_path / name)]) == 2
        assert problem in capsys.readouterr().err


def raising(error: BaseException):
    def run(args):
        raise error

    return run


def test_every_subcommand_has_a_help_line_and_shows_its_help(capsys):
    modules = {(name,): cli.subcommand_module(name) for name in cli.subcommands()}
    for (group,), module in list(modules.items()):
        modules |= {(group, name): cli.subcommand_module(name, module) for name in cli.subcommands(module)}
    assert {("zoo", "list"), ("caption",), ("caption", "extract"), ("vision",), ("export", "ct2")} <= set(modules)
    for words, module in modules.items():
        group = rskip.cli if len(words) == 1 else modules[words[:1]]
        assert module.__doc__ == cli.documentation(words[-1], group), words
        with pytest.raises(SystemExit) as stop:
            cli.main([*words, "--help"])
        assert stop.value.code == 0
        usage = capsys.readouterr().out.partition(" [-h]")[0]
        assert usage.split() == ["usage:", "rskip", *words]


def test_a_word_of_a_group_that_does_something_itself_is_a_command_only_in_first_place():
    for words, work in (
        (["caption", "extract", "images", "--backbone", "b", "--output", "o"], "rskip caption extract"),
        (["caption", "./extract", "--model", "m"], "rskip caption"),
        (["caption", "images", "extract", "--model", "m"], "rskip caption"),
        (["caption", "--model", "m", "extract"], "rskip caption"),
    ):
        args = cli.build_parser(words).parse_args(words)
        assert args.command == work
    assert args.images == ["extract"]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("two\n  lines"), "two lines"),
        (FileNotFoundError("no corpus here: give one"), "no corpus here: give one"),
        (FileNotFoundError(2, "No such file or directory", "a/b"), "a/b: No such file or directory"),
        (FileNotFoundError(2, "No such file or directory", "a\nb"), r'"a\nb": No such file or directory'),
        (
            OSError(28, "No space left on device", "a"),
            "a: No space left on device; free some space and repeat the command",
        ),
        (ValueError(), "ValueError"),
        (
            ImportError("no libc10.so", name="torch._C"),
            "rskip it needs torch, which can't be imported (no libc10.so): pip install --force-reinstall torch",
        ),
    ],
)
def test_mistake_is_one_line_and_status_2(only, capsys, error, line):
    only(raising(error))
    assert cli.main(["it"]) == 2
    assert capsys.readouterr().err == f"rskip it: error: {line}\n"


@pytest.mark.parametrize("error", ["OSError", "ImportError"])
def test_a_pytorch_that_ends_its_import_with_an_error_is_named(error, only, tmp_path, monkeypatch, capsys):
    (tmp_path / "torch.py").write_text(f"raise {error}('libcudart.so: cannot open')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch")
    only(lambda args: importlib.import_module("torch"))
    assert cli.main(["it"]) == 2
    told = "needs torch, which can't be imported (libcudart.so: cannot open): pip install --force-reinstall torch"
    assert capsys.readouterr().err == f"rskip it: error: rskip it {told}\n"


def test_a_setting_is_named_by_its_flag(only, capsys):
    """Where it was given with one, and where it is what to use in place of a file's."""
    for error, line in (
        (SettingError.of_value("gpus", 3, "0 to 1"), "--gpus is 3: expected 0 to 1"),
        (SettingError("seed", "is set", instead="gpus", source="a.yaml"), "a.yaml: seed is set; use --gpus"),
        (SettingError.of_value("gpus", 3, "1", source="a.yaml"), "a.yaml: gpus is 3: expected 1"),
        (SettingError("a", "is\nb", instead="other"), "a is b; use other"),
    ):
        only(raising(error))
        assert cli.main(["it"]) == 2
        assert capsys.readouterr().err == f"rskip it: error: {line}\n"


def test_unknown_subcommand_is_status_2_and_names_it(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["prepaer"])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("rskip: error: ") and "'prepaer'" in error and error.count("\n") == 1


def test_a_wrong_argument_is_named_with_its_command(capsys):
    for arguments, said in (
        (["doctor", "--mine", "1"], "unrecognized arguments: --mine 1"),
        (["run", "mine", "--seeds", "a"], "argument --seeds: expected a whole number, got 'a'"),
        (["translate", "--model", "m", "--lenpen", "b"], "argument --lenpen: expected a number, got 'b'"),
    ):
        with pytest.raises(SystemExit) as stop:
            cli.main(arguments)
        assert stop.value.code == 2
        assert f"error: {said} (see rskip {arguments[0]} --help)\n" in capsys.readouterr().err


def test_negative_numbers_are_no_flags(capsys):
    for given, printed in (("-1e3", "-1000.0"), ("-.5", "-0.5"), ("-inf", "-inf")):
        arguments = ["translate", "--model", "m", "--temperature", given]
        assert cli.main(arguments) == 2
        assert capsys.readouterr().err.startswith(f"rskip translate: error: --temperature is {printed}: expected a")


def test_closed_output_is_no_traceback(tmp_path):
    """As in `rskip ... | head -n 1`."""
    code = (
        "from types import SimpleNamespace as S\nfrom rskip.cli import main as cli\n"
        "cli.subcommands = lambda group: ['it'] if group.__name__ == 'rskip.cli' else []\n"
        "def run(args):\n    for _ in range(100_000): print('line')\n"
        "it = S(__name__='it', __doc__='', add_arguments=lambda parser: None, run=run)\n"
        "cli.documentation = lambda name, group: ''\n"
        "cli.subcommand_module = lambda name, group: it\n"
        "raise SystemExit(cli.main(['it']))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout and process.stderr
    assert process.stdout.readline() == "line\n"
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 141
