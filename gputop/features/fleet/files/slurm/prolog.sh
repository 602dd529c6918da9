#!/bin/sh
# TaskProlog of slurm.conf: records the job's first task on each node, as the job's user. Give GPUTOP_RECORDINGS, a
# directory that the user can write; without it nothing is recorded. A job is never held up or failed by it.
[ -n "$GPUTOP_RECORDINGS" ] && [ "${SLURM_LOCALID:-0}" = 0 ] || exit 0
command -v gputop >/dev/null 2>&1 || exit 0
umask 077
file="$GPUTOP_RECORDINGS/job-$SLURM_JOB_ID-$(hostname -s).jsonl.gz"
[ -e "$file" ] && exit 0
gputop record -o "$file" --visible >/dev/null 2>&1 </dev/null &
echo "export GPUTOP_RECORDER_PID=$!"
echo "export GPUTOP_RECORDING=$file"
