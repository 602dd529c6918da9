#!/bin/sh
# TaskEpilog of slurm.conf: ends the recording of prolog.sh and writes what gputop says of the job beside it, as the
# job's user. The verdicts: gputop help verdicts.
[ -n "$GPUTOP_RECORDER_PID" ] && [ "${SLURM_LOCALID:-0}" = 0 ] || exit 0
kill "$GPUTOP_RECORDER_PID" 2>/dev/null
tries=0
while kill -0 "$GPUTOP_RECORDER_PID" 2>/dev/null && [ "$tries" -lt 50 ]; do
  tries=$((tries + 1))
  sleep 0.1
done
umask 077
gputop diagnose "$GPUTOP_RECORDING" >"${GPUTOP_RECORDING%.jsonl.gz}.txt" 2>&1 </dev/null
exit 0
