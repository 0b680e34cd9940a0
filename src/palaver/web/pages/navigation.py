"""Where a person can go and what they can do: one table for the bar, the menu of a phone and the command palette."""

from palaver.model.value import value
from palaver.store.people.api_tokens import Right
from palaver.web.caller import Caller


@value(kw_only=False)
class Link:
    title: str
    path: str
    """A page, or `#id`: a button to press, a form to send or a dialog to open."""
    words: str = ""
    """What else a person would type to find it."""
    needs: Right | None = Right.READ
    """None is what any login has."""
    owner_only: bool = False

    def is_for(self, caller: Caller | None) -> bool:
        if caller is None or (self.owner_only and not caller.is_owner):
            return False
        return self.needs is None or caller.has(self.needs)


NAVIGATION = (
    Link("Chat", "/chat", "talk message write", needs=Right.CHAT),
    Link("Conversations", "/sessions", "sessions transcripts history"),
    Link("Jobs", "/jobs", "schedule cron reminders"),
    Link("Processes", "/processes", "background commands output", owner_only=True),
    Link("People", "/people", "users grants roles pairing", owner_only=True),
    Link("Platforms", "/platforms", "accounts channels health home channels", owner_only=True),
    Link("Usage", "/usage", "cost tokens money price"),
    Link("Settings", "/settings", "configuration preferences options", owner_only=True),
)
DIAGNOSTICS = (
    Link("Messages", "/messages", "inbox outbox deliveries failed"),
    Link("Turns", "/turns", "running approvals stop"),
    Link("Explain", "/explain", "why key reset access", owner_only=True),
    Link("Log", "/logs", "errors warnings lines what happened", owner_only=True),
    Link("Doctor", "/doctor", "check health problems", owner_only=True),
)
_CHAT, _MANAGE = Right.CHAT, Right.MANAGE
COMMANDS = (
    Link("Home", "/", "overview start waiting problems", owner_only=True),
    Link("New conversation", "#new-conversation", "start chat talk", needs=_CHAT),
    Link("Search messages", "/search", "find words"),
    Link("What the agent remembers", "/memory", "memory notes about me forget"),
    Link("Approve what waits", "/turns", "allow deny tools permission", needs=_MANAGE),
    Link("Set a reminder", "/jobs#f-prompt", "schedule job cron later every day", needs=_MANAGE),
    Link("Let a person in", "/people#ask-title", "approve pairing code stranger friend", owner_only=True),
    Link("Invite to the web chat", "/people#i-name", "friend login link let in share", owner_only=True),
    Link("Grant access", "/people#f-who", "role owner admin member guest allow block", owner_only=True),
    Link("Connect a model", "/settings/model", "provider key api openai anthropic change", owner_only=True),
    Link("Instructions for the agent", "/settings/instructions", "system prompt persona", owner_only=True),
    Link("Tools and approvals", "/settings/tools", "permission allow ask", owner_only=True),
    Link("Add an MCP server", "/settings/tools#m-name", "tools", owner_only=True),
    Link("Add an account", "/settings/accounts", "connect platform telegram discord slack bot", owner_only=True),
    Link("Who can ask for access", "/settings/people", "strangers pairing settings", owner_only=True),
    Link("Limits on usage", "/settings/limits", "quota cost tokens budget", owner_only=True),
    Link("General settings", "/settings/general", "reset titles privacy language", owner_only=True),
    Link("Change the time zone", "/settings/general#s-timezone", "clock hour", owner_only=True),
    Link("Back up the database", "/settings/data", "backup copy export retention", owner_only=True),
    Link("Trace a message", "/trace", "what became delivery"),
    Link("Switch between light and dark", "#theme", "theme colours mode night", needs=None),
    Link("Keyboard shortcuts", "#keys", "help keys", needs=None),
    Link("Log out", "#logout", "sign out exit", needs=None),
)
