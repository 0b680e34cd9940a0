"""What third parties implement: adapters, agents, tools and hooks. An adapter needs no other import than this one."""

from palaver.model.attachment import UNKNOWN_TYPE, Attachment, NewFile, format_size
from palaver.model.errors import BadArgument, InvalidInput, MalformedSource, StoreUnavailable
from palaver.model.label import Label
from palaver.model.platform import Platform
from palaver.model.source import CHANNEL, DM, GROUP, AddresseeKind, Labels, Source, Trust, identity_of
from palaver.model.split import Unit
from palaver.model.target import Place
from palaver.model.text import one_line
from palaver.model.transcript import Quote
from palaver.model.turn import Choice, Inbound, Outbound, Revision, account_text
from palaver.model.value import value
from palaver.protocols.adapter import (
    Adapter,
    AnswerStatus,
    Blobs,
    ChatMoved,
    Limits,
    PlatformBusy,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    Receiver,
    SendRefused,
    SendUnclear,
    SetupGuide,
    SetupQuestion,
    TargetAway,
    TargetGone,
)
from palaver.protocols.background import BackgroundTasks
from palaver.protocols.capabilities import (
    Checking,
    CommandMenu,
    Downloading,
    Drafting,
    Editing,
    EventSubscriber,
    Forwarding,
    HttpCallbacks,
    HttpRequest,
    HttpResponse,
    MenuCommand,
    Threading,
    Typing,
    Uploading,
    supports,
)
from palaver.protocols.checks import check_url, file_to_send, fit_menu
from palaver.protocols.client_errors import ClientErrors, answer_error, parse_retry_after
from palaver.protocols.clock import Clock, SystemClock
from palaver.protocols.hooks import EventKind, EventSubscription, GatewayEvent, Hook, event_name
from palaver.protocols.incoming import after_name, checked, edit_version, is_secret, is_signed, parse_or_skip, take_json
from palaver.protocols.incoming import after_name, is_secret, is_signed, parse_or_skip, take_json
from palaver.protocols.read_ahead import finish, read_ahead

__all__ = [
    "CHANNEL",
    "DM",
    "GROUP",
    "UNKNOWN_TYPE",
    "Adapter",
    "AddresseeKind",
    "AnswerStatus",
    "Attachment",
    "BackgroundTasks",
    "BadArgument",
    "Blobs",
    "ChatMoved",
    "Checking",
    "Choice",
    "ClientErrors",
    "Clock",
    "CommandMenu",
    "Downloading",
    "Drafting",
    "Editing",
    "EventKind",
    "EventSubscriber",
    "EventSubscription",
    "Forwarding",
    "GatewayEvent",
    "Hook",
    "HttpCallbacks",
    "HttpRequest",
    "HttpResponse",
    "Inbound",
    "InvalidInput",
    "Label",
    "Labels",
    "Limits",
    "MalformedSource",
    "MenuCommand",
    "NewFile",
    "Outbound",
    "Place",
    "Platform",
    "PlatformBusy",
    "PlatformDown",
    "PlatformError",
    "PlatformRefused",
    "Quote",
    "Receiver",
    "Revision",
    "SendRefused",
    "SendUnclear",
    "SetupGuide",
    "SetupQuestion",
    "Source",
    "StoreUnavailable",
    "SystemClock",
    "TargetAway",
    "TargetGone",
    "Threading",
    "Trust",
    "Typing",
    "Unit",
    "Uploading",
    "account_text",
    "after_name",
    "answer_error",
    "check_url",
    "checked",
    "edit_version",
    "event_name",
    "file_to_send",
    "finish",
    "fit_menu",
    "format_size",
    "identity_of",
    "is_secret",
    "is_signed",
    "one_line",
    "parse_or_skip",
    "parse_retry_after",
    "read_ahead",
    "supports",
    "take_json",
    "value",
]
