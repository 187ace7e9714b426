"""Describes pretrained models as text, as a model card, and in a table of all models."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable

from rskip.machine.terminal import columns
from rskip.records.tables import Summary, markdown_table, markdown_text
from rskip.tasks import find_task, tasks
from rskip.zoo.registry import OF_WEIGHTS, ModelEntry, ModelScore, find_model, read_registry

_TABLE_NOTE = (
    "With one seed, the score is that of the published weights. With several seeds, it is the mean ± sample standard "
    "deviation over the runs."
)
_WITH_TOKENIZER = """```python
from transformers import MarianMTModel, MarianTokenizer

folder = "FOLDER"
tokenizer, model = MarianTokenizer.from_pretrained(folder), MarianMTModel.from_pretrained(folder)
batch = tokenizer(["A sentence."], return_tensors="pt", padding=True)
print(tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True))
```"""
_WITHOUT_TOKENIZER = """MarianTokenizer lacks steps of the pipeline in `text/`. rskip encodes and decodes the text:

```python
import json
from pathlib import Path

import torch
from rskip.text import TextPipeline
from transformers import MarianMTModel

folder = Path("FOLDER")
text, model = TextPipeline.load(folder / "text"), MarianMTModel.from_pretrained(folder)
source, target = (json.loads((folder / name).read_text()) for name in ("vocab.json", "TARGET"))
units = [source.get(unit, source["<unk>"]) for unit in text.encode("A sentence.").split()]
found = model.generate(torch.tensor([[*units, source["</s>"]]]))[0]
tokens = {index: token for token, index in target.items()}
words = [tokens[index] for index in found.tolist() if index not in (0, target["<pad>"], target["</s>"])]
print(text.decode(" ".join(words)))
```"""
_READ_BY_RSKIP = "`rskip translate --model FOLDER` reads the folder too."
_MARIAN_NOTES = """The logits equal the original's up to rounding.

Positions are part of the weights. `save_pretrained` leaves them out, and MarianMTModel's own are others: copy the
folder instead of saving the model again."""


def describe(model: str | ModelEntry) -> str:
    """A description of the model as text: its data, scores, origin and licence.

    :param model: an entry, or a name from `rskip.zoo.list_models()`.
    :raises ValueError: no model has this name. The error suggests similar ones.
    """
    entry = model if isinstance(model, ModelEntry) else find_model(read_registry(), model)
    rows = [
        ("data", entry.data_terms),
        *((_heading(entry, figure), _figure_in_words(entry, figure)) for figure in entry.figures),
        ("recipe", _recipe(entry)),
        ("commit", _commit(entry)),
        ("licence", f"{entry.licence} (code and weights)"),
        ("connection from", _paper(entry)),
        ("files", f"{entry.size / 1e6:.1f} MB: {', '.join(entry.files)}"),
    ]
    return "\n".join([entry.name, f"  {_what(entry)}", columns(rows, left=(0, 1), indent="  ")])


def model_card(entry: ModelEntry) -> str:
    """The model card, which is README.md next to the weights."""
    return _joined(
        f"# {entry.name}",
        "`rskip zoo publish` writes this card from checkpoints.json; do not edit it by hand.",
        markdown_text(_what(entry, code="`")),
        f"```python\n{find_task(entry.task).example(name=entry.name)}\n```",
        *_use(entry),
        *_scores(entry),
        *_origin(entry),
        "## Files",
        markdown_table(
            ("file", "bytes", "sha256"),
            [(f"`{path}`", f"{file.size:,}", f"`{file.sha256}`") for path, file in entry.files.items()],
        ),
    )


def marian_card(
    entry: ModelEntry | None,
    *,
    name: str,
    languages: tuple[str, str],
    connection: str,
    has_tokenizer: bool,
    target_vocabulary: str,
) -> str:
    """The card, README.md, of a folder that `rskip export huggingface` wrote.

    :param entry: the model's entry in the registry, with its scores and its licence; None: it has none.
    :param name: of the model, if it has no entry.
    :param connection: the spec of its connections.
    :param has_tokenizer: whether MarianTokenizer reads the folder.
    :param target_vocabulary: the file of the target's tokens.
    """
    front = ["---", *([f"license: {json.dumps(entry.licence.lower())}"] if entry else [])]
    front += [f"language: {json.dumps(languages)}", "library_name: transformers", "pipeline_tag: translation", "---"]
    what = f"Translates {languages[0]} to {languages[1]}. `rskip export huggingface` wrote this folder "
    what += f"from a Transformer with the connection `{connection}`, which MarianMTModel computes too."
    example = _WITH_TOKENIZER if has_tokenizer else _WITHOUT_TOKENIZER.replace("TARGET", target_vocabulary)
    unknown = ["## Licence", "Unknown: state the licence here, and above as `license`, before you publish the model."]
    title = f"# {markdown_text(name) if entry is None else entry.name}"
    further = [*_use(entry), *_scores(entry), *_origin(entry)] if entry else unknown
    return _joined("\n".join(front), title, what, example, _READ_BY_RSKIP, _MARIAN_NOTES, *further)


def _joined(*blocks: str) -> str:
    return "\n\n".join(filter(None, blocks)) + "\n"


def _use(entry: ModelEntry) -> list[str]:
    """What the model is for and not for, in Markdown."""
    dataset = entry.figures[0].dataset.partition(" (")[0]
    return ["## Use", find_task(entry.task).use.format(dataset=f"`{dataset}`")] if find_task(entry.task).use else []


def _scores(entry: ModelEntry) -> list[str]:
    """The card's scores, in Markdown."""
    figures = [
        (figure.dataset, figure.split, _heading(entry, figure), _value(figure), _seeds(figure), figure.of)
        for figure in entry.figures
    ]
    signatures = dict.fromkeys(
        f"{_heading(entry, figure)}: `{figure.signature}`." for figure in entry.figures if figure.signature
    )
    return [
        "## Scores",
        markdown_table(("dataset", "split", "metric", "score", "seeds", "measured on"), figures),
        "  \n".join(map(markdown_text, signatures)),
        _note(entry),
    ]


def _origin(entry: ModelEntry) -> list[str]:
    """The card's recipe, paper, data and licence, in Markdown."""
    origin = [
        f"Trained by `{_recipe(entry)}`, commit {_commit(entry)}.",
        f"Source of the connection: {_paper(entry)}.",
        f"Data: {entry.data_terms}.",
        f"Licence of code and weights: {entry.licence}. The terms above apply to the data.",
    ]
    return ["## Origin", "\n".join(f"- {markdown_text(each)}" for each in origin)]


def models_table(entries: Iterable[ModelEntry]) -> str:
    """A Markdown table of models with their scores, sorted by task and name. It ends with a line feed."""
    rows = []
    for entry in sorted(entries, key=lambda entry: (entry.task, entry.name)):
        figure = main_figure(entry)
        rows.append(
            (
                f"`{entry.name}`",
                f"`{entry.connection}`",
                f"{_heading(entry, figure)} {_value(figure)} on {figure.split} of {figure.dataset}",
                _seeds(figure),
                f"{entry.parameters:,}",
                f"{entry.size / 1e6:.1f} MB, {entry.dtype}",
            )
        )
    if not rows:
        return "No models yet.\n"
    table = markdown_table(("model", "connection", "score", "seeds", "parameters", "files"), rows)
    return f"{table}\n\n{_TABLE_NOTE}\n"


def list_text(entries: Iterable[ModelEntry]) -> str:
    """One line per model with name, size and score, without a final line feed."""
    lines = []
    for entry in entries:
        figure = main_figure(entry)
        seeds = _seeds(figure).partition(" (")[0]
        shown = f"{_heading(entry, figure)} {_value(figure)} ({seeds})"
        lines.append((entry.name, f"{entry.size / 1e6:.1f} MB", shown))
    return columns(lines, left=(0, 2))


def main_figure(entry: ModelEntry) -> ModelScore:
    """A model's main score: the first metric, over all seeds, or with one seed that of the published weights."""
    first = [figure for figure in entry.figures if figure.metric == entry.figures[0].metric]
    return max(first, key=lambda figure: (len(figure.seeds), figure.of == OF_WEIGHTS))


def _what(entry: ModelEntry, *, code: str = "") -> str:
    return (
        f"{entry.architecture} with the connection {code}{entry.connection}{code}, {entry.task}, "
        f"{entry.parameters:,} parameters, stored in {entry.dtype}"
    )


def _note(entry: ModelEntry) -> str:
    seeds = max(len(figure.seeds) for figure in entry.figures)
    if seeds == 1:
        return "This score is from one seed and varies between seeds, so it does not rank connections."
    return f"± is the sample standard deviation over seeds. The published weights are from seed {entry.seed}."


def _heading(entry: ModelEntry, figure: ModelScore) -> str:
    task = tasks().get(entry.task)  # None for a user's task whose module is not imported
    return task.headings.get(figure.metric, figure.metric) if task else figure.metric


def _value(figure: ModelScore) -> str:
    return str(Summary(figure.value, figure.spread))


def _seeds(figure: ModelScore) -> str:
    if len(figure.seeds) == 1:
        return f"one seed ({figure.seeds[0]})"
    return f"{len(figure.seeds)} seeds ({', '.join(map(str, figure.seeds))})"


def _figure_in_words(entry: ModelEntry, figure: ModelScore) -> str:
    how = f"as published in {entry.dtype}" if figure.of == OF_WEIGHTS else "as trained"
    seeds = ", ".join(map(str, figure.seeds))
    of = f"seed {seeds}" if len(figure.seeds) == 1 else f"mean ± std over seeds {seeds}"
    return f"{_value(figure)} {how}, {of}, on {figure.split} of {figure.dataset}"


def _recipe(entry: ModelEntry) -> str:
    changes = [f"{key}={json.dumps(value)}" for key, value in entry.overrides.items()]
    words = ["rskip", "run", entry.recipe, "--seeds", str(entry.seed), *(["--set", *changes] if changes else [])]
    return shlex.join(words)


def _commit(entry: ModelEntry) -> str:
    if entry.commit is None:
        return "unknown"
    return f"{entry.commit}{' with uncommitted changes' if entry.uncommitted_changes else ''}"


def _paper(entry: ModelEntry) -> str:
    paper = entry.paper
    source = f"{paper.authors}: {paper.title}" if paper.authors else paper.title
    return ", ".join(part for part in (source, paper.part, paper.url) if part)
