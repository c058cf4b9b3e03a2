#!/usr/bin/env bash
#SBATCH --job-name=clozeworks-train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --signal=B:TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
# Train on all tasks of a Slurm allocation, a task for each GPU. Two minutes before its time is over the run saves, and
# the job goes back into the queue to resume it. All paths must lie on a file system that every node sees.
#
#     sbatch examples/slurm/train.sh pretrain instances --output run --model base --steps 100000
set -uo pipefail

# The ranks meet at the first node, at a port that another job there is unlikely to have.
export MASTER_ADDR MASTER_PORT
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))

srun --kill-on-bad-exit=0 --wait=300 bash -c \
    'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS exec clozeworks "$@"' clozeworks "$@" &
step=$!
trap 'scancel --signal=TERM "$SLURM_JOB_ID.0"' TERM
wait "$step"
status=$?
while kill -0 "$step" 2>/dev/null; do # the signal ended the first wait
    wait "$step"
    status=$?
done
# 143: the ranks saved and ended. A mistake (2) or a failure (1) is not tried again.
[ "$status" -ne 143 ] || scontrol requeue "$SLURM_JOB_ID"
exit "$status"
