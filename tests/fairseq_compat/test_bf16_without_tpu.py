"""Patch of --bf16, which turned on --tpu."""

from __future__ import annotations

import pytest

PARSE = """
from fairseq import options
parser = options.get_training_parser()
args = options.parse_args_and_arch(parser, ["data", "--arch", "transformer", *{flags!r}])
print(args.bf16, args.tpu)
"""


@pytest.mark.parametrize("flag", ["--bf16", "--memory-efficient-bf16"])
def test_bf16_turns_on_tpu_without_the_patch(python, flag):
    assert python(PARSE.format(flags=[flag]), without="bf16").stdout == "True True\n"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--bf16"], "True False"),
        (["--memory-efficient-bf16"], "True False"),
        (["--bf16", "--tpu"], "True True"),
        (["--tpu"], "False True"),
        ([], "False False"),
    ],
)
def test_tpu_is_on_only_where_it_was_given(python, flags, expected):
    process = python(PARSE.format(flags=flags))
    assert process.stdout == expected + "\n", process.stderr
