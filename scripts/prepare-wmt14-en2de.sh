#!/usr/bin/env bash
# Prepares WMT'14 English-German for fairseq-train in data-bin/wmt14-en-de.
# For the other direction use `rskip prepare wmt14-de-en`.
#
#   scripts/prepare-wmt14-en2de.sh [options of `rskip prepare`]
set -euo pipefail

rskip=$(dirname "$0")/../.venv/bin/rskip
if [[ ! -x $rskip ]]; then
    rskip=$(command -v rskip) || { echo "prepare-wmt14-en2de.sh: error: no rskip command: run \`make\` first" >&2; exit 2; }
fi
exec "$rskip" prepare wmt14-en-de "$@"
