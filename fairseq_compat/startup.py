"""What the start-up hook runs in every Python process: registers an import hook. Imports only `sys`."""

import sys


class FairseqFinder:
    """Meta path finder that hands fairseq's modules to `fairseq_compat.import_hook` and ignores all others."""

    @staticmethod
    def find_spec(fullname, path=None, target=None):
        if fullname != "fairseq" and not fullname.startswith("fairseq."):
            return None
        from fairseq_compat.import_hook import patched_spec

        return patched_spec(fullname, path, target)


def register() -> None:
    """Puts the finder in front of the others, once."""
    if FairseqFinder not in sys.meta_path:
        sys.meta_path.insert(0, FairseqFinder)
