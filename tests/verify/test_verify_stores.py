"""Short runs on servers of the run's own, and power cuts: slow, since servers have to be started."""

import pytest

from windlass.verify.disk import why_not
from windlass.verify.report import as_text
from windlass.verify.verify import verify
from windlass.verify.wanted import Wanted

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("own", ["redis", "postgres", "cluster"])
def test_a_run_on_a_server_is_clean(own: str) -> None:
    report = verify(Wanted(own=own, minutes=0.5), quiet=True)
    assert report.verdict == "clean", as_text(report)
    assert len(report.injected) >= 4
    assert report.troubles == [], as_text(report)


@pytest.mark.skipif(why_not() is not None, reason=f"a power cut {why_not()}")
@pytest.mark.parametrize("own", ["sqlite", "redis", "postgres"])
def test_power_cuts_lose_nothing(own: str) -> None:
    report = verify(Wanted(own=own), power_cuts=5, quiet=True)
    assert report.verdict == "clean", as_text(report)
    assert report.injected == {"power cut": 5}


@pytest.mark.parametrize("own", ["sqlite", "redis", "postgres"])
def test_all_but_what_was_taken_back_holds_after_a_restore(own: str) -> None:
    report = verify(Wanted(own=own, minutes=0.4, faults=("store restored",)), quiet=True)
    assert report.verdict == "clean", as_text(report)
    assert report.injected["store restored"]
