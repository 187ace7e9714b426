"""Checks the flags of fairseq's programs in recipes with fairseq's own parser, before any work."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec

from rskip.settings.errors import SettingError, shown
from rskip.tasks.process import executable

_VALUE = "text (also for a list: '1e-3,2e-3'), a number, true or false, or null"
Flag = Annotated[str | int | float | bool | None, msgspec.Meta(extra={"expected": _VALUE})]
Flags = Annotated[Mapping[str, Flag], msgspec.Meta(extra={"expected": "flags and their values"})]


@dataclass(frozen=True, kw_only=True)
class FairseqFlags:
    """A setting that holds flags of a fairseq program.

    section: name of the setting, such as `train`.
    program: fairseq-train or fairseq-generate.
    before: further arguments of the program.
    flags: the flags, without leading dashes.
    source: the source of the settings, for errors.
    """

    section: str
    program: str
    before: Sequence[str]
    flags: Mapping[str, Flag]
    source: str = ""


def check_fairseq_flags(given: Sequence[FairseqFlags]) -> None:
    """Lets fairseq parse the flags, in one process, which takes seconds. Without fairseq, checks nothing.

    :raises SettingError: fairseq refuses a flag. Names the first one.
    """
    if not given:
        return
    try:
        executable("fairseq-train")
    except FileNotFoundError:
        return
    asked = {
        str(number): {
            "program": each.program,
            "before": list(each.before),
            "flags": {name: flags_to_arguments({name: value}) for name, value in each.flags.items()},
        }
        for number, each in enumerate(given)
    }
    command = [sys.executable, "-m", "rskip.fairseq_plugin.flag_check"]
    process = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True)
    if process.returncode:
        return  # fairseq can't be started; its program will report the error
    for number, (flag, why) in json.loads(process.stdout.splitlines()[-1]).items():
        each = given[int(number)]
        name = f"{each.section}.{flag}" if flag else each.section
        problem = f"is {shown(each.flags[flag])}, which" if flag else "holds flags that"
        short = why if len(why) <= 100 else f"{why[:97]}..."  # fairseq may list hundreds of choices
        raise SettingError(name, f"{problem} {each.program} refuses ({short})", source=each.source)


def device_arguments(*, gpu: bool) -> list[str]:
    """Flags for the CPU or one GPU. fairseq would use all visible GPUs, and fairseq-generate translate only a part."""
    return ["--distributed-world-size", "1"] if gpu else ["--cpu"]


def flags_on_gpu(flags: Mapping[str, Flag]) -> dict[str, Flag]:
    """fairseq-train's flags with Adam as `rskip_adam`: the same updates and checkpoints, in few kernels."""
    stays = any(flags.get(flag) for flag in ("use-old-adam", "fp16-adam-stats"))
    return dict(flags) | ({"optimizer": "rskip_adam"} if flags.get("optimizer") == "adam" and not stays else {})


def flags_to_arguments(flags: Mapping[str, Flag]) -> list[str]:
    """`{"lr": 0.005, "bf16": True, "fp16": False}` -> `["--lr", "0.005", "--bf16"]`."""
    arguments = []
    for name, value in flags.items():
        if value is True:
            arguments.append(f"--{name}")
        elif value is not None and value is not False:
            # "=" keeps a value that begins with a dash from being read as a flag
            arguments += [f"--{name}={value}"] if str(value).startswith("-") else [f"--{name}", str(value)]
    return arguments
