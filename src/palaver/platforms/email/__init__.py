"""E-mail: IMAP in, SMTP out."""

import re

from palaver.protocols import Ability, Platform, PlatformNote, SetupGuide, SetupQuestion, mail_address

ADDRESS = re.compile(r"[a-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[a-z0-9](?:[a-z0-9.-]{0,252}[a-z0-9])?")
"""In lower case. Quoted and international names are not supported."""

PLATFORM = Platform(
    name="email",
    title="E-mail",
    adapter="palaver.platforms.email.adapter:EmailAdapter",
    abilities=frozenset({Ability.THREADS, Ability.FILES_IN, Ability.FILES_OUT}),
    extras=("email",),
    connection="waits at its IMAP server, sends by SMTP",
    has_mentions=True,
    anybody_writes=True,
    user_rule=mail_address,
    example_user="ann@example.org",
    chat_rule=mail_address,
    example_chat="ann@example.org",
    notes=(
        PlatformNote(
            text=(
                "Messages here are e-mails; the topic is their subject. Answer completely in one mail: people read it "
                "later and cannot see you work. You see what is new in a mail, not all that it quotes. Everybody in To "
                "and Cc gets your answer."
            )
        ),
    ),
    guide=SetupGuide(
        before=(
            "Make a mailbox that only the agent reads, and an app password if your provider has them.",
            "Send a mail to it from another provider, open it there, and show its source.",
            "The first word after Authentication-Results is the name of your mail server, like mx.example.org.",
        ),
        questions=[
            SetupQuestion(option="address", prompt="Address of the mailbox, like helper@example.org:"),
            SetupQuestion(option="password", prompt="Password (hidden while you type), or the environment variable:"),
            SetupQuestion(option="imap_host", prompt="IMAP server, like imap.example.org:"),
            SetupQuestion(option="smtp_host", prompt="SMTP server, like smtp.example.org:"),
            SetupQuestion(option="auth_server", prompt="Name of the server in Authentication-Results:"),
        ],
        after=(
            "Send a mail to the mailbox.",
            "The agent answers in the same thread.",
        ),
        owner_prompt="Your own e-mail address, in lower case?",
        owner_pattern=ADDRESS.pattern,
        owner_example="ann@example.org",
    ),
)
