#!/usr/bin/env bash
# Prepares IWSLT'14 German-English for fairseq-train in data-bin/iwslt14-de-en.
# For the other direction use `rskip prepare iwslt14-en-de`.
#
#   scripts/prepare-iwslt14.sh [options of `rskip prepare`]
set -euo pipefail

rskip=$(dirname "$0")/../.venv/bin/rskip
if [[ ! -x $rskip ]]; then
    rskip=$(command -v rskip) || { echo "prepare-iwslt14.sh: error: no rskip command: run \`make\` first" >&2; exit 2; }
fi
exec "$rskip" prepare iwslt14-de-en "$@"
