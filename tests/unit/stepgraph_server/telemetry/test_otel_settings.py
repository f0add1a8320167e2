"""What is read of OpenTelemetry's variables."""

from __future__ import annotations

import pytest

from stepgraph_server.telemetry.otel_settings import Ignored, OtelSettings, read

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317"}


def test_without_an_endpoint_nothing_is_recorded():
    assert read({}) == OtelSettings()
    assert read({"OTEL_SERVICE_NAME": "x", "OTEL_EXPORTER_OTLP_ENDPOINT": " "}) == OtelSettings()


@pytest.mark.parametrize(
    ("variables", "traces", "metrics"),
    [
        (ENDPOINT, True, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4317"}, True, False),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c:4317"}, False, True),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, False, True),
        ({**ENDPOINT, "OTEL_METRICS_EXPORTER": "none"}, True, False),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "True"}, False, False),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "false"}, True, True),
    ],
)
def test_an_endpoint_is_what_turns_a_signal_on(variables, traces, metrics):
    it = read(variables)
    assert (it.traces, it.metrics, it.ignored) == (traces, metrics, ())


def test_sampler_and_times_are_read():
    it = read(
        {
            **ENDPOINT,
            "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": "0.25",
            "OTEL_BSP_SCHEDULE_DELAY": "250",
            "OTEL_METRIC_EXPORT_INTERVAL": "5000",
        }
    )
    assert (it.sampler.ratio, it.sampler.follows_parent) == (0.25, True)
    assert (it.span_delay_s, it.metric_interval_s) == (0.25, 5.0)


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("OTEL_TRACES_SAMPLER", "xray", "expected one of always_on"),
        ("OTEL_BSP_SCHEDULE_DELAY", "1s", "expected milliseconds, a whole number from 1"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0", "expected milliseconds, a whole number from 1"),
        ("OTEL_TRACES_EXPORTER", "zipkin", "expected otlp or none"),
    ],
)
def test_what_can_not_be_used_is_named_and_ignored(variable, text, expected):
    it = read({**ENDPOINT, variable: text})
    [ignored] = it.ignored
    assert ignored.variable == variable
    assert ignored.expected.startswith(expected)
    assert it.traces
    assert it.sampler == OtelSettings().sampler


def test_a_ratio_that_can_not_be_used_leaves_the_sampler_whole():
    it = read({**ENDPOINT, "OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "2"})
    assert it.sampler.ratio == 1.0
    assert [each.variable for each in it.ignored] == ["OTEL_TRACES_SAMPLER_ARG"]


def test_nothing_is_sent_over_a_protocol_that_is_not_spoken():
    it = read({**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"})
    assert not it.traces
    assert not it.metrics
    expected = "expected grpc, so nothing is sent"
    assert it.ignored == (Ignored(variable="OTEL_EXPORTER_OTLP_PROTOCOL", expected=expected),)
