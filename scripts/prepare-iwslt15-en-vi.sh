#!/usr/bin/env bash
# Prepares IWSLT'15 English-Vietnamese, as Stanford preprocessed it, for fairseq-train in data-bin/iwslt15-en-vi.
# For the other direction use `rskip prepare iwslt15-vi-en`.
#
#   scripts/prepare-iwslt15-en-vi.sh [options of `rskip prepare`]
set -euo pipefail

rskip=$(dirname "$0")/../.venv/bin/rskip
if [[ ! -x $rskip ]]; then
    rskip=$(command -v rskip) || { echo "prepare-iwslt15-en-vi.sh: error: no rskip command: run \`make\` first" >&2; exit 2; }
fi
exec "$rskip" prepare iwslt15-en-vi "$@"
