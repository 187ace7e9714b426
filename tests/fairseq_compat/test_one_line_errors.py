"""A user's mistake ends in one line and exit status 2. All other errors keep their traceback."""

from __future__ import annotations

import pytest

from fairseq_compat.one_line_errors import wrong_path_or_flag

CODE = """
import sys
sys.argv = [{program!r}]
from fairseq_compat import one_line_errors as errors
errors.install()
errors.install()
try:
    raise {error}
except Exception as error:
    raise RuntimeError("please ensure that the architectures match")
"""

# one rank is enough: PyTorch installs its excepthook as soon as the process group exists
RANK = """
import os, sys, torch
sys.argv = ["/bin/fairseq-train"]
from fairseq.dataclass.configs import FairseqConfig
from fairseq.distributed import utils
from fairseq_compat import one_line_errors

def main(cfg):
    raise {error}

one_line_errors.install()
cfg = FairseqConfig()
cfg.common.cpu, cfg.common.tpu = True, False
training = cfg.distributed_training
training.distributed_backend, training.distributed_init_method = "gloo", "file://" + os.path.abspath("rendezvous")
training.distributed_world_size, training.distributed_rank, training.distributed_no_spawn = 1, 0, True
utils.call_main(cfg, main)
"""

# messages of fairseq and PyTorch
OTHER_CRITERION = "Criterion does not match; please reset the optimizer (--reset-optimizer). A vs B"
TOO_LONG = (
    "Size of sample #17 is invalid (=(np.int32(7), np.int32(7))) since max_positions=(6, 6), skip this example with "
    "--skip-invalid-size-inputs-valid-test"
)
TWO_STARTS = "--finetune-from-model and --restore-file (non-default value) can not be specified together: {\n}"
RESET = "--finetune-from-model can not be set together with either --reset-optimizer or reset_lr_scheduler"
OTHER_MODEL = "Cannot load model parameters from checkpoint a/b.pt; please ensure that the architectures match."
OTHER_OPTIMIZER = "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"


def test_usage_error_in_a_program_of_fairseqs(python):
    error = "errors.UsageError('give 2, not 3')"
    process = python(CODE.format(program="/some/bin/fairseq-train", error=error), fairseq=False)
    assert process.returncode == 2
    assert process.stderr.splitlines()[-1] == "fairseq-train: error: give 2, not 3"
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("FileNotFoundError(2, 'No such file or directory', 'data-bin/x')", "data-bin/x: no such file or folder"),
        ("NotADirectoryError(20, 'Not a directory', 'train.en')",
         "train.en: this is a file: give a folder, such as one from fairseq-preprocess or `rskip prepare`"),
        ("IsADirectoryError(21, 'Is a directory', 'bin')",
         "bin: this is a folder: give a file in it, such as its checkpoint_best.pt"),
        ("FileNotFoundError('Dataset not found: tset (data-bin/a b)')",
         "no split tset in data-bin/a b: give one that was prepared, such as test"),
        ("OSError('Model file not found: a.pt')", "a.pt: no such checkpoint: give an existing file"),
        ("AssertionError('Must specify batch size either with --max-tokens or --batch-size')",
         "the batch size is missing: give --max-tokens or --batch-size, such as --max-tokens 4000"),
        (f"ValueError({TWO_STARTS!r})", "--finetune-from-model and --restore-file: give only one of them"),
        (f"ValueError({RESET!r})",
         "--finetune-from-model and --reset-optimizer (or another --reset flag): give only one of them"),
        (f"Exception({OTHER_MODEL!r})",
         "a/b.pt has another architecture: use the same flags as in its training run, or another --save-dir"),
        (f"ValueError({OTHER_OPTIMIZER!r})",
         "the checkpoint's optimizer state doesn't fit the model: use the same flags as in its training run, or "
         "--reset-optimizer"),
        (f"AssertionError({OTHER_CRITERION!r})",
         "Criterion of the checkpoint is another: use the flags of its training run (also --bf16 or --fp16), or "
         "--reset-optimizer"),
        (f"Exception({TOO_LONG!r})",
         "sample 17 is longer than the limits (6, 6): give a larger --max-source-positions and --max-target-positions, "
         "or --skip-invalid-size-inputs-valid-test"),
        ("AssertionError('Sentences lengths should not exceed max_tokens=6')",
         "a sentence has more than 6 tokens: give a larger --max-tokens"),
        ("AssertionError('--path required for generation!')", "--path required for generation!"),
        ("OSError('disk')", None),
    ],
)  # fmt: skip
def test_a_wrong_path_or_flag_is_named(error, line):
    assert wrong_path_or_flag(eval(error)) == (line and (line, 2))


@pytest.mark.parametrize(
    ("program", "error"), [("fairseq-train", "ValueError('ours')"), ("my_script.py", "errors.UsageError('x')")]
)
def test_everything_else_keeps_its_traceback(python, program, error):
    process = python(CODE.format(program=program, error=error), fairseq=False)
    assert process.returncode == 1 and "Traceback" in process.stderr


def test_a_rank_of_a_process_group_prints_its_line(python, tmp_path):
    code = RANK.format(error="one_line_errors.UsageError('give 2, not 3')")
    process = python(code)
    assert process.returncode == 2
    assert process.stderr.splitlines()[-1] == "fairseq-train: error: give 2, not 3"
    assert "Traceback" not in process.stderr
    (tmp_path / "rendezvous").unlink()
    assert "give 2" not in python(code, without="one-line-errors").stderr


def test_a_parent_ends_as_the_child_that_printed_its_line_did(python):
    """`torch.multiprocessing.spawn` names a child's status. Only known statuses say that the child printed a line."""
    process = python(
        """
        import sys
        from torch.multiprocessing import ProcessExitedException
        from fairseq_compat.one_line_errors import end_in_one_line
        sys.argv = ["fairseq-train"]
        for status in (1, 3, 2):
            end_in_one_line(ProcessExitedException("ended", error_index=0, error_pid=1, exit_code=status))
            print(status)
        """
    )
    assert (process.returncode, process.stdout, process.stderr) == (2, "1\n3\n", "")
