"""Residual connections: how a block's input x and its branch's output f = F(x) become the output y.

A connection is named by a spec, `[λ]family[+norm][:option=value,...]`, such as `2rskip+ln` or
`sas:gate=single`. docs/connections.md lists all of them with formula, meaning and source.
"""

from rskip.connections.connection import Connection
from rskip.connections.highway import Highway
from rskip.connections.norms import build_norm
from rskip.connections.prenorm import PreNorm
from rskip.connections.registry import (
    Choice,
    Factor,
    Family,
    Flag,
    Fold,
    Number,
    find_family,
    list_connections,
    register_connection,
)
from rskip.connections.rskip import RSkip, WSkip, XSkip
from rskip.connections.sas import SAS
from rskip.connections.spec import ConnectionSpec, build_connection, parse_connection
from rskip.settings.paper import Paper

__all__ = [
    "SAS",
    "Choice",
    "Connection",
    "ConnectionSpec",
    "Factor",
    "Family",
    "Flag",
    "Fold",
    "Highway",
    "Number",
    "Paper",
    "PreNorm",
    "RSkip",
    "WSkip",
    "XSkip",
    "build_connection",
    "build_norm",
    "find_family",
    "list_connections",
    "parse_connection",
    "register_connection",
]
