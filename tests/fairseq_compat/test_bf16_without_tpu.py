"""Patch of --bf16, which turned on --tpu."""

from __future__ import annotations

PARSE = """
from fairseq import options
for flags in {flags!r}:
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, ["data", "--arch", "transformer", *flags])
    print(*flags, args.bf16, args.tpu)
"""


def test_bf16_turns_on_tpu_without_the_patch(python):
    process = python(PARSE.format(flags=[["--bf16"], ["--memory-efficient-bf16"]]), without="bf16")
    assert process.stdout == "--bf16 True True\n--memory-efficient-bf16 True True\n"


def test_tpu_is_on_only_where_it_was_given(python):
    expected = {
        "--bf16": "True False",
        "--memory-efficient-bf16": "True False",
        "--bf16 --tpu": "True True",
        "--tpu": "False True",
        "--cpu": "False False",
    }
    process = python(PARSE.format(flags=[flags.split() for flags in expected]))
    assert process.stdout.splitlines() == [f"{flags} {found}" for flags, found in expected.items()], process.stderr
