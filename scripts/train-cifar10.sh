#!/usr/bin/env bash
# CIFAR-10 by a row of recipes/cifar10*.yaml. Without NAME: the names there are.
#
#   scripts/train-cifar10.sh NAME [options of `rskip run`]
#   scripts/train-cifar10.sh preact110_2rskip_ln --seeds 1 2 3 4 5
set -euo pipefail
exec "$(dirname "$0")/train-recipe.sh" cifar10 "$@"
