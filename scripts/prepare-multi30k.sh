#!/usr/bin/env bash
# Prepares Multi30k for fairseq-train in data-bin/multi30k-SOURCE-TARGET.
#
#   scripts/prepare-multi30k.sh [SOURCE TARGET] [options of `rskip prepare`]
#   scripts/prepare-multi30k.sh en de --mirror FOLDER_OR_URL
set -euo pipefail

pair=en-de
if [[ $# -ge 2 && $1 != -* && $2 != -* ]]; then
    pair=$1-$2
    shift 2
fi

rskip=$(dirname "$0")/../.venv/bin/rskip
if [[ ! -x $rskip ]]; then
    rskip=$(command -v rskip) || { echo "prepare-multi30k.sh: error: no rskip command: run \`make\` first" >&2; exit 2; }
fi
exec "$rskip" prepare "multi30k-$pair" "$@"
