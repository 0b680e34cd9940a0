"""Statements fail and connections break all the time, and the store still does what the model does."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.store.conftest import ENGINES
from tests.store.interruptions import interrupted
from tests.store.test_stateful import STEPS, Everything, opened

EXAMPLES = {"sqlite": 8, "postgres": 3}


@pytest.mark.parametrize("engine", ENGINES)
def test_someone_who_tries_again_notices_nothing(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    wanted = settings(
        max_examples=EXAMPLES[engine],
        stateful_step_count=STEPS,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    with interrupted(1) as interruptions, opened(engine, tmp_path, request) as (runner, store):
        machines: Any = lambda: Everything(runner.run, store)  # noqa: E731 - it is called like a class
        run_state_machine_as_test(machines, settings=wanted)
    assert interruptions.count > 10
