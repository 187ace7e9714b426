"""Fixtures of the packages whose commands are tested."""

from tests.analysis.conftest import few_images, few_pairs
from tests.corpora.conftest import stub

__all__ = ["few_images", "few_pairs", "stub"]
