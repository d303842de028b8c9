"""What a test of handlers gets wrong is said where it is said, and never passes for a proof."""

from __future__ import annotations

from typing import Any

import pytest

from acklast import App, RateLimited
from acklast.errors import ConfigError
from acklast.testing import Crash, TestWorker

app = App()


@app.job("one.v1", lane="one")
async def one(payload: dict[str, Any]) -> None: ...


def test_a_point_that_is_none_is_refused() -> None:
    with TestWorker(app) as worker, pytest.raises(ValueError, match=r"no point 'effects' .* effect, decided"):
        worker.fault("one", Crash(at="effects"))  # type: ignore[arg-type]


@pytest.mark.parametrize("fault", [Crash, RateLimited, "crash"])
def test_what_is_no_fault_is_refused(fault: Any) -> None:
    with TestWorker(app) as worker, pytest.raises(TypeError, match="is no fault: give one like Crash"):
        worker.fault("one", fault)


def test_a_fault_for_every_time_must_strike_once() -> None:
    with TestWorker(app) as worker:
        worker.fault("one", RateLimited(1), key="other", times=None)
        worker.publish("one", key="k")
        with pytest.raises(AssertionError, match=r"never struck: .* for one/other"):
            worker.run_until_idle()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"lanes": {"one": {"on_unknwon": "hold"}}}, r"lanes\['one'\] is not valid: on_unknwon: Extra"),
        ({"budgets": {"b": {"quota": "ten"}}}, r"budgets\['b'\] is not valid: quota: "),
    ],
)
def test_a_setting_that_does_not_fit_is_told_with_its_place(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        TestWorker(app, **settings)


def test_a_state_is_compared_in_what_was_asked() -> None:
    with TestWorker(app) as worker:
        job = worker.publish("one", key="k")
        worker.run_until_idle()
        with pytest.raises(AssertionError, match="is done after 1 attempt, and not dead\n"):
            job.assert_state("dead")
