#!/usr/bin/env bash
# WMT'14 English to French by a row of recipes/wmt14_en_fr*.yaml. Without NAME: the names there are.
#
#   scripts/train-wmt14-en2fr.sh NAME [options of `rskip run`]
#   scripts/train-wmt14-en2fr.sh big_2rskip_ln --gpus 8
set -euo pipefail
exec "$(dirname "$0")/train-recipe.sh" wmt14_en_fr "$@"
