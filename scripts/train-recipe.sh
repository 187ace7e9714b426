#!/usr/bin/env bash
# Trains the row of recipes/FAMILY*.yaml whose runs are named FAMILY_NAME. The other train-*.sh are this one with their
# family's name.
#
#   scripts/train-recipe.sh FAMILY NAME [options of `rskip run`]
#   scripts/train-recipe.sh wmt14_en_de big_2rskip_ln --gpus 8
#
# base_ may be left out of NAME. Without NAME: the names there are.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
family=${1:-} name=${2:-}

names() {  # of all rows of the family's files, as in `cifar10_`preact110_1xskip
    for file in "$root/recipes/$family.yaml" "$root/recipes/${family}_"*.yaml; do
        [[ -f $file ]] || continue
        prefix=$(basename "$file" .yaml) prefix=${prefix#"$family"} prefix=${prefix#_}
        sed -n "1,/^rows:/d; s/^  \([a-z0-9][a-z0-9_.-]*\):.*/${prefix:+${prefix}_}\1/p" "$file"
    done
}

for each in "$name" "base_$name"; do
    grep -qxF -- "$each" <(names) && break || each=
done
if [[ -z $name || -z $each ]]; then
    known=$(names | paste -sd " ")
    echo "train-recipe.sh: error: no row '$name' of '$family': expected one of ${known:-those in recipes/}" >&2
    exit 2
fi

rskip=$root/.venv/bin/rskip
if [[ ! -x $rskip ]]; then
    rskip=$(command -v rskip) || { echo "train-recipe.sh: error: no rskip command: run \`make\` first" >&2; exit 2; }
fi
exec "$rskip" run "$root/recipes/${family}_$each.yaml" "${@:3}"
