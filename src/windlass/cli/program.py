"""The program: all commands, with examples of each."""

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module

from cyclopts import App, Group, Parameter

from windlass.cli.summaries import SUMMARIES
from windlass.version import __version__

_HELP = """\
A distributed task queue: nothing lost, nothing completed by a stale worker, every wait explained.

Every command is "windlass NOUN [APP] [VERB] ...". APP is module:app; by default $WINDLASS_APP."""


def build(only: str | None = None) -> App:
    """Define the program. With `only`, just that command is imported: the others have a name and a line."""
    program = App(
        name="windlass",
        help=_HELP,
        version=__version__,
        help_format="plaintext",
        default_parameter=_PARAMETER,
    )

    def add(name: str, function: str, examples: str) -> None:
        if only in (None, name):
            _add(program, name, _function(function), examples)
        else:
            program.command(App(name=name, help=SUMMARIES[name]))

    def noun(name: str, about: str, examples: str, verbs: Mapping[str, tuple[str, str]]) -> None:
        if only in (None, name):
            found = {verb: (_function(function), example) for verb, (function, example) in verbs.items()}
            _noun(program, name, about, examples, found)
        else:
            program.command(App(name=name, help=about))

    add("worker", "work:run_worker", _WORKER)
    add("intake", "intake:run_intake", _INTAKE)
    add("dev", "work:run_dev", "windlass dev tasks:app")
    add("serve", "serve:run_serve", _SERVE)
    add("demo", "work:run_demo", "windlass demo")
    add("enqueue", "enqueue:enqueue_task", _ENQUEUE)
    noun(
        "jobs",
        "List, show and cancel jobs.",
        "windlass jobs tasks:app --state dead --json\nwindlass jobs tasks:app --queue mail --lane acme",
        {
            "list": ("jobs:list_jobs", "windlass jobs tasks:app list --state ready --state running"),
            "show": ("jobs:show_job", f"windlass jobs tasks:app show {_ID}"),
            "cancel": ("jobs:cancel_jobs", f"windlass jobs tasks:app cancel {_ID}"),
        },
    )
    noun(
        "dead",
        "List, group, show, edit, replay and discard dead letters.",
        "windlass dead tasks:app\nwindlass dead tasks:app replay --task send --error Timeout",
        {
            "list": ("dead:list_dead", "windlass dead tasks:app list --error ConnectionError --json"),
            "groups": ("dead:group_dead", "windlass dead tasks:app groups --older-than 1h"),
            "show": ("dead:show_dead", f"windlass dead tasks:app show {_ID}"),
            "replay": (
                "dead:replay_dead",
                f"windlass dead tasks:app replay {_ID}\nwindlass dead APP replay --task send --rate 50/s",
            ),
            "edit": (
                "dead:edit_dead",
                f'windlass dead tasks:app edit {_ID} \'{{"to": "b@example.com"}}\' --replay',
            ),
            "discard": ("dead:discard_dead", "windlass dead tasks:app discard --older-than 7d"),
            "audit": ("dead:audit_dead", "windlass dead tasks:app audit"),
        },
    )
    noun(
        "queues",
        "List queues, pause and resume them, override their settings.",
        "windlass queues tasks:app\nwindlass queues tasks:app pause mail",
        {
            "list": ("queues:list_queues", "windlass queues tasks:app list --json"),
            "show": ("queues:show_queue", "windlass queues tasks:app show mail"),
            "pause": ("queues:pause_queue", "windlass queues tasks:app pause mail"),
            "resume": ("queues:resume_queue", "windlass queues tasks:app resume mail"),
            "set": ("queues:set_queue", "windlass queues tasks:app set mail --concurrency 5 --rate 100/s"),
            "reset": ("queues:reset_queue", "windlass queues tasks:app reset mail"),
        },
    )
    noun(
        "control",
        "List, pause and resume tasks; hold some of their jobs by their arguments (strike).",
        "windlass control tasks:app\nwindlass control tasks:app pause send",
        {
            "list": ("control:list_tasks", "windlass control tasks:app list --json"),
            "pause": (
                "control:pause_task",
                'windlass control tasks:app pause send --reason "the mail host is down"',
            ),
            "resume": ("control:resume_task", "windlass control tasks:app resume send"),
            "strike": ("control:strike_task", _STRIKE),
            "strikes": ("control:list_strikes", "windlass control tasks:app strikes"),
            "lift": ("control:lift_strike", "windlass control tasks:app lift 3f2a9c01be"),
        },
    )
    noun(
        "lanes",
        "List the lanes of a queue, pause and resume them, override their settings.",
        "windlass lanes tasks:app mail\nwindlass lanes tasks:app pause mail acme",
        {
            "list": ("lanes:list_lanes", "windlass lanes tasks:app list mail --json"),
            "pause": ("lanes:pause_lane", "windlass lanes tasks:app pause mail acme"),
            "resume": ("lanes:resume_lane", "windlass lanes tasks:app resume mail acme"),
            "set": ("lanes:set_lane", "windlass lanes tasks:app set mail acme --weight 3"),
            "reset": ("lanes:reset_lane", "windlass lanes tasks:app reset mail acme"),
        },
    )
    noun(
        "schedules",
        "List, preview, create, edit, pause, run and delete schedules.",
        "windlass schedules tasks:app\nwindlass schedules tasks:app preview nightly --count 5",
        {
            "list": ("schedules:list_schedules", "windlass schedules tasks:app list --json"),
            "show": ("schedules:show_schedule", "windlass schedules tasks:app show nightly"),
            "preview": ("schedules:preview_schedule", "windlass schedules tasks:app preview nightly"),
            "create": ("schedules:create_schedule", _CREATE),
            "edit": (
                "schedules:edit_schedule",
                'windlass schedules tasks:app edit nightly --cron "0 4 * * *"',
            ),
            "reset": ("schedules:reset_schedule", "windlass schedules tasks:app reset nightly"),
            "pause": ("schedules:pause_schedule", "windlass schedules tasks:app pause nightly"),
            "resume": ("schedules:resume_schedule", "windlass schedules tasks:app resume nightly"),
            "run": ("schedules:run_schedule", "windlass schedules tasks:app run nightly"),
            "delete": ("schedules:delete_schedule", "windlass schedules tasks:app delete nightly"),
        },
    )
    noun(
        "flows",
        "List and show flows, cancel a flow, replay its dead letters.",
        "windlass flows tasks:app\nwindlass flows tasks:app show order-42",
        {
            "list": ("flows:list_flows", "windlass flows tasks:app list --json"),
            "show": ("flows:show_flow", "windlass flows tasks:app show order-42"),
            "cancel": ("flows:cancel_flow", "windlass flows tasks:app cancel order-42"),
            "replay": ("flows:replay_flow", "windlass flows tasks:app replay order-42"),
        },
    )
    noun(
        "webhooks",
        "List, add and remove webhooks; show and rotate the secrets of their receivers.",
        "windlass webhooks tasks:app\nwindlass webhooks tasks:app add crm mail https://example.com/hook",
        {
            "list": ("webhooks:list_webhooks", "windlass webhooks tasks:app list --json"),
            "add": (
                "webhooks:add_webhook",
                "windlass webhooks tasks:app add crm mail https://example.com/hook --on dead",
            ),
            "remove": ("webhooks:remove_webhook", "windlass webhooks tasks:app remove crm"),
            "secret": ("webhooks:show_secret", "windlass webhooks tasks:app secret https://example.com/hook"),
            "rotate": ("webhooks:rotate_secrets", "windlass webhooks tasks:app rotate"),
        },
    )
    noun(
        "intakes",
        "List and show intakes; pause, resume, move and forget them.",
        "windlass intakes tasks:app\nwindlass intakes tasks:app show orders",
        {
            "list": ("intakes:list_intakes", "windlass intakes tasks:app list --json"),
            "show": ("intakes:show_intake", "windlass intakes tasks:app show orders"),
            "pause": ("intakes:pause_intake", "windlass intakes tasks:app pause orders"),
            "resume": ("intakes:resume_intake", "windlass intakes tasks:app resume orders"),
            "move": (
                "intakes:move_intake",
                "windlass intakes tasks:app move orders 3 end\nwindlass intakes tasks:app move orders 3 1042",
            ),
            "forget": ("intakes:forget_intake", "windlass intakes tasks:app forget orders"),
        },
    )
    noun(
        "relays",
        "List and show relays; pause and resume them.",
        "windlass relays tasks:app\nwindlass relays tasks:app pause ends",
        {
            "list": ("relays:list_relays", "windlass relays tasks:app list --json"),
            "show": ("relays:show_relay", "windlass relays tasks:app show ends"),
            "pause": ("relays:pause_relay", "windlass relays tasks:app pause ends"),
            "resume": ("relays:resume_relay", "windlass relays tasks:app resume ends"),
        },
    )
    noun(
        "keys",
        "List, create and revoke API keys.",
        "windlass keys tasks:app\nwindlass keys tasks:app create --scope enqueue --scope read",
        {
            "list": ("keys:list_keys", "windlass keys tasks:app list --json"),
            "create": ("keys:create_key", _KEY),
            "revoke": ("keys:revoke_key", "windlass keys tasks:app revoke 5f0c9a7be213"),
        },
    )
    add("top", "top:run_top", "windlass top tasks:app\nwindlass top tasks:app --once --json")
    add("workers", "workers:list_workers", "windlass workers tasks:app --alive")
    add("history", "history:show_history", _HISTORY)
    add("explain", "explain:explain_job", f"windlass explain tasks:app {_ID}")
    add(
        "forget",
        "forget:forget_tag",
        "windlass forget tasks:app --tag user:42 --dry-run\nwindlass forget tasks:app --tag user:42",
    )
    add("check", "check:check_queues", "windlass check tasks:app --queue mail --oldest 15m --dead 100")
    add("export", "transfer:export_jobs", "windlass export tasks:app --queue mail > mail.jsonl")
    add("import", "transfer:import_jobs", "windlass import tasks:app mail.jsonl")
    add("doctor", "doctor:examine_app", "windlass doctor tasks:app")
    add("verify", "verify:run_verify", _VERIFY)
    add(
        "migrate",
        "migrate:migrate_store",
        "windlass migrate tasks:app --status\nwindlass migrate tasks:app --sql\nwindlass migrate tasks:app",
    )
    add("bench", "bench:run_bench", _BENCH)
    program.register_install_completion_command(  # pyright: ignore[reportUnknownMemberType] - of its **kwargs
        help="Install completion for this shell and exit."
    )
    return program


def verbs(program: App) -> Mapping[str, frozenset[str]]:
    """Return the verbs of every noun that takes an app."""
    nouns = program.resolved_commands()
    return {
        name: frozenset(verb for verb in noun.resolved_commands() if not verb.startswith("-"))
        for name, noun in nouns.items()
        if not name.startswith("-") and name not in _WITHOUT_APP
    }


_WITHOUT_APP = ("bench", "demo", "verify")
_PARAMETER = Parameter(negative=(), show_default=False)
_Verb = tuple[Callable[..., int], str]


def _noun(program: App, name: str, about: str, examples: str, verbs: Mapping[str, _Verb]) -> None:
    """Add a command with verbs; without a verb it prints a list."""
    listing = verbs["list"][0]
    usage = f"{_usage(f'windlass {name}', listing)}\n       windlass {name} [APP] VERB ..."
    noun = App(
        name=name,
        help=about,
        usage=usage,
        help_epilogue=_examples(examples),
        group_commands=Group("Verbs", sort_key=0),
        default_parameter=_PARAMETER,
    )
    noun.default(listing)
    for verb, (function, example) in verbs.items():
        _add(noun, verb, function, example, usage=_usage(f"windlass {name}", function, verb))
    program.command(noun)


def _function(named: str) -> Callable[..., int]:
    """The function that a line of `build` names, such as "jobs:show_job"."""
    module, _, name = named.partition(":")
    return getattr(import_module(f"windlass.cli.{module}"), name)


def _add(
    parent: App, name: str, function: Callable[..., int], examples: str, *, usage: str | None = None
) -> None:
    """Add a command without verbs, or a verb."""
    parent.command(
        function,
        name=name,
        usage=usage or _usage(f"windlass {name}", function),
        help_epilogue=_examples(examples),
        default_parameter=_PARAMETER,
    )


def _usage(command: str, function: Callable[..., int], verb: str = "") -> str:
    """Return the usage line. The parser would show the words in its own order, verb before app."""
    words = [command]
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not inspect.Parameter.POSITIONAL_ONLY:
            words.append("[OPTIONS]")
            break
        if name == "app":
            words += ["[APP]", verb] if verb else ["[APP]"]
        elif parameter.default is inspect.Parameter.empty:
            words.append(name.upper())
        else:
            words.append("[ID...]" if name == "ids" else f"[{name.upper()}]")
    return f"Usage: {' '.join(words)}"


def _examples(lines: str) -> str:
    return "Examples:\n" + "\n".join(f"  {line}" for line in lines.splitlines())


_ID = "0192e4a0-5b3c-7abc-8def-0123456789ab"
_INTAKE = """\
windlass intake tasks:app
windlass intake tasks:app --celery amqp://guest@localhost/celery"""
_WORKER = """\
windlass worker tasks:app
windlass worker tasks:app --processes 4 --concurrency 32 --queues high=5,default=2,low=1
windlass worker tasks:app --group 7:high,default --group 1:low --grace 30"""
_CREATE = """\
windlass schedules tasks:app create weekly report '{"kind": "weekly"}' --cron "0 8 * * MON" --tz Europe/Paris
windlass schedules tasks:app create pulse ping --every 15m --overlap skip"""
_HISTORY = (
    "windlass history tasks:app --since 24h --task send\nwindlass history tasks:app --since 1h --step 5m\n"
    "windlass history tasks:app --since 24h --by error\nwindlass history tasks:app --job "
    f"{_ID}"
)
_STRIKE = """\
windlass control tasks:app strike send --where user_id=42 --reason "their mailbox is full"
windlass control tasks:app strike send --where address.city=Paris --where kind=invoice"""
_SERVE = """\
windlass serve tasks:app
windlass serve tasks:app --host 0.0.0.0 --port 8700 --workers 2 --allow-host tasks.example.com"""
_KEY = """\
windlass keys tasks:app create --scope enqueue --scope read --label shop
windlass keys tasks:app create --scope work --queue images --expires 90d"""
_BENCH = """\
windlass bench
windlass bench --url redis://localhost:6379/0 --jobs 100000 --json"""
_ENQUEUE = """\
windlass enqueue tasks:app send '{"to": "a@example.com"}'
windlass enqueue tasks:app send @arguments.json --delay 5m --lane acme --key order-42
echo '{"to": "a@example.com"}' | windlass enqueue tasks:app send -"""
_VERIFY = """\
windlass verify --own sqlite --minutes 2
windlass verify --url redis://localhost:6379/0 --minutes 10 --seed 7 --report proof
windlass verify --own postgres --power-cuts 50"""
