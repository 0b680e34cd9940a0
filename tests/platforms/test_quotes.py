"""Where an answer is a reply to the message that it answers: on each platform that has replies."""

from dataclasses import replace

from palaver.platforms.discord import adapter as discord
from palaver.platforms.signal import parse as signal
from palaver.platforms.whatsapp import render as whatsapp
from palaver.platforms.yuanbao import wire as yuanbao
from palaver.protocols import Outbound, QuoteMode

NEVER, _, ALWAYS = QuoteMode
PERSON = "a1b2c3d4-0000-4000-8000-000000000001"


def _in_whatsapp(outbound: Outbound) -> bool:
    return "context" in whatsapp.render(outbound)


def _in_signal(outbound: Outbound) -> bool:
    return "quoteAuthor" in signal.render(outbound)


def _in_yuanbao(outbound: Outbound) -> bool:
    return b"m-answered" in yuanbao.render(outbound, [], us="us", key="k")[1]


def test_a_reply_is_shown_in_groups_or_where_it_is_wanted() -> None:
    platforms = [
        ("whatsapp", "4917", "group-id", "wamid.1", _in_whatsapp),
        ("signal", PERSON, "Z3JvdXA=", f"7:{PERSON}", _in_signal),
        ("yuanbao", "", "group/5", "m-answered", _in_yuanbao),
    ]
    for platform, person, group, message, quotes in platforms:
        for mode in QuoteMode:
            answer = Outbound(platform=platform, chat_id=group, text="yes", reply_to=message, quotes=mode)
            assert quotes(answer) == (mode is not NEVER), (platform, mode)
            assert not quotes(replace(answer, reply_to=None)), platform
            if person:
                assert quotes(replace(answer, chat_id=person)) == (mode is ALWAYS), (platform, mode)
    for mode in QuoteMode:
        answer = Outbound(platform="discord", chat_id="5", text="yes", reply_to="12", quotes=mode)
        assert ("message_reference" in discord.message(answer, key="k")) == (mode is ALWAYS), mode
        in_server = discord.message(replace(answer, scope_id="9"), key="k")
        assert ("message_reference" in in_server) == (mode is not NEVER), mode
