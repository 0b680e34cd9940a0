"""The tool that asks the person a question. The gateway parks the turn; the answer becomes the result."""

from collections.abc import Sequence

from palaver.model.tools import ASK_USER, MAX_CHOICE_LENGTH, MAX_CHOICES
from palaver.protocols.tools import Tool, ToolFailed, ToolUse
from palaver.tools.schemas import object_schema, text_schema

_ASK = Tool(
    name=ASK_USER,
    description="Ask the person a question and wait for the answer, if you cannot go on without it. Offer choices where"
    " you can; the person can also answer in their own words. Ask one question at a time.",
    parameters=object_schema(
        "question",
        question=text_schema("The question, in the person's language."),
        choices={
            "type": "array",
            "items": {
                "anyOf": [
                    {"type": "string", "maxLength": MAX_CHOICE_LENGTH},
                    object_schema(
                        "label", label=text_schema("What the person sees."), value=text_schema("Its result.")
                    ),
                ]
            },
            "maxItems": MAX_CHOICES,
            "description": "The answers to choose from, a few words each. Leave them out for an open question.",
        },
    ),
    summary="Ask you a question, with choices.",
    for_jobs=False,
)


class AskTools:
    async def tools(self) -> Sequence[Tool]:
        return (_ASK,)

    async def use(self, use: ToolUse) -> str:
        """Fail: a call that asks something is answered by a person and never comes here."""
        use.text("question")
        raise ToolFailed(
            f"The choices must be at most {MAX_CHOICES} texts, or objects with a label and a value, none of them empty."
        )
