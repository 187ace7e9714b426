"""Training a captioning model with fairseq-train: cross-entropy, then, where a recipe says so, self-critical training.

Every stage's output is whole or absent, and a stage whose output is there is not repeated, so a run that was stopped
anywhere goes on from there.
"""

from __future__ import annotations

from pathlib import Path

from rskip.captioning.data import data_folder, feature_store
from rskip.captioning.recipe import CaptioningSettings
from rskip.files.whole import atomic_file
from rskip.settings.errors import SettingError
from rskip.tasks.fairseq.flags import flags_on_gpu, flags_to_arguments
from rskip.tasks.fairseq.log import TrainLog, epoch_lines, read_train_log
from rskip.tasks.fairseq.profiling import initialise, initialise_command, needs_profile, starting_checkpoint
from rskip.tasks.process import executable
from rskip.tasks.run import EpochLines, Run
from rskip.translation.data import device_arguments
from rskip.translation.training import LOW_PRECISION, recipe_precision

_LOG_INTERVAL = 100  # updates between two lines in train.log
_STAGE = "rskip stage | "  # begins the line of train.log that says which training follows


def check_gpus(settings: CaptioningSettings, *, gpus: int) -> None:
    """:raises SettingError: an update's pictures can't be divided among so many GPUs."""
    if gpus > 1:
        for section, flags in settings.stages().items():
            size = flags.get("batch-size")
            if type(size) is not int or size % gpus or flags.get("max-tokens") is not None:
                expected = f"pictures of an update, a multiple of {gpus} GPUs, and no {section}.max-tokens"
                raise SettingError.of_value(f"{section}.batch-size", size, expected)


def train(run: Run[CaptioningSettings]) -> None:
    """Trains every stage to its end with fairseq-train, from its last checkpoint where there is one."""
    for stage in run.settings.stages():
        finished = run.folder.path / f"{stage}.done"
        if finished.exists():
            continue
        folder = checkpoints(run, stage)
        folder.mkdir(parents=True, exist_ok=True)
        with run.folder.train_log.open("a", encoding="utf-8") as log:
            log.write(f"{_STAGE}{stage}\n")
        flags = run.settings.stages()[stage]
        if stage == "train" and needs_profile(flags):
            initialise(run, _starting_words(run))
        run.train(
            lambda precision, stage=stage: train_command(run, stage=stage, precision=precision),  # type: ignore[misc]
            asked=recipe_precision(flags),
            resumed=(folder / "checkpoint_last.pt").exists(),
            report=EpochLines(run.folder.train_log, epoch_lines),
        )
        with atomic_file(finished) as temporary:
            temporary.write_text("training came to its end\n")


def train_command(run: Run[CaptioningSettings], *, stage: str, precision: str) -> list[str]:
    """`fairseq-train`, under `torchrun` for several GPUs; it resumes by itself from `checkpoint_last.pt`.

    :param precision: "float32" trains in it whatever the recipe's flags ask for.
    """
    settings, gpus = run.settings, run.gpus
    flags = settings.stages()[stage]
    program = ["fairseq-train"]
    if gpus > 1:
        program = ["torchrun", "--standalone", "--nproc-per-node", str(gpus), executable("fairseq-train")]
    best = ["--eval-cider", "--best-checkpoint-metric", "cider", "--maximize-best-checkpoint-metric"]
    before = list(settings.stages())[: list(settings.stages()).index(stage)]
    start = checkpoint(run, before[-1]) if before else starting_checkpoint(run) if needs_profile(flags) else None
    return [
        *program,
        *_data_arguments(settings),
        *("--seed", str(run.seed), "--save-dir", str(checkpoints(run, stage))),
        *(["--finetune-from-model", str(start)] if start else []),
        *("--keep-last-epochs", "1"),
        *(best if settings.checkpoint == "best" else []),
        *("--log-format", "json"),
        *([] if "log-interval" in flags else ["--log-interval", str(_LOG_INTERVAL)]),
        *([] if gpus > 1 else device_arguments(gpu=gpus > 0)),
        *_recipe_flags(run, stage=stage, precision=precision),
    ]


def initialise_commands(run: Run[CaptioningSettings]) -> list[list[str]]:
    """`rskip initialise`, where the first training starts from a profiling pass."""
    return [initialise_command(run, _starting_words(run))] if needs_profile(run.settings.train) else []


def _starting_words(run: Run[CaptioningSettings]) -> list[str]:
    """Of the first training's words what its first weights depend on, and its first batch."""
    flags = _recipe_flags(run, stage="train", precision="float32")
    return [*_data_arguments(run.settings), "--seed", str(run.seed), *flags]


def _data_arguments(settings: CaptioningSettings) -> list[str]:
    """What fairseq-train is given of data and task."""
    task = ["--user-dir", "rskip", "--task", "captioning", "--features", feature_store(settings)]
    return [str(data_folder(settings)), *task]


def _recipe_flags(run: Run[CaptioningSettings], *, stage: str, precision: str) -> list[str]:
    """fairseq-train's flags that the recipe sets."""
    settings, gpus = run.settings, run.gpus
    flags = dict(settings.stages()[stage])
    if gpus > 1:
        size = flags["batch-size"]
        assert isinstance(size, int), "check_gpus has seen to it"
        flags["batch-size"] = size // gpus
    if precision == "float32":
        flags |= dict.fromkeys(flags.keys() & LOW_PRECISION, False)
    if gpus > 0:
        flags = flags_on_gpu(flags)
    return flags_to_arguments(flags)


def checkpoints(run: Run[CaptioningSettings], stage: str) -> Path:
    """The folder of fairseq's checkpoints of a stage."""
    return run.folder.path / ("checkpoints" if stage == "train" else f"checkpoints-{stage}")


def checkpoint(run: Run[CaptioningSettings], stage: str | None = None) -> Path:
    """What a stage, by default the last one, ends with."""
    stage = stage or list(run.settings.stages())[-1]
    return checkpoints(run, stage) / f"checkpoint_{run.settings.checkpoint}.pt"


def read_log(run: Run[CaptioningSettings], *, ended: bool) -> dict[str, TrainLog]:
    """What train.log tells of each stage that began.

    :param ended: whether each must have come to its end.
    :raises ValueError: nothing of one that must, or of any.
    """
    log = run.folder.train_log
    lines: dict[str, list[str]] = {stage: [] for stage in run.settings.stages()}
    with log.open(encoding="utf-8", errors="replace") as file:
        stage = next(iter(lines))
        for line in file:
            if line.startswith(_STAGE):
                stage = line.removeprefix(_STAGE).strip()
            elif stage in lines:
                lines[stage].append(line)
    read = {stage: read_train_log(each, log_file=log) for stage, each in lines.items()}
    found = {stage: each for stage, each in read.items() if each.parameters is not None and (each.curve or not ended)}
    if not found or (ended and len(found) < len(read)):
        raise ValueError(f"{log} doesn't tell of a training: move {run.folder.path} away and run again")
    return found
