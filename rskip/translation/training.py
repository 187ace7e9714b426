"""Training a translation model: fairseq-train to its end, then the average of its last checkpoints.

Every stage's output is whole or absent, and a stage whose output is there is not repeated, so that a stopped run is
resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rskip.checkpoint import last_checkpoints
from rskip.checkpoint.average import average_to_file
from rskip.files.whole import atomic_file
from rskip.tasks.fairseq.flags import Flag, flags_on_gpu, flags_to_arguments
from rskip.tasks.fairseq.log import epoch_lines
from rskip.tasks.fairseq.profiling import initialise, initialise_command, needs_profile, starting_checkpoint
from rskip.tasks.process import executable
from rskip.tasks.run import EpochLines, Run
from rskip.translation.data import data_arguments, device_arguments
from rskip.translation.recipe import TOKENS_PER_UPDATE, TranslationSettings

LOW_PRECISION = {"bf16": "bfloat16", "fp16": "float16", "amp": "float16"}  # fairseq-train's flags
_POSITIONS = 1024  # fairseq's --max-source-positions and --max-target-positions where they are not given
_LOG_INTERVAL = 100  # updates between two lines in train.log


def train(run: Run[TranslationSettings]) -> None:
    """Trains to the end with fairseq-train, from the last checkpoint where there is one."""
    finished = run.folder.path / "trained"
    if finished.exists():
        return
    folder = checkpoints(run)
    folder.mkdir(parents=True, exist_ok=True)
    if batches := plan_batches(run.settings.train, gpus=run.gpus):
        print(batches, flush=True)
    if needs_profile(run.settings.train):
        initialise(run, _starting_words(run))
    run.train(
        lambda precision: train_command(run, precision=precision),
        asked=recipe_precision(run.settings.train),
        resumed=(folder / "checkpoint_last.pt").exists(),
        report=EpochLines(run.folder.train_log, epoch_lines),
    )
    with atomic_file(finished) as temporary:
        temporary.write_text("training came to its end\n")


def average(run: Run[TranslationSettings]) -> None:
    """Averages the last checkpoints into the run's averaged.pt."""
    if not averaged(run).exists():
        settings = run.settings
        last = last_checkpoints(checkpoints(run), settings.average.last, by=settings.averages_by)
        average_to_file(last, averaged(run))


def train_command(run: Run[TranslationSettings], *, precision: str) -> list[str]:
    """`fairseq-train`, under `torchrun` for several GPUs; it resumes by itself from `checkpoint_last.pt`.

    :param precision: "float32" trains in it whatever the recipe's flags ask for.
    :raises ValueError: an update can't be divided among so many (`split_update`).
    """
    settings, gpus = run.settings, run.gpus
    program = ["fairseq-train"]
    if gpus > 1:
        program = ["torchrun", "--standalone", "--nproc-per-node", str(gpus), executable("fairseq-train")]
    return [
        *program,
        *data_arguments(settings),
        *("--seed", str(run.seed), "--save-dir", str(checkpoints(run))),
        *(["--finetune-from-model", str(starting_checkpoint(run))] if needs_profile(settings.train) else []),
        *_kept_checkpoints(settings),
        *("--log-format", "json"),
        *([] if "log-interval" in settings.train else ["--log-interval", str(_LOG_INTERVAL)]),
        *([] if gpus > 1 else device_arguments(gpu=gpus > 0)),
        *_recipe_flags(run, precision=precision),
        *([] if run.probe is None else ["--probe-file", str(run.folder.probe), "--probe-every", str(run.probe.every)]),
    ]


def initialise_commands(run: Run[TranslationSettings]) -> list[list[str]]:
    """`rskip initialise`, where the training starts from a profiling pass."""
    return [initialise_command(run, _starting_words(run))] if needs_profile(run.settings.train) else []


def _starting_words(run: Run[TranslationSettings]) -> list[str]:
    """Of the training's words what its first weights depend on, and its first batch."""
    return [*data_arguments(run.settings), "--seed", str(run.seed), *_recipe_flags(run, precision="float32")]


def _recipe_flags(run: Run[TranslationSettings], *, precision: str) -> list[str]:
    """fairseq-train's flags that the recipe sets."""
    settings, gpus = run.settings, run.gpus
    flags = {name: value for name, value in settings.train.items() if name not in (TOKENS_PER_UPDATE, "user-dir")}
    if (batches := plan_batches(settings.train, gpus=gpus)) is not None:
        flags |= {"max-tokens": batches.max_tokens, "update-freq": batches.update_freq}
    if precision == "float32":
        flags |= dict.fromkeys(flags.keys() & LOW_PRECISION, False)
    if gpus > 0:
        flags = flags_on_gpu(flags)
    return flags_to_arguments(flags)


def average_command(run: Run[TranslationSettings]) -> list[str]:
    """`rskip average`, over the last checkpoints."""
    return [
        "rskip",
        "average",
        *("--last", str(run.settings.average.last)),
        *(["--by", "update"] if run.settings.averages_by == "update" else []),
        str(checkpoints(run)),
        *("--output", str(averaged(run))),
    ]


def checkpoints(run: Run[TranslationSettings]) -> Path:
    """The folder of fairseq's checkpoints."""
    return run.folder.path / "checkpoints"


def averaged(run: Run[TranslationSettings]) -> Path:
    """The averaged checkpoint, which is scored."""
    return run.folder.path / "averaged.pt"


def recipe_precision(train: Mapping[str, Flag]) -> str:
    """What the flags of fairseq-train ask for: "float32", "bfloat16" or "float16"."""
    return next((name for flag, name in LOW_PRECISION.items() if train.get(flag)), "float32")


def _kept_checkpoints(settings: TranslationSettings) -> list[str]:
    last = str(settings.average.last)
    if settings.averages_by == "update":
        return ["--keep-interval-updates", last, "--no-epoch-checkpoints"]
    return ["--keep-last-epochs", last]


@dataclass(frozen=True, kw_only=True)
class Batches:
    """What an update is made of: the same tokens on any number of GPUs.

    fairseq-train's --max-tokens bounds one batch on one GPU: its sentences times their longest side, padding included.
    An update is made of --update-freq such batches on every GPU. A recipe says how many tokens an update has
    (`train.tokens-per-update`) and how many of them a GPU can take at a time (`train.max-tokens`); the rest follows.

    :param gpus: how many take part; a CPU counts as one.
    :param update_freq: batches that each takes before the update.
    :param max_tokens: most tokens of one batch.
    """

    gpus: int
    update_freq: int
    max_tokens: int

    @property
    def tokens(self) -> int:
        """Most tokens of an update."""
        return self.gpus * self.update_freq * self.max_tokens

    def __str__(self) -> str:
        batches, gpus = self.gpus * self.update_freq, f" on {self.gpus} GPUs" if self.gpus > 1 else ""
        made_of = f"{batches} batches of {self.max_tokens:,}{gpus}" if batches > 1 else "one batch"
        return f"{self.tokens:,} tokens an update: {made_of}"


def split_update(tokens: int, *, gpus: int, most: int, longest: int) -> Batches:
    """Batches of equal size, as few as there can be, that make up an update.

    What doesn't divide is left out: fewer tokens than the update has batches.

    :param tokens: of an update.
    :param most: tokens that one GPU can take at a time.
    :param longest: tokens that a sentence can have: a batch must hold it.
    :raises ValueError: a batch would be shorter than `longest`.
    """
    update_freq = -(-tokens // (gpus * most))
    batches = Batches(gpus=gpus, update_freq=update_freq, max_tokens=tokens // (gpus * update_freq))
    if batches.max_tokens < longest:
        raise ValueError(
            f"train.{TOKENS_PER_UPDATE} is {tokens:,}: on {gpus} GPU{'s' * (gpus > 1)} that is {batches.max_tokens:,} "
            f"tokens a batch and a sentence may have {longest:,} "
            "(train.max-source-positions, train.max-target-positions): "
            + ("use fewer GPUs or lower these" if gpus > 1 else "give a greater train.max-tokens or lower these")
        )
    return batches


def plan_batches(train: Mapping[str, object], *, gpus: int) -> Batches | None:
    """The batches of an update under a recipe's flags of fairseq-train; None: as the flags say.

    Without `tokens-per-update` an update has the tokens that the flags give it on one GPU.

    :param gpus: how many are used, 0 for the CPU.
    :raises ValueError: as `split_update`; or several GPUs, and the flags don't say what one takes.
    """
    processes = max(gpus, 1)
    tokens, most = train.get(TOKENS_PER_UPDATE), train.get("max-tokens")
    if tokens is None:
        if processes == 1:
            return None
        update_freq = train.get("update-freq", 1)
        if not isinstance(most, int) or not isinstance(update_freq, int):
            names = f"train.{TOKENS_PER_UPDATE} and train.max-tokens"
            raise ValueError(f"{gpus} GPUs: give {names}, so that an update stays what it is")
        tokens = most * update_freq
    assert isinstance(tokens, int) and isinstance(most, int), "TranslationSettings has seen to it"
    limits = (train.get(f"max-{side}-positions") for side in ("source", "target"))
    longest = max(limit if isinstance(limit, int) else _POSITIONS for limit in limits)
    return split_update(tokens, gpus=processes, most=most, longest=longest)
