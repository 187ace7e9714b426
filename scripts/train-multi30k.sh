#!/usr/bin/env bash
# Multi30k, English to German by a row of recipes/multi30k_en_de*.yaml. Without NAME: the names there are.
#
#   scripts/train-multi30k.sh NAME [options of `rskip run`]
#   scripts/train-multi30k.sh 2rskip_ln --seeds 1 2 3
set -euo pipefail
exec "$(dirname "$0")/train-recipe.sh" multi30k_en_de "$@"
