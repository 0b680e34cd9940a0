"""A third party adds an adapter by installing it."""

import sys
from pathlib import Path

import pytest

from palaver.model.errors import BadArgument, InvalidInput
from palaver.platforms.plugins import PLATFORMS, installed_platforms, known_platforms, load_factory, make_adapter
from tests.pigeon import install


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch)


def test_what_is_declared_is_known_without_importing_the_adapter() -> None:
    assert {"pigeon", "wrong", "broken", "other", "nothing"} <= set(installed_platforms())
    known = known_platforms()
    assert (known["pigeon"].title, known["pigeon"].canonical_user("ann")) == ("Pigeon post", "ANN")
    assert (known["other"].title, known["nothing"].title) == ("Other", "Nothing"), "a wrong declaration hides nothing"
    assert known["telegram"] is PLATFORMS["telegram"]
    assert known["terminal"] is PLATFORMS["terminal"]
    assert "Not A Name" not in known
    assert "pigeon_post" not in sys.modules


def test_an_adapter_is_made_for_an_account_with_the_options_of_its_own_model(tmp_path: Path) -> None:
    assert load_factory("pigeon").platform.extra_kinds == ("loft",)
    adapter = make_adapter("pigeon", "home", {"folder": str(tmp_path), "speed": "3"})
    assert (adapter.platform.name, adapter.account) == ("pigeon", "home")


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("carrier", BadArgument, "pigeon"),
        ("web", BadArgument, "No adapter named 'web' is installed"),
        ("terminal", BadArgument, "terminal"),
        (
            "wrong",
            BadArgument,
            r"loads 'NoPigeon', which is not an adapter. Use a class that takes \(account, options\), with platform",
        ),
        ("other", BadArgument, r"loads 'Platform', which does not declare it. Use a Platform called other with an"),
        ("nothing", BadArgument, r"cannot be loaded \('AttributeError"),
        ("broken", BadArgument, r"cannot be loaded \('AttributeError"),
    ],
)
def test_what_cannot_be_had_is_said_in_words(name: str, error: type[InvalidInput], words: str) -> None:
    with pytest.raises(error, match=words):
        load_factory(name)


def test_an_adapter_that_cannot_be_made_is_said_in_words(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match=r"failed to make an adapter for home \('RuntimeError'"):
        make_adapter("pigeon", "home", {"folder": str(tmp_path), "speed": "101"})


def test_what_is_no_adapter_at_all_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_account: str, _options: object) -> None:
        return

    monkeypatch.setattr(load_factory("pigeon"), "make", nothing)
    with pytest.raises(BadArgument, match=r"failed to make an adapter for home \('AttributeError'"):
        make_adapter("pigeon", "home", {"folder": str(tmp_path)})
