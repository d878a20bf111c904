"""Every metric of Windlass. The dashboard and the alert rules in `contrib/` name these and no others."""

from windlass.observe.exposition import Measure, Registry

CONTENT_TYPE = "text/plain; version=0.0.4"
"""Of the page, without its charset, which is UTF-8."""

_WAITS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800)
_RUNS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800)
_CALLS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)

# --- what this process has done -----------------------------------------------------------------------------

ENQUEUED = Measure(
    name="windlass_enqueued_total",
    kind="counter",
    help="Jobs handed in by this process, by what became of them: created, duplicate, replaced, refused.",
    labels=("queue", "task", "status"),
)
ATTEMPTS = Measure(
    name="windlass_attempts_total",
    kind="counter",
    help="Ends of leases, by outcome: done, retry, dead, cancelled, snooze, release, hold.",
    labels=("queue", "task", "outcome"),
)
INTERRUPTED = Measure(
    name="windlass_interrupted_total",
    kind="counter",
    help="Leases that ended without a word of their holder, by cause: crash, lost, deadline.",
    labels=("queue", "task", "cause"),
)
WAIT = Measure(
    name="windlass_job_wait_seconds",
    kind="histogram",
    help="From due to handed out, on the store's clock.",
    labels=("queue", "task"),
    bounds=_WAITS,
)
RUN = Measure(
    name="windlass_job_run_seconds",
    kind="histogram",
    help="How long the code of tasks ran.",
    labels=("queue", "task"),
    bounds=_RUNS,
)
REFUSED = Measure(
    name="windlass_settlements_refused_total",
    kind="counter",
    help="Words about leases that were lost: stale, gone; or that could not be kept: refused.",
    labels=("verdict",),
)
CALLS = Measure(
    name="windlass_store_call_seconds",
    kind="histogram",
    help="How long the store took to answer, by verb; without those that wait for something to happen.",
    labels=("verb",),
    bounds=_CALLS,
)
ERRORS = Measure(
    name="windlass_store_errors_total",
    kind="counter",
    help="Calls of the store that failed, by verb.",
    labels=("verb",),
)
REAPED = Measure(
    name="windlass_sessions_reaped_total",
    kind="counter",
    help="Worker processes that fell silent and were given up by a sweep of this process.",
)
SWEEP_LAG = Measure(
    name="windlass_sweep_lag_seconds",
    kind="gauge",
    help="Since this process last swept the store, or was told by it that another had.",
)

# --- a worker -----------------------------------------------------------------------------------------------

PROCESSES = Measure(
    name="windlass_worker_processes", kind="gauge", help="Processes of this worker that run jobs."
)
SLOTS = Measure(
    name="windlass_worker_slots", kind="gauge", help="Jobs that the processes of this worker can run at once."
)
BUSY = Measure(
    name="windlass_worker_slots_busy",
    kind="gauge",
    help="Jobs that have started in them and not been settled.",
)
CRASHES = Measure(
    name="windlass_worker_crashes_total", kind="counter", help="Processes of this worker that died."
)

# --- what the store holds -----------------------------------------------------------------------------------

UP = Measure(
    name="windlass_store_up",
    kind="gauge",
    help="1 if the store answered when these metrics were read, else 0.",
)
JOBS = Measure(
    name="windlass_jobs",
    kind="gauge",
    help="Jobs in the store: blocked, scheduled, ready, running, dead.",
    labels=("queue", "task", "state"),
)
FINISHED = Measure(
    name="windlass_jobs_finished_total",
    kind="counter",
    help="Jobs that were ever done or cancelled, whatever is kept of them.",
    labels=("queue", "task", "state"),
    kept_elsewhere=True,
)
OLDEST = Measure(
    name="windlass_queue_oldest_seconds",
    kind="gauge",
    help="For how long the longest-waiting ready job of a queue has been due.",
    labels=("queue",),
)
PAUSED = Measure(
    name="windlass_queue_paused", kind="gauge", help="1 if a queue is paused.", labels=("queue",)
)
SESSIONS = Measure(
    name="windlass_sessions", kind="gauge", help="Worker processes alive, of all workers.", labels=("host",)
)
FLEET_SLOTS = Measure(
    name="windlass_slots", kind="gauge", help="Jobs that all workers can run at once.", labels=("host",)
)
FLEET_LEASES = Measure(
    name="windlass_slots_leased", kind="gauge", help="Jobs that all workers hold.", labels=("host",)
)
INFO = Measure(
    name="windlass_info", kind="gauge", help="Which Windlass this is.", labels=("version", "store")
)

# --- intakes and relays, as those who run them report -------------------------------------------------------

INTAKE_LAG = Measure(
    name="windlass_intake_lag",
    kind="gauge",
    help="Messages that wait for an intake in its message broker; partition is empty for a queue.",
    labels=("intake", "partition"),
)
INTAKE_TAKEN = Measure(
    name="windlass_intake_taken_total",
    kind="counter",
    help="Messages taken since the reader began; partition is the session of a reader of a queue.",
    labels=("intake", "partition"),
    kept_elsewhere=True,
)
INTAKE_DEAD = Measure(
    name="windlass_intake_dead_total",
    kind="counter",
    help="Those of them that became dead letters.",
    labels=("intake", "partition"),
    kept_elsewhere=True,
)
INTAKE_RATE = Measure(
    name="windlass_intake_rate",
    kind="gauge",
    help="Messages a second, of late.",
    labels=("intake", "partition"),
)
INTAKE_STOPPED = Measure(
    name="windlass_intake_stopped",
    kind="gauge",
    help="1 if a partition waits for an operator.",
    labels=("intake", "partition"),
)
INTAKE_SILENT = Measure(
    name="windlass_intake_silent_seconds",
    kind="gauge",
    help="For how long nobody has reported on an intake; more than a minute: nobody runs it.",
    labels=("intake",),
)
RELAY_SENT = Measure(
    name="windlass_relay_sent_total",
    kind="counter",
    help="Messages that a relay has published.",
    labels=("relay",),
    kept_elsewhere=True,
)
RELAY_REFUSED = Measure(
    name="windlass_relay_refused_total",
    kind="counter",
    help="Messages that its message broker would not take for what they are.",
    labels=("relay",),
    kept_elsewhere=True,
)
RELAY_GAPS = Measure(
    name="windlass_relay_gaps_total",
    kind="counter",
    help="How often events were dropped from the log before a relay had read them.",
    labels=("relay",),
    kept_elsewhere=True,
)
RELAY_BEHIND = Measure(
    name="windlass_relay_behind_seconds",
    kind="gauge",
    help="The age of what a relay read last, when it read it.",
    labels=("relay",),
)

MEASURES = (
    INFO,
    UP,
    JOBS,
    FINISHED,
    OLDEST,
    PAUSED,
    SESSIONS,
    FLEET_SLOTS,
    FLEET_LEASES,
    INTAKE_LAG,
    INTAKE_TAKEN,
    INTAKE_DEAD,
    INTAKE_RATE,
    INTAKE_STOPPED,
    INTAKE_SILENT,
    RELAY_SENT,
    RELAY_REFUSED,
    RELAY_GAPS,
    RELAY_BEHIND,
    ENQUEUED,
    ATTEMPTS,
    INTERRUPTED,
    WAIT,
    RUN,
    REFUSED,
    CALLS,
    ERRORS,
    REAPED,
    SWEEP_LAG,
    PROCESSES,
    SLOTS,
    BUSY,
    CRASHES,
)


def registry() -> Registry:
    """A place to count in, for one process."""
    return Registry(MEASURES)
