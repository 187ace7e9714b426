from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture(scope="session")
def mean_colours():
    """A backbone: six parts of the picture and their mean colours."""
    import torch

    from rskip.captioning.backbones import Backbone
    from rskip.captioning.features import Features

    class MeanColours(Backbone):
        def __init__(self, weights="1"):
            description = {"backbone": "mean colours", "weights": weights, "dim": 3, "dtype": "float16"}
            super().__init__("mean colours", torch.nn.Identity(), description, torch.device("cpu"))
            self.batches = []

        def prepare(self, image):
            return torch.from_numpy(np.array(image.resize((3, 2)))).float() / 25

        def compute(self, inputs):
            self.batches.append(len(inputs))
            return [Features(self._values(each.view(6, 3)), (2, 3)) for each in inputs]

    return MeanColours


@pytest.fixture(scope="session")
def captioning_folder(tmp_path_factory):
    """Writes a model of drawn parameters and eight words, for features of a description."""
    import json

    import torch

    from rskip.captioning.config import CaptioningConfig
    from rskip.captioning.model import CaptioningTransformer
    from rskip.checkpoint import Checkpoint, write_checkpoint

    def write(description, name="model", grid=True):
        folder = tmp_path_factory.mktemp(name)
        torch.manual_seed(3)
        stack = {
            f"{side}_{key}": value
            for side in ("encoder", "decoder")
            for key, value in (("embed_dim", 16), ("ffn_embed_dim", 32), ("layers", 1), ("attention_heads", 2))
        }
        config = CaptioningConfig(
            vocabulary=12, feature_dim=description["dim"], grid_positions=grid, features=description, **stack
        )
        model = CaptioningTransformer(config)
        about = {"arch": "", "task": "captioning", "source_lang": None, "target_lang": None, "model": config.to_dict()}
        write_checkpoint(folder / "model.safetensors", Checkpoint(model=model.state_dict(), config=about))
        (folder / "config.json").write_text(json.dumps(config.to_dict()))
        words = "a dog cat runs on the red field"
        (folder / "dict.txt").write_text("".join(f"{word} 9\n" for word in words.split()))
        return folder

    return write
