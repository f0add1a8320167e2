"""Where a provider's API is."""

from __future__ import annotations

import pytest

from stepgraph_client.providers.endpoint import Endpoint, address_of

URL = "https://api.example.com/v1"


@pytest.mark.parametrize(
    "url", ["", "api.example.com/v1", "ftp://host/v1", "http://", "http://host:99999/v1", "/v1"]
)
def test_what_is_no_url_of_an_api_is_refused_with_an_example(url):
    """What is no URL of an API is refused, with an example of one."""
    with pytest.raises(ValueError, match=r"is not the URL of an API, such as https://"):
        Endpoint(base_url=url)


@pytest.mark.parametrize("key", ["sk-canary\n", " sk-canary", "sk-\x00canary", "sk-cañary"])
def test_a_key_that_no_header_takes_is_refused_without_being_shown(key):
    """A key that no header takes is refused by the name of its variable, and is not shown."""
    with pytest.raises(ValueError, match="the key in MY_KEY has") as caught:
        Endpoint(base_url=URL, api_key=key, key_name="MY_KEY")
    assert "ary" not in str(caught.value)


@pytest.mark.parametrize("name", ["connect_timeout_s", "silence_timeout_s", "max_connections"])
def test_limits_are_above_zero(name):
    """A limit of 0 is refused: it would mean that nothing works."""
    with pytest.raises(ValueError, match=f"{name} must be above 0, not 0"):
        Endpoint(base_url=URL, **{name: 0})


def test_the_key_is_not_in_its_text():
    """The key is not in the text of an endpoint."""
    assert "canary" not in repr(Endpoint(base_url=URL, api_key="sk-canary"))


def test_the_address_has_no_password_and_no_query():
    """The address that people read has no password and no query."""
    url = "https://me:secret@host:8443/v1/?token=secret#x"
    assert Endpoint(base_url=url).address == "https://host:8443/v1"
    assert address_of("http://[::1]:80/v1") == "http://[::1]:80/v1"


@pytest.mark.parametrize(
    ("url", "is_loopback"),
    [
        ("http://127.0.0.1:8080/v1", True),
        ("http://127.9.9.9/v1", True),
        ("http://[::1]:8080/v1", True),
        ("http://localhost:8080", True),
        ("http://models.localhost", True),
        ("http://localhost.example.com", False),
        ("http://10.0.0.1/v1", False),
        ("https://api.example.com/v1", False),
    ],
)
def test_it_knows_whether_it_is_on_this_machine(url, is_loopback):
    """It knows whether it is on this machine, where no key is needed."""
    assert Endpoint(base_url=url).is_loopback is is_loopback
