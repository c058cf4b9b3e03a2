#!/usr/bin/env bash
#SBATCH --job-name=clozeworks
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=16
#SBATCH --cpus-per-task=1
#SBATCH --mem-per-cpu=1G
#SBATCH --time=04:00:00
# Run a data stage on all tasks of a Slurm allocation: a Dask scheduler here, a Dask worker in each task, and the stage's
# one Beam pipeline on them. All paths must lie on a file system that every node sees. To resume, submit the job again.
#
#     sbatch examples/slurm/job.sh ingest dumps/ --output documents
set -euo pipefail

scheduler=$PWD/dask-scheduler-${SLURM_JOB_ID:-$$}.json
trap 'kill $(jobs -p) 2>/dev/null; rm -f "$scheduler"' EXIT
dask scheduler --scheduler-file "$scheduler" --no-dashboard --port 0 &
until [ -s "$scheduler" ]; do kill -0 $! 2>/dev/null || exit 1; sleep 0.5; done
srun dask worker --scheduler-file "$scheduler" --nthreads 1 --no-dashboard --death-timeout 120 &

# Four partitions for each worker, so that a slow one is not waited for.
clozeworks "$@" -- --runner=DaskRunner --dask_scheduler_file="$scheduler" \
    --dask_npartitions=$((4 * ${SLURM_NTASKS:-1} < 64 ? 64 : 4 * ${SLURM_NTASKS:-1}))
