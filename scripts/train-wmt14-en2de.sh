#!/usr/bin/env bash
# WMT'14 English to German by a row of recipes/wmt14_en_de*.yaml. Without NAME: the names there are.
#
#   scripts/train-wmt14-en2de.sh NAME [options of `rskip run`]
#   scripts/train-wmt14-en2de.sh 2rskip_ln --gpus 8
set -euo pipefail
exec "$(dirname "$0")/train-recipe.sh" wmt14_en_de "$@"
