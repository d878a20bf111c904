"""Metrics as Prometheus reads them: its own parser is the judge."""

import re

import msgspec
from hypothesis import given
from hypothesis import strategies as some
from prometheus_client.parser import text_string_to_metric_families

from windlass.observe import measures
from windlass.observe.exposition import OTHER, SERIES, Registry, Taken, exposed


def read(registry: Registry, **constant: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(exposed([(constant, registry)]))
        for sample in family.samples
    }


def sample(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def test_counters_gauges_and_histograms_are_read_as_what_they_are() -> None:
    registry = measures.registry()
    registry.count(measures.ATTEMPTS, ("mail", "send", "done"), 3)
    registry.set(measures.UP, 1)
    for seconds in (0.002, 0.003, 0.9, 4_000):
        registry.spread(measures.RUN, seconds, ("mail", "send"))
    families = {family.name: family for family in text_string_to_metric_families(exposed([({}, registry)]))}
    assert {name: family.type for name, family in families.items()} == {
        "windlass_attempts": "counter",
        "windlass_store_up": "gauge",
        "windlass_job_run_seconds": "histogram",
    }
    seen = read(registry)
    run = {"queue": "mail", "task": "send"}
    assert seen[sample("windlass_attempts_total", **run, outcome="done")] == 3
    assert seen[sample("windlass_job_run_seconds_bucket", **run, le="0.001")] == 0
    assert seen[sample("windlass_job_run_seconds_bucket", **run, le="0.005")] == 2
    assert seen[sample("windlass_job_run_seconds_bucket", **run, le="1")] == 3
    assert seen[sample("windlass_job_run_seconds_bucket", **run, le="+Inf")] == 4
    assert seen[sample("windlass_job_run_seconds_count", **run)] == 4
    assert abs(seen[sample("windlass_job_run_seconds_sum", **run)] - 4_000.905) < 1e-6


def test_a_value_on_a_bound_is_within_it() -> None:
    registry = measures.registry()
    registry.spread(measures.RUN, 0.5, ("q", "t"))
    seen = read(registry)
    assert seen[sample("windlass_job_run_seconds_bucket", queue="q", task="t", le="0.5")] == 1
    assert seen[sample("windlass_job_run_seconds_bucket", queue="q", task="t", le="0.25")] == 0


@given(some.text(max_size=30), some.text(max_size=30))
def test_labels_are_read_back_whatever_they_hold(host: str, namespace: str) -> None:
    registry = measures.registry()
    registry.set(measures.SESSIONS, 2, (host,))
    assert (
        read(registry, namespace=namespace)[sample("windlass_sessions", host=host, namespace=namespace)] == 2
    )


def test_names_beyond_the_limit_are_told_together() -> None:
    registry = measures.registry()
    for number in range(SERIES + 70):
        registry.count(measures.ATTEMPTS, ("mail", f"task{number}", "done"))
        registry.spread(measures.RUN, 1, ("mail", f"task{number}"))
    registry.count(measures.ATTEMPTS, ("mail", "task3", "done"))
    seen = read(registry)
    assert seen[sample("windlass_attempts_total", queue=OTHER, task=OTHER, outcome="done")] == 70
    assert seen[sample("windlass_attempts_total", queue="mail", task="task3", outcome="done")] == 2
    assert seen[sample("windlass_job_run_seconds_count", queue=OTHER, task=OTHER)] == 70
    assert sum(name == "windlass_attempts_total" for name, _ in seen) == SERIES + 1


def test_a_gauge_with_too_many_names_tells_the_largest() -> None:
    registry = measures.registry()
    jobs = {("q", f"task{number}", "ready"): float(number) for number in range(SERIES + 10)}
    registry.replace(measures.JOBS, jobs)
    seen = read(registry)
    assert seen[sample("windlass_jobs", queue="q", task=f"task{SERIES + 9}", state="ready")] == SERIES + 9
    assert seen[sample("windlass_jobs", queue=OTHER, task=OTHER, state="ready")] == sum(range(10))
    registry.replace(measures.JOBS, {})
    assert read(registry) == {}


def test_what_others_count_never_goes_back() -> None:
    registry = measures.registry()
    registry.raise_to(measures.FINISHED, {("q", "t", "done"): 9})
    registry.raise_to(measures.FINISHED, {("q", "t", "done"): 4, ("q", "u", "done"): 1})
    seen = read(registry)
    assert seen[sample("windlass_jobs_finished_total", queue="q", task="t", state="done")] == 9
    assert seen[sample("windlass_jobs_finished_total", queue="q", task="u", state="done")] == 1


def test_what_a_process_takes_another_adds() -> None:
    child, parent = measures.registry(), measures.registry()
    child.count(measures.ATTEMPTS, ("q", "t", "done"), 2)
    child.spread(measures.WAIT, 0.3, ("q", "t"))
    child.set(measures.SLOTS, 5)
    first = msgspec.msgpack.decode(msgspec.msgpack.encode(child.take()), type=Taken)
    assert not child.take()
    child.count(measures.ATTEMPTS, ("q", "t", "done"), 1)
    parent.add(first)
    parent.add(child.take())
    seen = read(parent)
    assert seen[sample("windlass_attempts_total", queue="q", task="t", outcome="done")] == 3
    assert seen[sample("windlass_job_wait_seconds_count", queue="q", task="t")] == 1
    assert sample("windlass_worker_slots") not in seen


def test_one_metric_of_two_namespaces_stands_together() -> None:
    one, other = measures.registry(), measures.registry()
    for registry in (one, other):
        registry.set(measures.UP, 1)
        registry.count(measures.REAPED)
    text = exposed([({"namespace": "a"}, one), ({"namespace": "b"}, other)])
    assert text.count("# TYPE windlass_store_up") == 1
    assert re.findall(r"^windlass_store_up\{namespace=\"(.)\"\} 1$", text, re.MULTILINE) == ["a", "b"]
    assert len(list(text_string_to_metric_families(text))) == 2


def test_names_say_what_they_are() -> None:
    names = [measure.name for measure in measures.MEASURES]
    assert len(set(names)) == len(names)
    for measure in measures.MEASURES:
        assert measure.name.startswith("windlass_")
        assert measure.name.endswith("_total") == (measure.kind == "counter")
        assert bool(measure.bounds) == (measure.kind == "histogram")
        assert measure.bounds == tuple(sorted(measure.bounds))
        assert not measure.bounds or measure.name.endswith("_seconds")
        assert measure.help.endswith(".")
