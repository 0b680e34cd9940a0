"""Log in to an MCP server that asks for OAuth: once in a browser, then refreshed without anybody."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import NoReturn
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthMetadata, OAuthToken
from pydantic import AnyUrl, BaseModel, ValidationError

from palaver.db.private_files import make_private_folder, open_private
from palaver.model.errors import PalaverError, first_error
from palaver.model.redact import know_secrets, redact
from palaver.model.text import one_line

_LOOPBACK = "127.0.0.1"
_PATH = "/callback"
_LOGIN_TIMEOUT_SECONDS = 600.0
_REQUEST_TIMEOUT_SECONDS = 10.0
_MAX_REASON_LENGTH = 200
_PAGE = "<!doctype html><meta charset=utf-8><title>Palaver</title><p>{}</p>"
_DONE, _REFUSED = "You are logged in. You can close this page.", "The login failed. See the terminal."


class LoginFailed(PalaverError):
    """Nobody logged in. The message says why."""


class _Login(BaseModel):
    """A login as it is stored."""

    url: str
    """The server that it is for. No other gets it."""
    client: OAuthClientInformationFull | None = None
    tokens: OAuthToken | None = None
    expires: float | None = None
    metadata: OAuthMetadata | None = None


class LoginFile:
    """Where the login for one server is stored, readable only for this user."""

    def __init__(self, path: Path, url: str) -> None:
        self._path, self._url = path, url
        self.login = self._load()
        self._know_secrets()
        self.provider: OAuthClientProvider | None = None
        self._is_held = False

    def _load(self) -> _Login:
        try:
            found = _Login.model_validate_json(self._path.read_bytes())
        except (OSError, ValidationError, ValueError):
            return _Login(url=self._url)
        return found if found.url == self._url else _Login(url=self._url)

    def connect(self, provider: OAuthClientProvider) -> OAuthClientProvider:
        """Tell the provider what it forgets between two starts: when the token expires, and where to refresh it."""
        provider.context.token_expiry_time = self.login.expires
        provider.context.oauth_metadata = self.login.metadata
        self.provider = provider
        return provider

    async def get_tokens(self) -> OAuthToken | None:
        return self.login.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        expires = time.time() + tokens.expires_in if tokens.expires_in else None
        metadata = self.provider.context.oauth_metadata if self.provider else None
        self._store(self.login.model_copy(update={"tokens": tokens, "expires": expires, "metadata": metadata}))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.login.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._store(self.login.model_copy(update={"client": client_info}))

    def begin(self) -> None:
        """Begin another login. The stored one stays until that has succeeded."""
        self._is_held, self.login = True, _Login(url=self._url)

    def finish(self) -> None:
        """Store what has happened since `begin`; nothing stays if the server asks for no login."""
        self._is_held = False
        if self.login.tokens is None:
            self._path.unlink(missing_ok=True)
        else:
            self._store(self.login)

    def _know_secrets(self) -> None:
        tokens, client = self.login.tokens, self.login.client
        held = (tokens and tokens.access_token, tokens and tokens.refresh_token, client and client.client_secret)
        know_secrets(self._path, filter(None, held))

    def _store(self, login: _Login) -> None:
        self.login = login
        self._know_secrets()
        if self._is_held:
            return
        make_private_folder(self._path.parent)
        part = self._path.with_suffix(".part")
        part.unlink(missing_ok=True)
        with os.fdopen(open_private(part, os.O_WRONLY | os.O_EXCL), "w") as file:
            file.write(login.model_dump_json(exclude_none=True))
        part.replace(self._path)


def stored_login(path: Path, url: str) -> OAuthClientProvider | None:
    """Return what logs in with a stored login, if there is one. It fails when the login is no longer valid."""
    file = LoginFile(path, url)
    if file.login.tokens is None:
        return None

    async def ask_again(_: str) -> NoReturn:
        raise OAuthFlowError("the login has expired")

    async def wait() -> NoReturn:
        raise OAuthFlowError("nobody logs in here")

    return file.connect(OAuthClientProvider(url, _metadata(_LOOPBACK), file, ask_again, wait))


async def log_in_to(
    path: Path,
    url: str,
    headers: Mapping[str, str],
    *,
    show: Callable[[str], None],
    registration: tuple[str, str | None] | None = None,
    port: int = 0,
) -> bool:
    """Log in, and store it. `show` gets the address to open.

    A registration is the id and the secret of a client that was registered by hand; else the client registers itself.
    Return False if the server asks for no login. Raises LoginFailed.
    """
    file = LoginFile(path, url)
    answer: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()
    try:
        listener = await asyncio.start_server(partial(_receive, answer), _LOOPBACK, port)
    except OSError as error:
        raise LoginFailed(f"The port {port} is taken. Choose another with --port.") from error
    async with listener:
        redirect = f"http://{_LOOPBACK}:{listener.sockets[0].getsockname()[1]}{_PATH}"
        file.begin()
        if registration:
            await file.set_client_info(_registered(*registration, redirect))

        async def redirected(address: str) -> None:
            show(address)

        async def returned() -> AuthorizationCodeResult:
            async with asyncio.timeout(_LOGIN_TIMEOUT_SECONDS):
                return await answer

        provider = file.connect(OAuthClientProvider(url, _metadata(redirect), file, redirected, returned))
        try:
            async with (
                httpx2.AsyncClient(headers=dict(headers), auth=provider, timeout=_LOGIN_TIMEOUT_SECONDS) as client,
                Client(streamable_http_client(url, http_client=client), mode="legacy"),
            ):
                pass
        except TimeoutError:
            raise LoginFailed("Nobody logged in in time. Try again.") from None
        except Exception as error:
            raise _reason(error) from error
        finally:
            answer.cancel()
    file.finish()
    return file.login.tokens is not None


def _reason(error: BaseException) -> LoginFailed:
    first = first_error(error)
    if isinstance(first, LoginFailed):
        return first
    return LoginFailed(f"The login failed: {one_line(redact(str(first)), _MAX_REASON_LENGTH)}")


def _metadata(redirect: str) -> OAuthClientMetadata:
    address = redirect if redirect.startswith("http") else f"http://{redirect}{_PATH}"
    return OAuthClientMetadata(client_name="Palaver", redirect_uris=[AnyUrl(address)])


def _registered(client_id: str, client_secret: str | None, redirect: str) -> OAuthClientInformationFull:
    method = "client_secret_post" if client_secret else "none"
    return OAuthClientInformationFull(
        client_id=client_id,
        client_secret=client_secret,
        redirect_uris=[AnyUrl(redirect)],
        token_endpoint_auth_method=method,
    )


async def _receive(
    answer: asyncio.Future[AuthorizationCodeResult], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answer one request of the browser. Only the redirect counts."""
    try:
        async with asyncio.timeout(_REQUEST_TIMEOUT_SECONDS):
            line = (await reader.readline()).decode("latin-1").split(" ")
            while (await reader.readline()).strip():
                pass
            status, words = _settle(answer, line[1] if len(line) > 1 else "")
            body = _PAGE.format(words).encode()
            writer.write(
                f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: text/html; charset=utf-8\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
            )
            writer.write(body)
            await writer.drain()
    except (TimeoutError, OSError, ValueError):
        pass  # a browser that goes away says nothing
    finally:
        writer.close()


def _settle(answer: asyncio.Future[AuthorizationCodeResult], target: str) -> tuple[HTTPStatus, str]:
    address = urlsplit(target)
    if address.path != _PATH or answer.done():
        return HTTPStatus.NOT_FOUND, HTTPStatus.NOT_FOUND.phrase
    said = {name: values[0] for name, values in parse_qs(address.query).items()}
    if "code" not in said:
        reason = said.get("error_description") or said.get("error") or "it sent no code"
        answer.set_exception(LoginFailed(f"The server refused: {one_line(reason, _MAX_REASON_LENGTH)}"))
        return HTTPStatus.OK, _REFUSED
    answer.set_result(AuthorizationCodeResult(code=said["code"], state=said.get("state"), iss=said.get("iss")))
    return HTTPStatus.OK, _DONE
