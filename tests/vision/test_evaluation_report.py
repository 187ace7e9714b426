"""An evaluation as text and as an image."""

from __future__ import annotations

import re

import pytest
import torch

from rskip.vision.evaluation import Evaluation, draw_confusion, per_class_metrics, text_form


def evaluation_of(names: tuple[str, ...], confusion: list[list[int]]) -> Evaluation:
    matrix = torch.tensor(confusion)
    count = int(matrix.sum())
    error, per_class = 100 * (count - int(matrix.trace())) / count, per_class_metrics(names, matrix)
    return Evaluation(
        dataset="cifar10", count=count, error=error, top5_error=0.25, loss=0.12345, per_class=per_class,
        confusion=tuple(tuple(row) for row in confusion), images_per_second=1234.5, seconds=8.0, batch_size=500,
        precision="float32", device="cpu",
    )  # fmt: skip


@pytest.fixture
def few() -> Evaluation:
    return evaluation_of(("cat", "airplane", "dog"), [[900, 10, 90], [0, 1000, 0], [0, 0, 0]])


@pytest.fixture
def many() -> Evaluation:
    confusion = [[0] * 25 for _ in range(25)]
    for number in range(25):
        confusion[number][number] = 90
        confusion[number][(number + 1) % 25] = number
    return evaluation_of(tuple(f"class {number}" for number in range(25)), confusion)


def test_text_of_few_classes_has_the_whole_matrix(few):
    assert (
        text_form(few)
        == """\
error 5.00 % (100 of 2,000 images), loss 0.1235
1,234 images/s (cpu, float32, batches of 500, median)

  class     images    error  precision  most often confused with
  cat        1,000  10.00 %   100.00 %  dog (90)
  airplane   1,000   0.00 %    99.01 %
  dog            0        -     0.00 %

confusion matrix (rows: true class, columns: predicted class):
                 0      1   2
  0  cat       900     10  90
  1  airplane    .  1,000   .
  2  dog         .      .   .
"""
    )


def test_text_of_many_classes_has_the_most_frequent_confusions(many):
    lines = text_form(many).splitlines()
    assert "images), top-5 error 0.25 %, loss" in lines[0]
    begin = lines.index("most frequent confusions:")
    assert lines[begin + 1] == "  class 24  predicted as  class 0   24"
    assert lines[begin + 2] == "  class 23  predicted as  class 24  23"
    assert lines[-1] == "  class 5   predicted as  class 6    5"
    assert len(lines) == begin + 21


def test_picture_has_every_class_and_number(few, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    draw_confusion(few, tmp_path / "few.svg", title="PreAct-ResNet-20")
    svg = (tmp_path / "few.svg").read_text(encoding="utf-8")
    # matplotlib keeps texts in comments beside the outlines of the letters
    texts = [comment.strip() for comment in re.findall(r"<!--(.*?)-->", svg, flags=re.DOTALL)]
    assert [texts.count(name) for name in ("cat", "airplane", "dog")] == [2, 2, 2]
    assert [texts.count(number) for number in ("900", "10", "90", "1,000")] == [1, 1, 1, 1]
    assert "PreAct-ResNet-20" in texts and "error 5.00 % of 2,000 images" in texts
