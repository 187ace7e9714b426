"""The work of `rskip adapt`: builds the model, adapts it, and prints what changes."""

from __future__ import annotations

import copy

from rskip.comparison.models import build_named
from rskip.connections import HOST_NEEDS
from rskip.nn import adapt, adaptation


def show_changes(name: str, connection: str, blocks: str | None) -> None:
    """Prints the lines of a model that would change, then what `adapt` did to it.

    :raises SettingError: there is no such model, or `adapt` refuses it.
    """
    model = build_named(name)
    adapted = adapt(copy.deepcopy(model), connection, blocks=blocks, host_supplies=HOST_NEEDS)
    print("The lines that change:\n")
    adapt(model, connection, blocks=blocks, dry_run=True)
    print(f"\nWith random weights, all probes passed.\n\n{adaptation(adapted)}")
