"""Pictures as PNG or SVG files, by matplotlib (extra `rskip[pictures]`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rskip.files.whole import atomic_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = (".png", ".svg")


def check_picture(path: Path) -> None:
    """Finds out before the work whether a picture can be drawn.

    :raises ValueError: another kind of file than KINDS, or matplotlib is missing.
    """
    if path.suffix.lower() not in KINDS:
        raise ValueError(f"{path}: expected a file name that ends in {' or '.join(KINDS)}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ValueError("a picture needs matplotlib: pip install 'rskip[pictures]'") from None


@contextmanager
def picture(path: Path, *, style: Mapping[str, Any] | None = None, **figure_options: Any) -> Iterator[Figure]:
    """Gives an empty figure; what the block draws in it becomes the file, the same bytes for the same drawing.

    :param style: matplotlib's settings (rcParams).
    :param figure_options: of matplotlib's Figure.
    :raises ValueError: as `check_picture`.
    """
    check_picture(path)
    import matplotlib
    from matplotlib.figure import Figure

    settings: Any = {"svg.hashsalt": "rskip", "font.size": 10, **(style or {})}
    with matplotlib.rc_context(settings):
        figure = Figure(**figure_options)
        yield figure
        kind = path.suffix.lower()
        with atomic_file(path) as temporary:
            metadata = {"Date": None} if kind == ".svg" else None
            figure.savefig(temporary, format=kind.removeprefix("."), dpi=150, metadata=metadata)
