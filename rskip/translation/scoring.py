"""Scores a translation run: raw sentences from fairseq-generate's output against the corpus's raw references."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rskip.corpora.record import RECORD_FILE, State, made_record
from rskip.files.whole import atomic_file
from rskip.tasks.fairseq.log import read_train_log
from rskip.tasks.fairseq.training import profiled_weights
from rskip.tasks.process import run_logged
from rskip.tasks.run import Run
from rskip.tasks.task import Outcome
from rskip.text import TextPipeline
from rskip.translation.data import data_folder, describe_data
from rskip.translation.generated import read_generated, read_lines
from rskip.translation.metrics import Score, tokenised_bleu
from rskip.translation.metrics import score as score_sentences
from rskip.translation.recipe import TranslationSettings
from rskip.translation.training import generate_command, scored_file

DECIMALS = 4
COMPOUND_SPLIT = ("wmt14-en-de",)  # corpora for which papers report BLEU with split compounds


@dataclass(frozen=True, kw_only=True)
class Translations:
    """A translated split in order: raw sentences, and words joined by spaces for tokenised BLEU.

    compound_split: whether to compute compound-split BLEU (rskip.translation.compound_split).
    raw: whether sentences are raw. If they are tokens, the only score is tokenised BLEU.
    """

    sources: list[str]
    references: list[str]
    hypotheses: list[str]
    hypothesis_words: list[str]
    reference_words: list[str] | None
    compound_split: bool = False
    raw: bool = True

    def score(self) -> dict[str, Score]:
        """The scores of the hypotheses. Raises ValueError if their number differs from the references'."""
        if not self.raw:
            return {"tokenised_bleu": tokenised_bleu(self.hypothesis_words, self.reference_words or [])}
        return score_sentences(
            self.hypotheses,
            self.references,
            tokenised_hypotheses=self.hypothesis_words,
            tokenised_references=self.reference_words,
            compound_split=self.compound_split,
        )


def read_translations(generated: Path, *, data: Path, split: str) -> Translations:
    """Reads fairseq-generate's output and the raw sentences of the data folder.

    Folders of fairseq-preprocess have no raw sentences. For these, sentences are tokens without subword marks.

    Raises ValueError or FileNotFoundError if a sentence or a file is missing.
    """
    output = read_generated(generated)
    words = output.words()
    if not (data / RECORD_FILE).is_file():
        empty = [""] * len(words.hypotheses)  # if fairseq-generate did not print them
        return Translations(
            sources=words.sources or empty,
            references=words.references or empty,
            hypotheses=words.hypotheses,
            hypothesis_words=words.hypotheses,
            reference_words=words.references or empty,
            raw=False,
        )
    pipeline = TextPipeline.load(data / "text")
    sources, references = (
        read_lines(data / "reference" / f"{split}.{language}")
        for language in (pipeline.source_language, pipeline.target_language)
    )
    return Translations(
        sources=sources,
        references=references,
        hypotheses=output.decoded(pipeline),
        hypothesis_words=words.hypotheses,
        reference_words=words.references,
        compound_split=made_record(data, State).get("corpus") in COMPOUND_SPLIT,
    )


def score(run: Run[TranslationSettings]) -> Outcome:
    """Translates the evaluated split with the averaged checkpoint, unless that is done already, and scores it.

    Metrics: those of `Translations.score`, and `valid_loss`, `valid_nll_loss` (bits per token) and `valid_ppl` of the
    last epoch before averaging.
    """
    if not scored_file(run).exists():
        return _outcome(run, {})  # the training diverged
    output = _generated(run)
    if not output.exists():
        print(f"translating {run.settings.evaluate.split}", flush=True)
        log = run.folder.path / "generate.log"
        log.unlink(missing_ok=True)
        translate(run, checkpoint=scored_file(run), output=output, log=log)
    scores = read_translations(output, data=data_folder(run.settings), split=run.settings.evaluate.split).score()
    return _outcome(run, scores)


def _outcome(run: Run[TranslationSettings], scores: Mapping[str, Score]) -> Outcome:
    """The run's outcome from its scores and its log. A diverged training has no scores."""
    with run.folder.train_log.open(encoding="utf-8", errors="replace") as lines:
        log_read = read_train_log(lines)
    if log_read.parameters is None or (scores and not log_read.curve):
        problem = f"{run.folder.train_log} records no training session"
        raise ValueError(f"{problem}: move {run.folder.path} away and run again")
    figures: dict[str, float | None] = {name: each.value for name, each in scores.items()}
    if scores:
        last = log_read.curve[-1]
        losses = {"valid_loss": last.valid_loss, "valid_nll_loss": last.valid_nll_loss, "valid_ppl": last.valid_ppl}
        figures |= losses
    return Outcome(
        metrics={name: round(value, DECIMALS) for name, value in figures.items() if value is not None},
        signatures={name: each.signature for name, each in scores.items() if each.signature is not None},
        curve=[epoch.as_dict() for epoch in log_read.curve],
        training={
            "seconds": log_read.seconds,
            "epochs": log_read.curve[-1].epoch if log_read.curve else 0,
            "updates": log_read.updates,
            "target_tokens_per_second": log_read.target_tokens_per_second,
            **profiled_weights(run, run.settings.train),
        },
        parameters=log_read.parameters,
        data=describe_data(data_folder(run.settings)),
    )


def translate(run: Run[TranslationSettings], *, checkpoint: Path, output: Path, log: Path) -> None:
    """Runs fairseq-generate on the evaluated split. Writes its output to `output` and its messages to `log`."""
    command = generate_command(run, checkpoint=checkpoint)
    with atomic_file(output) as temporary:
        run_logged(command, log=log, output=temporary)


def sample_outputs(run: Run[TranslationSettings], count: int) -> str:
    """The first sentences of the evaluated split with their translations; empty if the files are missing."""
    data, output = data_folder(run.settings), _generated(run)
    if not (output.exists() and data.exists()):
        return ""
    found = read_translations(output, data=data, split=run.settings.evaluate.split)
    sentences = zip(found.sources, found.references, found.hypotheses, strict=True)
    lines = []
    for source, reference, hypothesis in islice(sentences, count):
        lines += ["", f"  source     {source}", f"  reference  {reference}", f"  model      {hypothesis}"]
    return "\n".join(lines)


def _generated(run: Run[TranslationSettings]) -> Path:
    """The file with the output of fairseq-generate."""
    return run.folder.path / f"generate-{run.settings.evaluate.split}.txt"
