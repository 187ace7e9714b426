#!/usr/bin/env bash
# IWSLT'15 English to Vietnamese by a row of recipes/iwslt15_en_vi*.yaml. Without NAME: the names there are.
#
#   scripts/train-iwslt15-en-vi.sh NAME [options of `rskip run`]
#   scripts/train-iwslt15-en-vi.sh 2rskip_ln --seeds 1 2 3
set -euo pipefail
exec "$(dirname "$0")/train-recipe.sh" iwslt15_en_vi "$@"
