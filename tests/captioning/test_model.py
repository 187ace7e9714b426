"""The captioning Transformer: sizes, positions of a grid, padding, and its features' description."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rskip.captioning.config import CaptioningConfig
from rskip.captioning.features import Features
from rskip.captioning.model import CaptioningTransformer, GridPositions, batch_features
from rskip.settings.errors import SettingError
from rskip.transformer.positions import SinusoidalPositions

SIZES = {
    f"{side}_{key}": value
    for side in ("encoder", "decoder")
    for key, value in {"embed_dim": 16, "ffn_embed_dim": 24, "attention_heads": 4, "layers": 2}.items()
}


def build(connection: str = "2rskip+ln", **changes) -> CaptioningTransformer:
    torch.manual_seed(0)
    connections = {"encoder_connection": connection, "decoder_connection": connection}
    config = CaptioningConfig(**{"vocabulary": 29, "feature_dim": 6, **SIZES, **connections, **changes})
    return CaptioningTransformer(config).double().eval()


def grid(rows: int, columns: int, seed: int = 0) -> Features:
    values = np.random.default_rng(seed).normal(size=(rows * columns, 6)).astype(np.float32)
    return Features(values, (rows, columns))


def test_parameters_are_those_of_projection_layers_and_words():
    # base: projection, 6 encoder and 6 decoder layers (attention 4(h² + h), feed-forward, norms), words in and out
    h, inner, words, dim = 512, 2048, 9567 + 4, 2048
    attention, feed_forward, norm = 4 * (h * h + h), 2 * h * inner + inner + h, 2 * h
    layers = 6 * (attention + feed_forward + 2 * norm) + 6 * (2 * attention + feed_forward + 3 * norm)
    with torch.device("meta"):
        model = CaptioningTransformer(CaptioningConfig(words, dim))
        sas = CaptioningTransformer(CaptioningConfig(words, dim, encoder_connection="sas", decoder_connection="sas"))
    count = sum(each.numel() for each in model.parameters())
    assert count == dim * h + h + layers + 2 * words * h == 54_988_288
    assert sum(each.numel() for each in sas.parameters()) - count == 31_518_780  # as in translation


def test_positions_of_a_grid_tell_row_and_column():
    positions = GridPositions(16)(torch.tensor([[2, 3], [2, 2]]), 6)
    along = SinusoidalPositions(8, 8, padding_index=0)
    for cell, (row, column) in enumerate([(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]):
        expected = along(torch.tensor([[1 + row, 1 + column]])).flatten()
        torch.testing.assert_close(positions[0, cell], expected, rtol=0, atol=0)
    torch.testing.assert_close(positions[1, 2], positions[0, 3], rtol=0, atol=0)
    assert not positions[1, 4:].any()
    assert GridPositions(16)(torch.tensor([[40, 2]]), 80).shape == (1, 80, 16)


@pytest.mark.parametrize("connection", ["1xskip+ln", "2rskip+ln", "sas", "prenorm+ln"])
def test_images_of_a_batch_do_not_see_each_other_nor_padding(connection):
    images = [grid(2, 3), grid(1, 4, seed=1), grid(3, 3, seed=2)]
    model, prefix = build(connection, layernorm_embedding=connection == "sas"), torch.randint(4, 29, (3, 5))
    logits = model(*batch_features(images), prefix)
    for row, image in enumerate(images):
        features, _, grids = batch_features([image])
        alone = model(features, None, grids, prefix[row : row + 1])
        torch.testing.assert_close(logits[row : row + 1], alone, rtol=0, atol=1e-9)
    logits.sum().backward()
    assert all(each.grad is not None and each.grad.isfinite().all() for each in model.parameters())


def test_the_order_of_regions_does_not_matter_and_that_of_cells_does():
    cells, prefix = grid(2, 3), torch.tensor([[2, 7, 9]])
    shuffled = Features(cells.values[::-1].copy(), (2, 3))
    model = build()
    assert (model(*batch_features([cells]), prefix) - model(*batch_features([shuffled]), prefix)).abs().max() > 1e-2
    regions, other = (Features(each.values, None) for each in (cells, shuffled))
    model = build(grid_positions=False)
    torch.testing.assert_close(
        model(*batch_features([regions]), prefix), model(*batch_features([other]), prefix), rtol=0, atol=1e-9
    )


def test_what_does_not_fit_is_refused():
    for changes, name in (
        ({"encoder_embed_dim": 18, "encoder_attention_heads": 3}, "encoder_embed_dim"),
        ({"feature_dim": 0}, "feature_dim"),
        ({"vocabulary": 1}, "vocabulary"),
        ({"encoder_connection": "2rskp+ln"}, "encoder_connection"),
    ):
        with pytest.raises(SettingError) as caught:
            build(**changes)
        assert caught.value.name == name
    with pytest.raises(ValueError, match="regions"):
        build().encode(torch.zeros(1, 6, 6))
    with pytest.raises(ValueError, match="different kinds"):
        batch_features([grid(2, 3), Features(grid(2, 3).values, None)])


def test_features_of_another_backbone_are_refused_in_one_line_that_names_both():
    description = {"backbone": "tf_efficientnet_lite0", "dim": 1280, "dtype": "float16", "weights": "ab12"}
    config = CaptioningConfig(29, 1280, features=description)
    assert CaptioningConfig.from_dict(config.to_dict()) == config
    config.check_features({**description, "dtype": "float32"})
    for other in ({"backbone": "resnet101", "dim": 2048}, {"dim": 640}, {"weights": "cd34"}):
        with pytest.raises(SettingError) as caught:
            config.check_features({**description, **other})
        key = next(iter(other))
        assert repr(other[key]) in str(caught.value) and repr(description[key]) in str(caught.value)
        assert len(str(caught.value).splitlines()) == 1
