"""A worked example of a user-dir of one's own: it adds the connection `rezero` to all of rskip's models.

fairseq-train data-bin/numbers-en-de --user-dir user_dir --arch transformer_rskip_ln_tiny --connection rezero ...
"""

import rskip.fairseq_plugin  # rskip's architectures

from . import rezero  # and our own connection, which every one of them now takes

__all__ = ["rezero", "rskip"]
