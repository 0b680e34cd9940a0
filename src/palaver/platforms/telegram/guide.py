"""What a person is told and asked who makes a bot on Telegram."""

from palaver.ports.guide import Guide, Question

__all__ = ["GUIDE"]

GUIDE = Guide(
    before=(
        "In Telegram, open a chat with @BotFather and send /newbot. Choose a name, then a username that ends in bot. "
        "BotFather answers with the token of your new bot, like 123456:ABC-DEF1234."
    ),
    questions=[
        Question(option="token", asks="The token, not shown while you type, or the variable that holds it:"),
    ],
    after=(
        "In groups a bot only sees commands, answers to its own messages and messages that mention it. If it shall see "
        "all that is said, send /setprivacy to @BotFather, choose the bot, then Disable; add it to the group "
        "again after that."
    ),
    owner="Your own user id on Telegram, a number and not your @name?",
    owner_form=r"[1-9][0-9]{0,19}",
    owner_example="123456789",
)
