#!/bin/sh
# TaskProlog of slurm.conf: records the job's first task on each node, as the job's user. Give GPUTOP_RECORDINGS, a
# directory that the user can write; without it nothing is recorded. A job is never held up or failed by it; why a
# recording is not there is in its .log.
[ -n "$GPUTOP_RECORDINGS" ] && [ "${SLURM_LOCALID:-0}" = 0 ] || exit 0
command -v gputop >/dev/null 2>&1 && command -v setsid >/dev/null 2>&1 || exit 0
umask 077
base="$GPUTOP_RECORDINGS/job-$SLURM_JOB_ID-$(hostname -s)"
# One recording at a time: the step that began it ends it.
if ! (set -C; : >"$base.pid") 2>/dev/null; then
  # That of a node that failed is not there any more. An empty file is that of a step that begins just now.
  read -r pid rest 2>/dev/null <"$base.pid" && [ -n "$pid" ] && ! [ -e "/proc/$pid" ] || exit 0
  rm -f "$base.pid"
  (set -C; : >"$base.pid") 2>/dev/null || exit 0
fi
# A second step of its own, or the job requeued: a recording is never written over.
name="$base"
number=1
while [ -e "$name.jsonl.gz" ]; do
  number=$((number + 1))
  name="$base-$number"
done
# What a prolog leaves in its process group is killed when it ends: the recorder needs a session of its own, and the
# prolog waits until it has one.
setsid gputop record -o "$name.jsonl.gz" --visible >/dev/null 2>"$name.log" </dev/null &
pid=$!
echo "$pid ${SLURM_STEP_ID:-batch} $name" >"$base.pid"
tries=0
while [ "$tries" -lt 50 ]; do
  read -r stat 2>/dev/null <"/proc/$pid/stat" || break
  # shellcheck disable=SC2086
  set -- ${stat##*) }
  [ "$4" = "$pid" ] && break
  tries=$((tries + 1))
  sleep 0.1
done
exit 0
