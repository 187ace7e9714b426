"""What a model makes of a set of images: error, every class, who is taken for whom, images a second."""

from rskip.vision.evaluation.evaluate import ClassFigures, Evaluation, OutputsNotFinite, evaluate

__all__ = ["ClassFigures", "Evaluation", "OutputsNotFinite", "evaluate"]
