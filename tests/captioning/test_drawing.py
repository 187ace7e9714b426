"""Plots of captions show the right values. test_caption_command.py tests the files."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from rskip.captioning.captioner import Caption, CaptionHypothesis
from rskip.captioning.drawing import draw_attention, draw_sheet


def pixels(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB")).astype(int)


def panel(image, number, columns):
    width = image.shape[1] / columns
    return image[:, round(number * width) : round((number + 1) * width)]


def test_attention_lights_the_cells_that_were_looked_at(tmp_path):
    pytest.importorskip("matplotlib", reason="extra plots is not installed")
    green = tmp_path / "$a_{$.png"  # matplotlib would read the name as a formula
    Image.new("RGB", (120, 80), (0, 200, 0)).save(green)
    attention = torch.zeros(3, 6)
    attention[0, 0] = attention[1, 5] = 1.0  # the first cell, then the last one; the end is not drawn
    caption = Caption((CaptionHypothesis("a $^{$", 0.0, ("a", "$^{$"), None, attention),), (2, 3))
    draw_sheet([(green, "a $^{ bill $")], tmp_path / "sheet.png")
    assert pixels(tmp_path / "sheet.png").std() > 0
    draw_attention(green, caption, tmp_path / "looked.png")
    draw_attention(green, caption, tmp_path / "again.png")
    assert (tmp_path / "again.png").read_bytes() == (tmp_path / "looked.png").read_bytes()
    green = pixels(tmp_path / "looked.png")
    green = np.where((green[:, :, 1] > 10) & (green[:, :, 0] < 10), green[:, :, 1], -1)
    whole, first, last = (panel(green, number, 3) for number in range(3))
    assert (whole[whole >= 0] == 200).mean() > 0.9
    for drawn, corner in ((first, (0, 0)), (last, (1, 1))):
        inside = drawn[np.ix_((drawn >= 0).any(1), (drawn >= 0).any(0))]
        half = np.array(inside.shape) // 2
        corners = {
            (row, column): inside[row * half[0] :][: half[0], column * half[1] :][:, : half[1]].mean()
            for row in (0, 1)
            for column in (0, 1)
        }
        assert max(corners, key=corners.__getitem__) == corner
        assert inside.max() > 180 and corners[1 - corner[0], 1 - corner[1]] < 40


def test_what_can_not_be_drawn_is_refused(tmp_path):
    caption = Caption((CaptionHypothesis("a", 0.0, ("a",), None, torch.ones(2, 6)),), None)
    with pytest.raises(ValueError, match="reads regions"):
        draw_attention(tmp_path / "a.png", caption, tmp_path / "looked.png")
