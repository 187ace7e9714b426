"""Registers the import hook. The start-up hook runs this in every Python process, so it imports only `sys`."""

import sys


class FairseqFinder:
    """Meta path finder that hands only fairseq's modules and programs to `fairseq_compat.registry`."""

    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname.partition(".")[0] not in ("fairseq", "fairseq_cli"):
            return None
        from fairseq_compat.registry import patched_spec

        return patched_spec(cls, fullname, path, target)


def register() -> None:
    """Puts the finder before the others, once."""
    if FairseqFinder not in sys.meta_path:
        sys.meta_path.insert(0, FairseqFinder)
