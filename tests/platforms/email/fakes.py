"""Rigs: a person who writes to us alone, and one who writes to us and to somebody else."""

from collections.abc import Sequence
from email.message import EmailMessage

from palaver.model.attachment import NewFile
from palaver.model.source import Source
from palaver.platforms.email.adapter import EmailAdapter
from palaver.platforms.email.parse import message_ids
from palaver.testkit.fake_server import Shown
from tests.platforms.email.post import ACCOUNT, ANN, BOB, PostOffice

__all__ = ["FakeMail", "FakeMailAmongSeveral", "text_of"]

_USUAL_THREAD = "usual@example.org"
"""Whatever is said outside another thread is an answer in this one."""


class FakeMail:
    thread_id: str | None = "plans@example.org"
    kind, chat_id = "dm", ANN

    def __init__(self, office: PostOffice) -> None:
        self.office = office
        self._answered: set[str] = set()

    def adapter(self) -> EmailAdapter:
        return self.office.adapter()

    def _mail(self, text: str, thread: str, **more: str) -> EmailMessage:
        self._answered.add(thread)
        return self.office.compose(text, headers={"References": f"<{thread}>"}, **more)

    def _source(self, mail: EmailMessage) -> Source:
        return Source(
            platform="email",
            account=ACCOUNT,
            chat_kind=self.kind,
            chat_id=self.chat_id,
            thread_id=message_ids(mail, "References")[0],
            user_id=ANN,
            message_id=message_ids(mail, "Message-ID")[0],
        )

    async def _post(self, mail: EmailMessage) -> Source:
        await self.office.post(mail)
        return self._source(mail)

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None) -> Source:
        return await self._post(self._mail(text, thread_id or _USUAL_THREAD, name=name))

    async def say_under(self, message_id: str, text: str) -> None:
        """Not by SMTP, which has no lines of that length."""
        mail = self.office.compose(text)
        self.office.deliver(mail.as_bytes().replace(message_ids(mail, "Message-ID")[0].encode(), message_id.encode()))

    async def say_with(self, text: str, files: Sequence[NewFile]) -> Source:
        mail = self._mail(text, _USUAL_THREAD)
        for file in files:
            main, _, sub = file.media_type.partition("/")
            mail.add_attachment(file.content, maintype=main, subtype=sub, filename=file.name)
        return await self._post(mail)

    async def shown(self) -> Sequence[Shown]:
        return [
            Shown(chat_id=",".join(_addresses(mail)), text=text_of(mail), thread_id=self._thread(mail))
            for mail in self.office.sent
        ]

    def _thread(self, mail: EmailMessage) -> str | None:
        """The first mail of a thread belongs to it once somebody has answered."""
        own = message_ids(mail, "Message-ID")[0]
        return next(iter(message_ids(mail, "References")), own if own in self._answered else None)

    async def shown_files(self) -> Sequence[NewFile]:
        return [
            NewFile(part.get_filename() or "", part.get_content(), part.get_content_type())
            if part.get_content_maintype() != "text"
            else NewFile(part.get_filename() or "", part.get_payload(decode=True), part.get_content_type())  # pyright: ignore[reportArgumentType]
            for mail in self.office.sent
            for part in mail.iter_attachments()
        ]

    async def cut(self) -> None:
        self.office.imap.cut()

    async def limit_rate(self) -> None:
        self.office.answers["MAIL"] = ["451 4.7.1 Too many mails, try again later"]

    async def lose_send(self, *, shown: bool) -> None:
        self.office.loses = shown

    async def close_chat(self) -> None:
        self.office.gone |= {ANN, BOB}


class FakeMailAmongSeveral(FakeMail):
    """A mail to Bob with a copy for us is not for us; one to us is."""

    kind, chat_id = "group", f"{ANN},{BOB}"

    def _mail(self, text: str, thread: str, **more: str) -> EmailMessage:
        mail = super()._mail(text, thread, **{"to": BOB, **more})
        mail["Cc"] = self.office.inbox.address
        return mail

    async def mention(self, text: str) -> Source:
        mail = super()._mail(text, _USUAL_THREAD, to=f"{BOB}, {self.office.inbox.address}")
        return await self._post(mail)

    async def answer(self, receipt: str, text: str) -> Source:
        return await self._post(self._mail(text, receipt))


def _addresses(mail: EmailMessage) -> list[str]:
    return [address.addr_spec for address in mail["To"].addresses]


def text_of(mail: EmailMessage) -> str:
    body = mail.get_body(("plain",))
    return body.get_content().replace("\r\n", "\n").removesuffix("\n") if body else ""
