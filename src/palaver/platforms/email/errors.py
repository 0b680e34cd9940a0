"""Translate errors of the mail servers into errors of an adapter."""

import imaplib
import re
import ssl

from aiosmtplib import (
    SMTPAuthenticationError,
    SMTPConnectResponseError,
    SMTPException,
    SMTPHeloError,
    SMTPRecipientRefused,
    SMTPResponseException,
    SMTPSenderRefused,
)
from imap_tools.errors import ImapToolsError, MailboxFolderSelectError, MailboxLoginError

from palaver.protocols import (
    ClientErrors,
    PlatformBusy,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    SendRefused,
    TargetGone,
    one_line,
)

_BUSY_SECONDS = 60.0
"""Servers that ask for patience, as with greylisting, do not say for how long."""
_MAX_WORDS = 200
_FIRST_ERROR, _PERMANENT = 400, 500
_TOO_LARGE, _CLOSING, _LOGIN_REQUIRED = 552, 421, 530
_WRONG_LOGIN = (
    "The {kind} server rejects the username or password. Correct them; many providers require an app password for "
    "programs."
)
_BAD_CERTIFICATE = "The certificate of the {kind} server is not valid for this name. Correct {option}."
_NO_FOLDER = "The mailbox has no such folder. Correct folder, for example to INBOX."
_NOT_OUR_ADDRESS = "The SMTP server does not let this account send as its address. Correct address or username."
# RFC 3463: 5.1 is a wrong address, 5.2.1 a closed mailbox. 5.7 and others are about us or this mail.
_GONE = re.compile(r"5\.(1\.\d+|2\.1)\b")
_STATUS = re.compile(r"5\.\d+\.\d+\b")
_UNKNOWN_ADDRESS = frozenset({550, 551, 553})
_TEMPORARY = ("[UNAVAILABLE]", "[INUSE]", "[LIMIT]")
"""RFC 5530: the login failed, but not because of the password."""


def _explain_imap(error: Exception, *, sending: bool) -> PlatformError | None:
    del sending
    match error:
        case MailboxLoginError():
            is_temporary = any(code in str(error) for code in _TEMPORARY)
            return None if is_temporary else PlatformRefused(_WRONG_LOGIN.format(kind="IMAP"))
        case MailboxFolderSelectError():
            return PlatformRefused(_NO_FOLDER)
        case _:
            return _explain_certificate(error, "IMAP")


def _explain_certificate(error: BaseException, kind: str) -> PlatformError | None:
    if isinstance(error, ssl.SSLCertVerificationError) or isinstance(error.__cause__, ssl.SSLCertVerificationError):
        return PlatformRefused(_BAD_CERTIFICATE.format(kind=kind, option=f"{kind.lower()}_host"))
    return None


def _explain_smtp(error: Exception, *, sending: bool) -> PlatformError | None:
    if not isinstance(error, SMTPResponseException) or error.code < _FIRST_ERROR:
        return _explain_certificate(error, "SMTP")
    is_permanent = error.code >= _PERMANENT
    words = one_line(str(error.message), _MAX_WORDS)
    if isinstance(error, SMTPAuthenticationError):
        return PlatformRefused(_WRONG_LOGIN.format(kind="SMTP")) if is_permanent else None
    if isinstance(error, SMTPConnectResponseError | SMTPHeloError) or (error.code == _CLOSING and not sending):
        return PlatformDown(f"The SMTP server closes the connection: {error.code} {words}")
    if not is_permanent:
        return PlatformBusy(_BUSY_SECONDS)
    if isinstance(error, SMTPSenderRefused) and error.code != _TOO_LARGE:
        return PlatformRefused(_WRONG_LOGIN.format(kind="SMTP") if error.code == _LOGIN_REQUIRED else _NOT_OUR_ADDRESS)
    return (TargetGone if _is_gone(error) else SendRefused)(f"The SMTP server rejects it: {error.code} {words}")


def _is_gone(error: SMTPResponseException) -> bool:
    if not isinstance(error, SMTPRecipientRefused):
        return False
    if _STATUS.match(error.message):
        return bool(_GONE.match(error.message))
    return error.code in _UNKNOWN_ADDRESS


IMAP = ClientErrors(
    title="the IMAP server",
    raised=(imaplib.IMAP4.error, ImapToolsError, OSError, EOFError),
    explain=_explain_imap,
    hint="Check imap_host and imap_port.",
)
SMTP = ClientErrors(
    title="the SMTP server",
    raised=(SMTPException, OSError),
    explain=_explain_smtp,
    hint="Check smtp_host and smtp_port.",
)
