"""What hostile Markdown is made of."""

from hypothesis import strategies as st

__all__ = ["MARKUP"]

MARKUP = st.sampled_from(
    [
        *("*", "**", "_", "`", "```", "~~", "[", "](", ")", "!", "|", "|-|", "|-|-|", "\\", "<", ">", "http://x"),
        *('"', "---", "===", "word", "Wort", "слово", "&amp;"),
        *("\n", "\n\n", "\r\n", "> ", "- ", "1. ", "# ", "    ", " ", "[a]: "),
    ]
)
