#!/bin/sh
# TaskEpilog of slurm.conf: ends the recording of prolog.sh and writes what gputop says of the job beside it, as the
# job's user. The verdicts: gputop help verdicts.
[ -n "$GPUTOP_RECORDINGS" ] && [ "${SLURM_LOCALID:-0}" = 0 ] || exit 0
base="$GPUTOP_RECORDINGS/job-$SLURM_JOB_ID-$(hostname -s)"
# What a prolog exports reaches the task and not this script: pid, step and the recording's name are in a file.
read -r pid step name 2>/dev/null <"$base.pid" || exit 0
[ "$step" = "${SLURM_STEP_ID:-batch}" ] && [ -n "$name" ] || exit 0
rm -f "$base.pid"
kill "$pid" 2>/dev/null
tries=0
while kill -0 "$pid" 2>/dev/null && [ "$tries" -lt 100 ]; do
  tries=$((tries + 1))
  sleep 0.1
done
umask 077
[ -e "$name.jsonl.gz" ] && gputop diagnose "$name.jsonl.gz" >"$name.txt" 2>>"$name.log" </dev/null
[ -s "$name.log" ] || rm -f "$name.log"
exit 0
