"""Types of numbers and names that several settings share."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Count = Annotated[int, Meta(ge=1, le=10**12, extra={"expected": "a whole number, 1 or more"})]  # lines, tokens, ...
Whole = Annotated[int, Meta(ge=0, le=10**12, extra={"expected": "a whole number, 0 or more"})]  # iterations done
Size = Annotated[int, Meta(ge=1, le=10**8)]  # of a dimension: symbols, features
Index = Annotated[int, Meta(ge=0, le=10**8)]  # of a symbol
MOST_LAYERS = 1000  # the deepest Transformers have as many (Wang et al. 2022)
Layers = Annotated[int, Meta(ge=1, le=MOST_LAYERS)]
Positions = Annotated[int, Meta(ge=1, le=10**6)]  # each is a row of a table
Probability = Annotated[float, Meta(ge=0, lt=1, extra={"expected": "a probability, 0 or more and below 1"})]
# part of the names of files
Language = Annotated[str, Meta(pattern=r"^[\w@.+-]+$", extra={"expected": "a language, such as en or zh_CN"})]
Positive = Annotated[float, Meta(gt=0, le=1e12, extra={"expected": "a number above 0"})]
