#!/usr/bin/env bash
# A worker in shell and curl: claims one job at a time over HTTP, renews its lease, answers.
# HOLDFAST_HTTP=http://127.0.0.1:8080 HOLDFAST_API_KEY=hf_... bash worker.sh
# JSON is read with python3; jq does as well.
set -euo pipefail

api="${HOLDFAST_HTTP:-http://127.0.0.1:8080}/api/v1"
worker="shell-$(hostname)-$$"
left="${JOBS:--1}" # stop after so many jobs

post() { # PATH BODY: post it, again and again while nobody answers; every call may be repeated
  curl -sS --retry 10 --retry-connrefused --retry-max-time 60 "$api$1" -d "$2" \
    -H 'content-type: application/json' ${HOLDFAST_API_KEY:+-H "authorization: Bearer $HOLDFAST_API_KEY"}
}

field() { # NAME: read one field of the first job on standard input
  python3 -c 'import json, sys
job = json.load(sys.stdin)["jobs"][0]
value = job[sys.argv[1]]
print(value if isinstance(value, str) else json.dumps(value))' "$1"
}

handle() { # TYPE PAYLOAD: print the output as JSON; 64: nobody can, else: try again
  case "$1" in
    greet) python3 -c 'import json, sys
print(json.dumps({"greeting": "hello " + json.loads(sys.argv[1])["name"]}))' "$2" ;;
    *) return 64 ;;
  esac
}

work() { # CLAIMED: do one job
  local id token output status=0 beat
  id=$(field job_id <<<"$1")
  token=$(field lease_token <<<"$1")
  (while sleep 10; do post "/jobs/$id/heartbeat" "{\"lease_token\": \"$token\"}" >/dev/null; done) &
  beat=$!
  export -f handle # timeout needs a process: the service fails an attempt that takes longer
  output=$(timeout "$(field timeout_seconds <<<"$1")" bash -c 'handle "$@"' handle \
    "$(field type <<<"$1")" "$(field payload <<<"$1")") || status=$?
  kill "$beat" 2>/dev/null || true
  case "$status" in
    0) post "/jobs/$id/complete" "{\"lease_token\": \"$token\", \"output\": $output}" ;;
    64) post "/jobs/$id/fail" "{\"lease_token\": \"$token\", \"category\": \"PERMANENT\",
      \"code\": \"UNKNOWN_TYPE\", \"message\": \"no handler\"}" ;;
    124) post "/jobs/$id/fail" "{\"lease_token\": \"$token\", \"category\": \"TIMEOUT\",
      \"message\": \"took too long\"}" ;;
    *) post "/jobs/$id/fail" "{\"lease_token\": \"$token\", \"message\": \"exit $status\"}" ;;
  esac
  echo
}

while [ "$left" -ne 0 ]; do
  claimed=$(post /workers/claim "{\"worker_id\": \"$worker\", \"queues\": [\"default\"], \"wait\": 20}")
  if [[ "$claimed" == *'"job_id"'* ]]; then
    work "$claimed"
    left=$((left - 1))
  fi
done
