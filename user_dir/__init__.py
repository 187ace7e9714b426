"""A worked example of a user-dir of one's own: it adds the connections `rezero` and `lanes` to all of rskip's models.

fairseq-train data-bin/numbers-en-de --user-dir user_dir --arch transformer_rskip_ln_tiny --connection lanes ...
"""

import rskip.fairseq_plugin  # rskip's architectures

from . import lanes, rezero  # and our own connections, which every one of them now takes; `rezero` in place of rskip's

__all__ = ["lanes", "rezero", "rskip"]
