#!/bin/sh
# A worker in a shell: claims jobs of the queue "images" over HTTP, runs them, and says what became of them.
#
#   windlass serve tasks:app                          # somewhere
#   WINDLASS_API=http://127.0.0.1:8700 sh worker.sh   # here, with WINDLASS_KEY, or the server's WINDLASS_TOKEN
#
# It needs curl alone. One job at a time; while it runs, its lease is extended, so that a worker that dies
# keeps its job for no longer than VISIBILITY seconds. JOBS says after how many jobs to stop; 0 is never.
set -eu
API=${WINDLASS_API:-http://127.0.0.1:8700}
QUEUE=${QUEUE:-images}
VISIBILITY=${VISIBILITY:-30}
JOBS=${JOBS:-0}

post() { # path, body
    curl --silent --show-error --max-time 90 --fail-with-body \
        --header "Authorization: Bearer ${WINDLASS_KEY:-${WINDLASS_TOKEN:-}}" \
        --header "Content-Type: application/json" \
        --data "$2" "$API$1"
}

text() { # name, document: the first text of that name; enough for tokens, ids and names, which have no quotes
    printf '%s' "$2" | sed -n 's/.*"'"$1"'":"\([^"]*\)".*/\1/p'
}

number() { # name, document: a whole number of that name, else 0
    found=$(printf '%s' "$2" | sed -n 's/.*"'"$1"'":\([0-9]*\).*/\1/p')
    printf '%s' "${found:-0}"
}

run() { # task, document: the work itself; what it prints is the result, a failure is tried again
    case $1 in
    resize)
        sleep "$(number sleep "$2")"
        printf '{"resized":"%s"}' "$(text path "$2")"
        ;;
    *) echo "this worker has no task $1" >&2 && return 1 ;;
    esac
}

extend() { # lease: for as long as the job runs
    while sleep "$((VISIBILITY / 3 + 1))"; do
        post "/v1/leases/$1/extend" "{\"visibility\":$VISIBILITY}" >/dev/null || return
    done
}

done_jobs=0
while [ "$JOBS" -eq 0 ] || [ "$done_jobs" -lt "$JOBS" ]; do
    if ! answer=$(post /v1/leases "{\"queues\":[\"$QUEUE\"],\"wait\":20,\"visibility\":$VISIBILITY}"); then
        sleep 1 # the server is away; the job of a lease that was under way comes back by itself
        continue
    fi
    lease=$(text lease "$answer")
    [ -n "$lease" ] || continue
    extend "$lease" &
    extender=$!
    if result=$(run "$(text task "$answer")" "$answer" 2>/dev/null); then
        settlement="{\"outcome\":\"ack\",\"result\":$result}"
    else
        settlement='{"outcome":"nack","error":{"type":"ShellError","message":"it failed"}}'
    fi
    kill "$extender" 2>/dev/null || true
    # Said again after a lost answer it changes nothing; 409 means that others have the job.
    post "/v1/leases/$lease/settle" "$settlement" >/dev/null || post "/v1/leases/$lease/settle" "$settlement" || true
    done_jobs=$((done_jobs + 1))
done
