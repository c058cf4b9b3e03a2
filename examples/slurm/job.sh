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
log=$PWD/dask-${SLURM_JOB_ID:-$$}.log # what Dask prints, tracebacks of failed units too; kept if the job fails
stop() {
    [ $? -ne 0 ] || rm -f "$log"
    kill $(jobs -p) 2>/dev/null || true
    rm -f "$scheduler"
}
trap stop EXIT
# A job that Slurm puts back into its queue keeps its number: workers would look for the scheduler of a dead node.
rm -f "$scheduler"
# By default the scheduler hands out a task when a worker is free, and may forget to when it loses a worker.
export DASK_DISTRIBUTED__SCHEDULER__WORKER_SATURATION=inf
dask scheduler --scheduler-file "$scheduler" --no-dashboard --port 0 >>"$log" 2>&1 &
until [ -s "$scheduler" ]; do kill -0 $! 2>/dev/null || { cat "$log"; exit 1; }; sleep 0.5; done
srun dask worker --scheduler-file "$scheduler" --nthreads 1 --no-dashboard --death-timeout 120 >>"$log" 2>&1 &

# Four partitions for each worker, so that a slow one is not waited for.
clozeworks "$@" -- --runner=DaskRunner --dask_scheduler_file="$scheduler" \
    --dask_npartitions=$((4 * ${SLURM_NTASKS:-1} < 64 ? 64 : 4 * ${SLURM_NTASKS:-1})) &
command=$!
status=0
wait -n || status=$? # without the scheduler, or any worker, the command would wait until the job is out of time
if kill -0 "$command" 2>/dev/null; then
    echo "Error: Dask has ended before the command: see $log." >&2
    exit 1
fi
exit "$status"
