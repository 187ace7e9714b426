#!/usr/bin/env bash
# Trains the recipe recipes/FAMILY_NAME.yaml. The other train-*.sh are this one with their family's name.
#
#   scripts/train-recipe.sh FAMILY NAME [options of `rskip run`]
#   scripts/train-recipe.sh wmt14_en_de big_2rskip_ln --gpus 8
#
# base_ may be left out of NAME. Without NAME: the names there are.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
family=${1:-} name=${2:-}

for recipe in "$root/recipes/${family}_$name.yaml" "$root/recipes/${family}_base_$name.yaml"; do
    [[ -f $recipe ]] && break
done
if [[ -z $name || ! -f $recipe ]]; then
    names=$(cd "$root/recipes" && ls "$family"_*.yaml 2>/dev/null) || true
    names=$(sed "s/^${family}_//; s/\.yaml$//" <<<"$names" | paste -sd " ")
    echo "train-recipe.sh: error: no recipe '$name' of '$family': expected one of ${names:-those in recipes/}" >&2
    exit 2
fi

rskip=$root/.venv/bin/rskip
if [[ ! -x $rskip ]]; then
    rskip=$(command -v rskip) || { echo "train-recipe.sh: error: no rskip command: run \`make\` first" >&2; exit 2; }
fi
exec "$rskip" run "$recipe" "${@:3}"
