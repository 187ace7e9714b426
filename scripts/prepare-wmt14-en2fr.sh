#!/usr/bin/env bash
# Prepares WMT'14 English-French for fairseq-train in data-bin/wmt14-en-fr.
# For the other direction use `rskip prepare wmt14-fr-en`.
#
#   scripts/prepare-wmt14-en2fr.sh [options of `rskip prepare`]
set -euo pipefail

rskip=$(dirname "$0")/../.venv/bin/rskip
if [[ ! -x $rskip ]]; then
    rskip=$(command -v rskip) || { echo "prepare-wmt14-en2fr.sh: error: no rskip command: run \`make\` first" >&2; exit 2; }
fi
exec "$rskip" prepare wmt14-en-fr "$@"
