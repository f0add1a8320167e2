"""Which runs are recorded."""

from __future__ import annotations

from hashlib import sha256

import pytest
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

from stepgraph_server.telemetry.sampling import DEFAULT_SAMPLER, NAMES, Sampler, named

IDS = [sha256(str(number).encode()).hexdigest()[:32] for number in range(2_000)]


def test_by_default_one_run_in_twenty_is_recorded_and_a_caller_goes_before():
    recorded = sum(DEFAULT_SAMPLER.decides(each, parent_sampled=None) for each in IDS)
    assert 70 < recorded < 130
    assert all(DEFAULT_SAMPLER.decides(each, parent_sampled=True) for each in IDS)
    assert not any(DEFAULT_SAMPLER.decides(each, parent_sampled=False) for each in IDS)


@pytest.mark.parametrize("ratio", [0.0, 0.05, 0.5, 1.0])
def test_it_decides_as_opentelemetrys_own_sampler_does(ratio):
    theirs = TraceIdRatioBased(ratio)
    ours = Sampler(ratio=ratio, follows_parent=False)
    for each in IDS:
        expected = theirs.should_sample(None, int(each, 16), "run").decision.is_sampled()
        assert ours.decides(each, parent_sampled=not expected) == expected


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_the_variable_is_known(name):
    it = named(name, "0.5" if name.endswith("traceidratio") else "")
    assert it.follows_parent == name.startswith("parentbased_")
    assert it.ratio == {"on": 1.0, "off": 0.0, "traceidratio": 0.5}[name.rsplit("_", 1)[-1]]


def test_a_ratio_that_is_not_given_is_all():
    assert named("traceidratio", "").ratio == 1.0


@pytest.mark.parametrize(
    ("name", "argument", "expected"),
    [
        ("jaeger_remote", "", "expected one of always_on, always_off"),
        ("traceidratio", "half", "expected a number from 0 to 1"),
        ("traceidratio", "1.5", "expected a number from 0 to 1"),
        ("traceidratio", "nan", "expected a number from 0 to 1"),
    ],
)
def test_what_can_not_be_used_says_what_was_expected(name, argument, expected):
    with pytest.raises(ValueError, match=expected):
        named(name, argument)
