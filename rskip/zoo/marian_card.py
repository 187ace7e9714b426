"""The model card of a folder that `rskip export huggingface` wrote."""

from __future__ import annotations

import json

from rskip.records.tables import markdown_text
from rskip.zoo.model_card import origin_blocks, score_blocks
from rskip.zoo.registry import ModelEntry

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
_NOTES = """The logits equal the original's up to rounding.

Positions are part of the weights. `save_pretrained` leaves them out, and MarianMTModel's own are others: copy the
folder instead of saving the model again."""


def marian_card(
    entry: ModelEntry | None,
    *,
    name: str,
    languages: tuple[str, str],
    connection: str,
    has_tokenizer: bool,
    target_vocabulary: str,
) -> str:
    """The card, README.md.

    :param entry: the model's entry in the registry, with its scores and its licence; None: it has none.
    :param name: of the model, if it has no entry.
    :param languages: source and target.
    :param connection: the spec of its connections.
    :param has_tokenizer: whether MarianTokenizer reads the folder.
    :param target_vocabulary: the file of the target's tokens.
    """
    front = ["---", *([f"license: {json.dumps(entry.licence.lower())}"] if entry else [])]
    front += [f"language: {json.dumps(languages)}", "library_name: transformers", "pipeline_tag: translation"]
    what = f"Translates {languages[0]} to {languages[1]}. `rskip export huggingface` wrote this folder "
    what += f"from a Transformer with the connection `{connection}`, which MarianMTModel computes too."
    example = _WITH_TOKENIZER if has_tokenizer else _WITHOUT_TOKENIZER.replace("TARGET", target_vocabulary)
    unknown = ["## Licence", "Unknown: state the licence here, and above as `license`, before you publish the model."]
    blocks = [
        "\n".join([*front, "---"]),
        f"# {markdown_text(name) if entry is None else entry.name}",
        what,
        example,
        "`rskip translate --model FOLDER` reads the folder too.",
        _NOTES,
        *([*score_blocks(entry), *origin_blocks(entry)] if entry else unknown),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"
