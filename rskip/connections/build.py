"""From a spec to a module."""

from __future__ import annotations

from rskip.connections.connection import Connection
from rskip.connections.features import check_features
from rskip.connections.registry import find_family
from rskip.connections.spec import ConnectionSpec, parse_connection


def build_connection(spec: str | ConnectionSpec, features: int, *, feature_dim: int = -1) -> Connection:
    """The connection that `spec` names, for `features` features along `feature_dim`: -1 on text, 1 on images.

    ValueError for a spec that is not valid, for bn on text and for prenorm on images.
    """
    if isinstance(spec, str):
        spec = parse_connection(spec)
    check_features(features, feature_dim)
    family = find_family(spec.family)
    if family.text_only and feature_dim != -1:
        raise ValueError(f"{spec} is for text (feature_dim=-1); choose another connection for images")
    return family.connection(features, feature_dim=feature_dim, **spec.settings)
