#!/usr/bin/env bash
# One check with the inputs of the action, which come through the environment.
set -uo pipefail

arguments=(--annotations)
if [ -n "${BASELINE:-}" ]; then arguments+=("--baseline=$BASELINE"); fi
if [ -n "${POLICY:-}" ]; then arguments+=("--policy=$POLICY"); fi
if [ -n "${JUNIT:-}" ]; then arguments+=("--junit=$JUNIT"); fi

case "${INCONCLUSIVE:-fail}" in
  fail | pass) ;;
  *)
    echo "The input inconclusive is fail or pass." >&2
    exit 2
    ;;
esac

status=0
regimescope check "${arguments[@]}" -- "$RUN" || status=$?
if [ -n "${GITHUB_OUTPUT:-}" ]; then echo "status=$status" >>"$GITHUB_OUTPUT"; fi
if [ "$status" -eq 4 ] && [ "${INCONCLUSIVE:-fail}" = pass ]; then exit 0; fi
exit "$status"
