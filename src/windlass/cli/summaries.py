"""What each command without verbs does, for the list of all commands: it is shown without importing them.

Each is the first paragraph of the docstring of its function; a test compares them.
"""

# ruff: noqa: E501 - a summary is written in one line

SUMMARIES = {
    "bench": "Measure enqueue, drain and time to start, in a separate namespace. Do not run it on a store in use.",
    "check": "Check the alerts that the code declares, or thresholds given here. Exit code 1: an alert is raised.",
    "demo": "Watch two workers run several hundred jobs, some of which crash, and see what became of each job.",
    "dev": "Run a worker for development: one process that restarts when the code changes, with the dashboard and the HTTP API.",
    "doctor": "Check store, clock, files, workers and settings. The exit code is 1 if there is a problem.",
    "enqueue": "Enqueue a task. Its arguments are checked against the function's signature.",
    "explain": "Explain why a job waits, and what to do about it.",
    "export": "Print waiting jobs and dead letters as JSON lines, with their arguments, including secrets.",
    "forget": "Remove the jobs with a tag; blank what history and archive hold of them. Exit code 1: some are left.",
    "history": "Show failure rates, waiting and run times by task, throughput, and how busy workers were. The app's history= or $WINDLASS_HISTORY says where this is stored.",
    "import": "Enqueue the jobs of an exported file, with old ids. Jobs that the store has already are skipped.",
    "intake": "Take messages from message brokers and make jobs of them, until stopped. It runs no jobs.",
    "migrate": "Bring the schema of a PostgreSQL namespace up to date. Workers may keep running.",
    "serve": "Serve the dashboard and the HTTP API until stopped.",
    "top": "Show problems, queues and workers, live until Ctrl-C. In a pipe it prints once.",
    "verify": "Run producers and workers as real processes, inject faults, and check that every promise held.",
    "worker": "Run jobs until stopped. The first Ctrl-C or SIGTERM lets running jobs end; the second does not wait.",
    "workers": "List worker processes that are alive, and those that ended within the last hour, with the cause.",
}
