"""The dashboard and the alert rules in `deploy` name only metrics and labels that the gateway exposes."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from palaver.cli.main import main
from palaver.engine.hooks import Step
from palaver.gateway.prometheus import PrometheusMeter

DEPLOY = Path(__file__).parents[2] / "deploy"
_METRIC = re.compile(r"\b(palaver_\w+)(?:\{([^}]*)\})?")
_GROUPING = re.compile(r"\bby \(([^)]*)\)")
_COMMAND = re.compile(r"palaver ([a-z]+)((?: --[a-z]+)*)")


def exposed() -> dict[str, set[str]]:
    """Every sample that a gateway exposes, with its labels."""
    meter = PrometheusMeter()
    meter.lag("telegram", 0.1)
    samples: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(meter.exposed().decode()):
        for sample in family.samples:
            samples.setdefault(sample.name, set()).update(sample.labels)
    return samples


def alerts() -> list[dict[str, Any]]:
    found = yaml.safe_load((DEPLOY / "prometheus-alerts.yaml").read_text())
    return [rule for group in found["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return json.loads((DEPLOY / "grafana-dashboard.json").read_text())["panels"]


def expressions() -> Iterator[str]:
    yield from (str(rule["expr"]) for rule in alerts())
    yield from (str(target["expr"]) for panel in panels() for target in panel["targets"])


def test_every_metric_and_label_exists() -> None:
    known = exposed()
    for expression in expressions():
        found = _METRIC.findall(expression)
        assert found, expression
        labels = {label.strip() for group in _GROUPING.findall(expression) for label in group.split(",")}
        for name, selected in found:
            assert name in known, expression
            pairs = dict(re.findall(r'(\w+)="([^"]*)"', selected))
            assert labels | pairs.keys() <= known[name], expression
            assert pairs.get("step", "turn") in get_args(Step), expression


def test_the_dashboard_shows_tokens_cost_ages_lag_and_version() -> None:
    shown = {name for panel in panels() for target in panel["targets"] for name, _ in _METRIC.findall(target["expr"])}
    wanted = (
        "input_tokens_total output_tokens_total cached_tokens_total cost_micros_total inbox_oldest_seconds"
        " outbox_oldest_seconds delivery_lag_seconds_bucket build_info"
    )
    assert {f"palaver_{name}" for name in wanted.split()} <= shown & exposed().keys()


def test_every_alert_fires_in_a_test() -> None:
    """`promtool test rules` runs it where there is one."""
    tests = yaml.safe_load((DEPLOY / "prometheus-alerts-test.yaml").read_text())
    fired = {each["alertname"] for test in tests["tests"] for each in test["alert_rule_test"] if each.get("exp_alerts")}
    assert fired == {rule["alert"] for rule in alerts()}


def test_counters_are_read_as_rates_and_the_rest_is_not() -> None:
    for expression in expressions():
        for name, _ in _METRIC.findall(expression):
            is_counter = name.endswith(("_total", "_count", "_bucket"))
            assert is_counter == bool(re.search(rf"(?:rate|increase)\({name}", expression)), expression


def test_every_alert_says_what_to_run(capsys: pytest.CaptureFixture[str]) -> None:
    for rule in alerts():
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}
        says = rule["annotations"]["description"]
        commands = _COMMAND.findall(says)
        assert commands or "dashboard" in says, rule["alert"]
        for name, options in commands:
            assert main([name, "--help"]) == 0, says
            assert set(options.split()) <= set(capsys.readouterr().out.split()), says
    assert len({rule["alert"] for rule in alerts()}) == len(alerts())


def test_panels_do_not_overlap_and_have_numbers_of_their_own() -> None:
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels()]
    assert len(set(places)) == len(places) == len({panel["id"] for panel in panels()})
