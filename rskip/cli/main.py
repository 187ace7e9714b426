"""`rskip SUBCOMMAND ...`: finds the subcommand's file, parses its arguments, runs it.

A subcommand is a module of this package: `rskip setup-fairseq` is `setup_fairseq.py`. The first line of its docstring
is its help. Only the module of the named command is imported. It has the functions `add_arguments(parser)` and
`run(args) -> int | None` (an exit status). If the work needs imports that the help does not, such as PyTorch, `run` is
in a module of its own, whose name begins with an underscore: `rskip translate` is `translate.py` and `_translate.py`.

COMMANDS of a module names commands of two words: `rskip zoo list` is `add_list_arguments` and `run_list` of `zoo.py`,
and the help is the docstring of the latter. A module with COMMANDS may be a command too: `rskip caption` runs
`caption.py`, and `rskip caption extract` its `run_extract`.

Every command has `--user-dir`, unless its module sets
ENDS_WITH_FAIRSEQS, because its arguments end with those of fairseq-train. The user-dir is imported before the command
runs, unless the module sets CHECKS_USER_DIR. A user's mistake (ValueError, OSError) becomes one line on stderr and exit
status 2.
"""

from __future__ import annotations

import argparse
import errno
import gc
import importlib
import importlib.util
import inspect
import pkgutil
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

import rskip.cli
from rskip.cli._streams import finish_output, use_own_streams
from rskip.extras import MissingExtra, advice, missing_torch, require_torch
from rskip.files.names import line_name
from rskip.settings.errors import UNKNOWN, SettingError
from rskip.settings.user_dir import user_dir

MISTAKE, INTERRUPTED, OUTPUT_CLOSED = 2, 130, 141
TERMINATED = 128 + signal.SIGTERM
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# A setting's name in Python, if it isn't part of a path or of another name.
_SETTING = re.compile(r"(?<![\w./='\"-])[a-z]+(?:_[a-z]+)+(?![\w/='\"-]|\.\w)")
# Which extra to install for a package that several extras install.
_EXTRAS = {
    **dict.fromkeys(("rskip train", "rskip initialise"), "fairseq"),
    **dict.fromkeys(("rskip prepare", "rskip lm", "rskip generate"), "translation"),
    **{"rskip vision": "vision", "rskip caption": "captioning"},
    **{"rskip export onnx": "onnx", "rskip export ct2": "ct2"},
}


class Terminated(SystemExit):
    """Raised after SIGTERM has ended a command. `advice` says how to resume."""

    def __init__(self, *advice: str) -> None:
        super().__init__(TERMINATED)
        self.advice = advice


def subcommands(group: ModuleType = rskip.cli) -> list[str]:
    """Names of the commands in a group, as typed; empty if the module is not a group.

    Modules whose name begins with an underscore are shared code, not commands.
    """
    if group is not rskip.cli:
        return sorted(getattr(group, "COMMANDS", ()))
    modules = {module.name for module in pkgutil.iter_modules(group.__path__)} - {"main"}
    return sorted(name.replace("_", "-") for name in modules if not name.startswith("_"))


def subcommand_module(name: str, group: ModuleType = rskip.cli) -> Any:
    """The module of a command, or for a command of two words an object with the same functions."""
    if group is not rskip.cli:
        add_arguments, run = getattr(group, f"add_{name}_arguments"), getattr(group, f"run_{name}")
        return SimpleNamespace(__doc__=inspect.getdoc(run), add_arguments=add_arguments, run=run)
    return importlib.import_module(f"{group.__name__}.{name.replace('-', '_')}")


def documentation(name: str, group: ModuleType = rskip.cli) -> str:
    """The docstring of a command, read from its module's source: the list of commands imports none of them."""
    if group is not rskip.cli:
        return str(subcommand_module(name, group).__doc__)
    spec = importlib.util.find_spec(f"{group.__name__}.{name.replace('-', '_')}")
    return spec.loader.get_source(spec.name).split('"""')[1]  # type: ignore[union-attr]


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors take one line. It reads `-1e3` and `-inf` as numbers, not as flags."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._negative_number_matcher = re.compile(r"-(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$|-(inf|nan)$", re.IGNORECASE)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Like argparse's method, but an unknown argument is an error of the subcommand."""
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.prog = getattr(found, "command", self.prog)
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found

    def print_help(self, file: Any = None) -> None:
        """Like argparse's method, but raises errors of writing."""
        print(self.format_help(), end="", file=file or sys.stdout, flush=True)

    def error(self, message: str) -> NoReturn:
        for kind, expected in (("int", "a whole number"), ("float", "a number")):
            message = message.replace(f"invalid {kind} value: ", f"expected {expected}, got ")
        self.exit(MISTAKE, f"{self.prog}: error: {' '.join(message.split())} (see {self.prog} --help)\n")


def build_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of `rskip`, with the subcommand that `argv` names, or with all of them if it names none."""
    parser = OneLineParser(
        prog="rskip",
        description="Train, evaluate, export and analyse models with any residual connection.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    parser.set_defaults(flags={})
    _add_subcommands(parser, rskip.cli, argv, metavar="SUBCOMMAND")
    return parser


def _add_subcommands(parser: argparse.ArgumentParser, group: ModuleType, argv: Sequence[str], metavar: str) -> None:
    """Adds the command that `argv` begins with; if it begins with no command, adds all commands of the group."""
    choices = parser.add_subparsers(metavar=metavar, required=group is not rskip.cli)
    names = subcommands(group)
    for name in names if not argv or argv[0] not in names else argv[:1]:
        description = documentation(name, group).strip()
        subparser = choices.add_parser(
            name,
            help=description.partition("\n")[0].replace("%", "%%"),
            description=description.replace("%", "%%"),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if name not in argv[:1]:
            continue
        module = subcommand_module(name, group)
        inner = subcommands(module)
        if inner and (not hasattr(module, "add_arguments") or argv[1:2] and argv[1] in inner):
            _add_subcommands(subparser, module, argv[1:], metavar="COMMAND")
        else:
            module.add_arguments(subparser)
            if not getattr(module, "ENDS_WITH_FAIRSEQS", False):
                subparser.add_argument(
                    "--user-dir", metavar="FOLDER",
                    help="package with your own connections (default: the environment variable RSKIP_USER_DIR)",
                )  # fmt: skip
            imports = not getattr(module, "CHECKS_USER_DIR", False)
            flags = {action.dest: action.option_strings[0] for action in subparser._actions if action.option_strings}
            subparser.set_defaults(command=subparser.prog, work=module, imports_user_dir=imports, flags=flags)


@contextmanager
def loading_for_good() -> Iterator[None]:
    """Turns garbage collection off for a block that loads objects for the whole process, such as PyTorch.

    Otherwise Python searches those 200,000 objects for cycles during the import and again at exit, which takes a third
    of the import's time.
    """
    if not gc.isenabled():  # within such a block
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def run_module(module: str, function: str, args: argparse.Namespace) -> int | None:
    """Calls the function of a module that loads PyTorch."""
    with loading_for_good():
        run: Callable[[argparse.Namespace], int | None] = getattr(importlib.import_module(module), function)
    return run(args)


def _work(module: Any, args: argparse.Namespace) -> int | None:
    """Calls the function `run` of a command's module, or of the module that has its work."""
    if hasattr(module, "run"):
        status: int | None = module.run(args)
        return status
    package, _, name = module.__name__.rpartition(".")
    return run_module(f"{package}._{name}", "run", args)


def one_line(error: Exception, args: argparse.Namespace | None = None) -> str:
    """The message of an error on one line. It begins with the error's file name, if any, and names settings by flag."""
    if isinstance(error, SettingError):
        flags: dict[str, str] = {} if args is None else args.flags
        flags |= {f"{side}_language": f"--{side}-lang" for side in ("source", "target") if f"{side}_lang" in flags}
        name = None if error.source else flags.get(error.name)
        line = " ".join(error.sentence(name, instead=flags.get(error.instead)).split())
        return line if error.source or error.problem == UNKNOWN else with_flag_names(line, args)
    if isinstance(error, OSError) and error.strerror:
        place = f"{line_name(str(error.filename))}: " if error.filename else ""
        full = error.errno in _FULL
        return f"{place}{error.strerror}{'; free some space and repeat the command' if full else ''}"
    return with_flag_names(" ".join(str(error).split()), args) or type(error).__name__


def with_flag_names(text: str, args: argparse.Namespace | None) -> str:
    """The text with flags instead of settings' names in Python, such as --max-len-a instead of `max_length_a`.

    A name without an underscore stays, since it may be an ordinary word.
    """
    return text if args is None else _SETTING.sub(lambda name: args.flags.get(name[0], name[0]), text)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `rskip` with these arguments and returns the exit status.

    :param argv: the arguments; None: those of the process, whose standard streams are then replaced.
    """
    if argv is None:
        argv = sys.argv[1:]
        use_own_streams()
    command, args, status = "rskip", None, 0
    try:
        parser = build_parser(argv)
        args = parser.parse_args(argv)
        if args.version:
            print(f"rskip {rskip.__version__}")
        elif "work" not in args:
            parser.print_help()
        else:
            command = args.command
            with user_dir(getattr(args, "user_dir", None)) if args.imports_user_dir else nullcontext():
                status = _work(args.work, args) or 0
        sys.stdout.flush()
        return status
    except KeyboardInterrupt as interrupt:
        finish_output()
        print(f"{line_start()}{'; '.join([f'{command}: interrupted', *map(str, interrupt.args)])}", file=sys.stderr)
        return INTERRUPTED
    except Terminated as terminated:
        print("; ".join([f"{command}: terminated", *terminated.advice]), file=sys.stderr)
        raise
    except BrokenPipeError:  # the reader of the output has closed it
        finish_output()
        return OUTPUT_CLOSED
    except (ImportError, ValueError, OSError) as error:
        command = _typed_command(argv)
        error = _missing_torch(command, error) or error
        if isinstance(error, ImportError) and not isinstance(error, MissingExtra):
            raise
        finish_output()
        line = one_line(error, args)
        name = next((_EXTRAS[each] for each in _EXTRAS if f"{command} ".startswith(f"{each} ")), None)
        if isinstance(error, MissingExtra) and error.shared and name:
            line = f"{command} needs {error.name}: {advice(name)}"
        print(f"{command}: error: {line}", file=sys.stderr)
        return MISTAKE


def _missing_torch(command: str, error: Exception) -> MissingExtra | None:
    """The error of a missing PyTorch, or of one that can't be imported, if that is what failed."""
    if isinstance(error, ImportError) and not isinstance(error, MissingExtra) and error.name:
        return missing_torch(command, error) if error.name.partition(".")[0] == "torch" else None
    nameless = isinstance(error, ImportError) or (isinstance(error, OSError) and error.errno is None)
    if nameless and "torch" not in sys.modules:  # perhaps one of PyTorch's shared libraries is missing
        try:
            require_torch(command)
        except MissingExtra as missing:
            return None if missing.shared else missing
    return None


def _typed_command(argv: Sequence[str]) -> str:
    """The command that `argv` begins with, also if declaring its arguments failed."""
    words, group = ["rskip"], rskip.cli
    for word in argv[:2]:
        if word not in subcommands(group):
            break
        words.append(word)
        if (module := sys.modules.get(f"rskip.cli.{word.replace('-', '_')}")) is None:
            break
        group = module
    return " ".join(words)


def line_start() -> str:
    """The start of a line on stderr after Ctrl-C: a carriage return on a terminal, which has echoed ^C."""
    return "\r" if sys.stderr.isatty() else ""


@contextmanager
def termination_raises(resume: str = "repeat the command to resume") -> Iterator[None]:
    """Within the block, SIGTERM raises an exception instead of ending the process at once, so that clean-up code runs.

    After SIGTERM the block ends with Terminated (exit status 143), after Ctrl-C with KeyboardInterrupt. Both carry the
    advice on how to resume, which `main` prints.

    :param resume: the advice; "" if there is nothing to resume, or if the block prints the advice itself.
    """
    advice = [resume] if resume else []
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(TERMINATED))
    try:
        yield
    except SystemExit as exit:
        if exit.code == TERMINATED:
            raise Terminated(*advice) from None
        raise
    except KeyboardInterrupt:
        raise KeyboardInterrupt(*advice) from None
    finally:
        signal.signal(signal.SIGTERM, before)
