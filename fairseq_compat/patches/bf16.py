"""Makes --bf16 work without a TPU.

fairseq's option parser makes --bf16 imply --tpu, and the trainer then needs torch_xla. Today's CPUs and GPUs support
bfloat16. With this patch tpu is true only if the user gave --tpu.
"""

from __future__ import annotations

import argparse
from typing import Any

from fairseq_compat.patch import Patch, wraps


def decouple_tpu(module: Any) -> None:
    """Wraps `parse_args_and_arch`, which returns the arguments, or a pair of arguments and unknown words."""

    @wraps(module, "parse_args_and_arch")
    def parse_args_and_arch(original: Any, parser: Any, input_args: Any = None, *args: Any, **kwargs: Any) -> Any:
        result = original(parser, input_args, *args, **kwargs)
        parsed = result[0] if isinstance(result, tuple) else result
        if getattr(parsed, "bf16", False):
            tpu_parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
            tpu_parser.add_argument("--tpu", action="store_true")
            parsed.tpu = tpu_parser.parse_known_args(input_args)[0].tpu
        return result


BF16 = Patch(
    name="bf16",
    symptom="--bf16 turns on --tpu: NameError or ImportError about torch_xla",
    after={"fairseq.options": decouple_tpu},
)
