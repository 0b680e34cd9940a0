"""What is wrong with a webhook account is said when the configuration is read."""

from typing import Any

import pytest
from pydantic import ValidationError

from palaver.platforms.plugins import load_factory
from palaver.platforms.webhook.adapter import WebhookAdapter
from palaver.platforms.webhook.options import WebhookOptions
from palaver.platforms.webhook.signature import Scheme
from palaver.protocols.hooks import EventKind
from tests.platforms.webhook.loopback import SECRET

_WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "neither called nor posted to": ({"secret": None}, "a secret for callers, a url to post to, or both"),
    "a secret that can be guessed": ({"secret": "hunter2"}, "at least 24 random bytes"),
    "no secret at all": ({"secret": "", "scheme": "token"}, "at least 16 characters"),
    "a template": ({"text": "Build {{ build"}, "build.status"),
    "a path": ({"session": "a b"}, "names and numbers with dots"),
    "a platform": ({"deliver": "pigeon:1"}, "Unknown target"),
    "no single chat": ({"deliver": "telegram"}, "caller, nowhere, or chats such as"),
    "an address": ({"url": "ftp://example.org"}, "https://example.org/hook"),
    "called without a secret": (
        {"secret": None, "url": "https://example.org", "called": "yes"},
        "a secret for callers",
    ),
    "neither a door nor an address": ({"called": "no"}, "a url to post to"),
    "what is said by nobody": ({"url": "https://example.org", "text": "Hi"}, "text only with called: yes"),
    "an event": ({"url": "https://example.org", "events": ["turn.done"]}, "turn.finished"),
    "events to nowhere": ({"events": ["turn.finished"]}, "a url to post events to"),
    "an unknown option": ({"secrets": "x"}, "Extra inputs"),
}


@pytest.mark.parametrize(("options", "words"), _WRONG.values(), ids=_WRONG)
def test_a_mistake_is_said_with_what_is_allowed(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as error:
        WebhookOptions.model_validate({"secret": SECRET, **options})
    assert words in str(error.value)
    assert "hunter2" not in repr(error.value.errors(include_input=False))


def test_what_is_right_is_understood() -> None:
    options = WebhookOptions.model_validate(
        {
            "secret": SECRET,
            "deliver": "telegram:12345, webhook:crm",
            "called": "yes",
            "url": "https://user:word@example.org/hook?token=hush",
            "events": ["turn.finished", "session.ended"],
        }
    )
    assert [place.text for place in options.answers_go_to["deliver"]] == ["telegram:12345", "webhook:crm"]
    assert options.events == (EventKind.TURN_FINISHED, EventKind.SESSION_ENDED)
    written = {"url": "https://example.org", "events": "turn.finished, session.ended"}
    assert WebhookOptions.model_validate(written).events == options.events
    assert SECRET not in repr(options)
    assert "hush" not in repr(options)


async def test_the_installed_adapter_says_what_an_account_is_for() -> None:
    assert load_factory("webhook") is WebhookAdapter
    posts = {"secret": SECRET, "url": "https://example.org/hook?token=hush"}
    both = WebhookAdapter("ci", WebhookOptions.model_validate({**posts, "called": "yes"}))
    assert await both.check() == "is called at /in/webhook/ci, signed as standard, posts to example.org"
    told = WebhookAdapter("audit", WebhookOptions.model_validate(posts))
    assert (await told.check(), told.takes_callbacks) == ("posts to example.org", False)


def test_a_caller_is_answered_before_it_gives_up() -> None:
    waits = {
        scheme: WebhookOptions.model_validate({"secret": SECRET, "scheme": scheme}).wait_seconds for scheme in Scheme
    }
    assert waits[Scheme.GITHUB] < 10
    assert waits[Scheme.STRIPE] < 10
    assert waits[Scheme.STANDARD] < 15
    assert WebhookOptions.model_validate({"secret": SECRET, "wait": 40}).wait_seconds == 40
