#!/usr/bin/env bash
# CIFAR-100 by a row of recipes/cifar100*.yaml. Without NAME: the names there are.
#
#   scripts/train-cifar100.sh NAME [options of `rskip run`]
#   scripts/train-cifar100.sh preact110_2rskip_ln --seeds 1 2 3 4 5
set -euo pipefail
exec "$(dirname "$0")/train-recipe.sh" cifar100 "$@"
