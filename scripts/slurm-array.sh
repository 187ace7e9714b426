#!/usr/bin/env bash
# Runs a sweep as a Slurm array: task N is the N-th command of a file that `rskip run --commands` wrote.
#
#   rskip run recipes/multi30k_en_de.yaml --variants '*' --seeds 1 2 3 --commands > commands.txt
#   mkdir -p runs  # Slurm makes no folder for its logs
#   sbatch --array=1-$(wc -l < commands.txt)%8 scripts/slurm-array.sh commands.txt
#
# Run it in the project's folder, which all nodes share. Options of sbatch override those below. A requeued task
# continues from its run's last checkpoint. Images and language models save one before the time limit. Translation and
# captioning don't: they lose the updates since the last epoch, or since train.save-interval-updates saved.
# Afterwards write the file again: it then contains only the runs that are still missing.
#SBATCH --job-name=rskip
#SBATCH --gpus=1
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --signal=B:TERM@120
#SBATCH --output=runs/slurm-%A_%a.log
set -euo pipefail

command=$(sed -n "${SLURM_ARRAY_TASK_ID}p" "$1")
if [[ -z $command ]]; then
    echo "slurm-array.sh: error: $1 has no line $SLURM_ARRAY_TASK_ID: give --array=1-$(wc -l < "$1")" >&2
    exit 2
fi
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1} PATH=$PWD/.venv/bin:$PATH
eval "exec $command"
