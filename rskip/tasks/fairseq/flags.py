"""Flags of fairseq's programs in recipes, and what fairseq's own parser says of them before any work."""

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

Flag = str | int | float | bool | None
Flags = Annotated[Mapping[str, Flag], msgspec.Meta(extra={"expected": "flags and their values"})]


@dataclass(frozen=True, kw_only=True)
class FairseqFlags:
    """A setting that holds flags of one of fairseq's programs.

    section: its name, such as `train`.
    program: fairseq-train or fairseq-generate.
    before: what the program is given beside them, as words.
    flags: without leading dashes.
    source: of the settings, for errors.
    """

    section: str
    program: str
    before: Sequence[str]
    flags: Mapping[str, Flag]
    source: str = ""


def check_fairseq_flags(given: Sequence[FairseqFlags]) -> None:
    """Has fairseq parse them, in one process for all, which takes seconds; without fairseq nothing is checked.

    :raises SettingError: the first flag that it refuses.
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
        return  # fairseq can't be started, as its program will say
    for number, (flag, why) in json.loads(process.stdout.splitlines()[-1]).items():
        each = given[int(number)]
        name = f"{each.section}.{flag}" if flag else each.section
        problem = f"is {shown(each.flags[flag])}, which" if flag else "holds what"
        short = why if len(why) <= 100 else f"{why[:97]}..."  # of a choice fairseq lists hundreds
        raise SettingError(name, f"{problem} {each.program} refuses ({short})", source=each.source)


def device_arguments(*, gpu: bool) -> list[str]:
    """The CPU, or one GPU: fairseq would take all that it sees, and fairseq-generate translate one GPU's part."""
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
