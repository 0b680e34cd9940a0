"""Redaction: secrets in a text replaced by a marker that names their kind.

A secret is told by a format of its own, or by the name it is given together with the shape of the value, so that prose
about passwords, code that handles them and placeholders stay as they are. In the patterns every repetition is bounded,
possessive or starts where nothing like it precedes: hostile text costs linear time.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import NamedTuple

__all__ = ["redact"]

_TYPED_NAME = r"(?:pass(?:word|wd|phrase|code)|(?<=[_-])pass|pwd)"
_ISSUED_NAME = (
    r"(?:(?:api|access|secret|private|signing|encryption|account|shared|master|auth)[_. -]?key"
    r"|secret|token|credentials?)"
)
_ISSUED = (  # how an issued name starts
    *("api", "access", "secret", "private", "signing", "encryption", "account", "shared", "master", "auth"),
    *("token", "credential"),
)
_LOUD_NAME = r"(?:PASS(?:WORD|WD|PHRASE)?|SECRET|TOKEN|CREDENTIALS?|(?:API|ACCESS|SECRET|PRIVATE|ACCOUNT|AUTH)_?KEY)"
_FLAG = r"(?<![\w-])--[\w-]{0,32}?"
_IS = r"""(?:\\?["'`]\]?)?[ \t]{0,4}(?::=|=>|[:=])[ \t]{0,4}(?!=)"""

_QUOTED = r"""\\?["'`]((?:(?!\\?["'`])\S){4,}+)(?=\\?["'`]|\Z)"""
_BARE = r"""[^\s"'`,;&|<>(){}\[\]=\\]"""
_LOOSE = r"""(?:(?!\[redacted: )[^\s"'`])"""
_LITERAL = (  # not a path, a URL, a variable, an attribute
    r"(?![/.~$%<({\[]|\w{1,16}://|(?:[A-Za-z_]\w{0,64}\.){1,8}[A-Za-z_]\w{0,64}(?![^\s,;)(\[]))"
)
_VALUE = rf"{_LITERAL}({_BARE}{{6,}}+={{0,2}})(?!\(|\[(?!redacted: ))"
_DIGIT = rf"(?={_BARE}{{0,64}}?\d)"
_LETTER = rf"(?={_BARE}{{0,64}}?[A-Za-z])"
_DIGIT_OR_SYMBOL = rf"(?={_BARE}{{0,64}}?(?:\d|[@#$%^*+~!?]{_BARE}))"
_NOT_A_WORD = r"(?=\S{0,64}?(?:\d|[a-z][A-Z]|=|[@#$%^*+]\S))"
_NOT_A_CALL = r"(?![A-Za-z_][\w.]{0,64}\()"
_FLAG_VALUE = rf"(?:[ =]{_QUOTED}|={_LITERAL}({_BARE}{{4,}}+)| {_NOT_A_WORD}{_LITERAL}({_BARE}{{4,}}+))"

_SCHEME = r"""\b(?:bearer|authorization["']?[ \t]?[:=][ \t]{0,4}["']?(?:basic|bot|digest|token|apikey))"""
_KEY_LINE = r"(?:\s|\\[nr])*+[^\n]{0,12}?[A-Za-z0-9+/=]{16,}+"
_KEY_HEADER = r"(?:\s|\\[nr])*+[^\n]{0,12}?(?:Proc-Type|Version|Comment):"
_PEM_KEY = (  # up to its end, or for as long as it looks like one
    rf"-----BEGIN (?:[A-Z0-9]{{1,16}} ){{0,3}}PRIVATE KEY(?: BLOCK)?-----(?={_KEY_LINE}|{_KEY_HEADER})"
    rf"(?:(?:[^-]++|-(?!----))*+-----END [A-Z0-9 ]{{0,48}}-----|(?:{_KEY_LINE})++)"
)


class _Kind(NamedTuple):
    """How secrets of one kind are told. What the pattern captures is the secret; else all that it matches is."""

    marker: str
    pattern: re.Pattern[str]
    starts: tuple[str, ...]
    """Each match starts with one of these, in large or small letters: only there is the pattern tried."""
    sign: re.Pattern[str] | None
    """Where a match may start with anything: what each contains, and is found more quickly than the match itself."""

    def matches(self, text: str, places: Callable[[str], list[int]]) -> Iterator[re.Match[str]]:
        """Every match from left to right; `places` tells where in the text a few letters are."""
        if self.sign:
            yield from self.pattern.finditer(text) if self.sign.search(text) else ()
        end = 0
        for start in sorted({place for word in self.starts for place in places(word)}):
            if start >= end and (found := self.pattern.match(text, start)):
                yield found
                end = found.end()


def _kind(name: str, pattern: str, *starts: str, sign: str | None = None) -> _Kind:
    compiled = sign and re.compile(sign, re.ASCII)
    return _Kind(f"[redacted: {name}]", re.compile(pattern, re.ASCII), starts, compiled or None)


_KINDS = (
    _kind("private key", _PEM_KEY, "-----begin "),
    _kind("jwt", r"(?<![\w-])eyJ[\w-]{8,}+(?:\.[\w-]*+){2,4}", "eyj"),
    _kind(
        "aws key",
        r"(?<![A-Za-z0-9])(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])",
        sign=r"A(?:KI|SI|BI|CC)A[A-Z0-9]{16}",
    ),
    _kind("aws secret", r"(?i:secret_?access_?key)\W{1,6}([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])", "secret"),
    _kind("github token", r"gh[pousr]_\w{36,}+|github_pat_\w{22,}+", "gh", "github_pat_"),
    _kind("gitlab token", r"gl(?:pat|dt|rt|rtr|cbt|ptt|ft|imt|agent|soat|oas|ffct|wt)-[\w-]{20,}+(?:\.\w++)*+", "gl"),
    _kind("gitlab token", r"GR1348941[\w-]{20,}+", "gr1348941"),
    _kind("slack token", r"(?:xoxe\.)?xox[abceoprs]-[\w-]{10,}+|xapp-\d-[\w-]{10,}+", "xox", "xapp-"),
    _kind("slack webhook", r"hooks\.slack\.com/(?:services|workflows|triggers)/([\w/+-]{16,}+)", "hooks.slack.com/"),
    _kind("discord webhook", r"discord(?:app)?\.com/api/webhooks/(\d{15,21}/[\w-]{20,}+)", "discord"),
    _kind(
        "discord token",
        r"(?<![\w.-])[MNO][\w-]{23,27}\.[\w-]{6,7}\.[\w-]{27,45}(?![\w-])",
        sign=r"\.[\w-]{6,7}\.[\w-]{27}",
    ),
    _kind("telegram token", r"(?<!\d)\d{8,10}:[\w-]{35}(?![\w-])", sign=r":[\w-]{35}"),
    _kind("matrix token", r"syt_[A-Za-z0-9+/=-]{1,200}_[A-Za-z]{20}_[A-Za-z0-9]{6}", "syt_"),
    _kind("meta token", r"(?<![A-Za-z0-9+/])EAA[A-Za-z0-9]{100,}+", "eaa"),
    _kind("anthropic key", r"sk-ant-[\w-]{20,}+", "sk-ant-"),
    _kind("openrouter key", r"sk-or-[\w-]{20,}+", "sk-or-"),
    _kind("openai key", r"(?<![\w-])sk-(?=[A-Za-z_-]{0,64}\d)[\w-]{20,}+", "sk-"),
    _kind("groq key", r"gsk_[A-Za-z0-9]{40,}+", "gsk_"),
    _kind("xai key", r"xai-[A-Za-z0-9]{60,}+", "xai-"),
    _kind("perplexity key", r"pplx-[A-Za-z0-9]{40,}+", "pplx-"),
    _kind("replicate token", r"r8_[A-Za-z0-9]{37,}+", "r8_"),
    _kind("hugging face token", r"(?:hf|api_org)_[A-Za-z0-9]{30,}+", "hf_", "api_org_"),
    _kind("google key", r"AIza[\w-]{35,}+|GOCSPX-[\w-]{20,}+", "aiza", "gocspx-"),
    _kind("google token", r"ya29\.[\w-]{20,}+|(?<![\w/])1//0[\w-]{30,}+", "ya29.", "1//0"),
    _kind("stripe key", r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}+|whsec_[A-Za-z0-9+/=]{24,}+", "sk_", "rk_", "whsec_"),
    _kind("square token", r"sq0[a-z]{3}-[\w-]{22,}+", "sq0"),
    _kind("twilio key", r"(?<![A-Za-z0-9])SK[0-9a-f]{32}(?![A-Za-z0-9])", sign=r"SK[0-9a-f]{32}"),
    _kind("sendgrid key", r"SG\.[\w-]{16,32}\.[\w-]{32,64}", "sg."),
    _kind("mailgun key", r"(?<![\w-])key-[0-9a-f]{32}(?![A-Za-z0-9])", "key-"),
    _kind("mailchimp key", r"(?<![A-Za-z0-9])[0-9a-f]{32}-us\d{1,2}(?![A-Za-z0-9])", sign=r"-us\d"),
    _kind("npm token", r"npm_[A-Za-z0-9]{36,}+", "npm_"),
    _kind("pypi token", r"pypi-[\w-]{50,}+", "pypi-"),
    _kind("docker token", r"dckr_[a-z]{3}_[\w-]{20,}+", "dckr_"),
    _kind("digitalocean token", r"do[opr]_v1_[0-9a-f]{64}", sign=r"_v1_[0-9a-f]{64}"),
    _kind("databricks token", r"(?<![A-Za-z0-9])dapi[0-9a-f]{32}(?:-\d)?", "dapi"),
    _kind("shopify token", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32,}+", "shp"),
    _kind("atlassian token", r"ATATT3[\w=-]{60,}+", "atatt3"),
    _kind("linear key", r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}+", "lin_"),
    _kind("notion token", r"ntn_[A-Za-z0-9]{40,}+", "ntn_"),
    _kind("sentry token", r"sntry[su]_[\w+/=-]{40,}+", "sntry"),
    _kind("tailscale key", r"tskey-[a-z]{2,12}-[\w-]{16,}+", "tskey-"),
    _kind("vault token", r"(?<![\w.])hv[sbr]\.[\w-]{24,}+", "hv"),
    _kind("age key", r"AGE-SECRET-KEY-1[A-Z0-9]{58}", "age-secret-key-1"),
    _kind("url password", r"""://[^\s/:@"'<>]{0,256}:([^\s/"'<>]{1,256})@""", "://"),
    _kind(
        "url parameter",
        rf"""(?i:[?&][\w-]{{0,32}}(?:{_TYPED_NAME}|{_ISSUED_NAME}|sig|signature))=([^\s&#"'<>\[]{{8,}}+)""",
        "?",
        "&",
    ),
    _kind("cookie", r"""(?i:\bcookie["']?:)[ \t]{0,4}["']?([^\s=;"'\[]{1,128}=[^\r\n"']++)""", "cookie"),
    _kind(
        "authorization",
        rf"(?i:{_SCHEME})[ \t]{{1,4}}{_NOT_A_CALL}{_NOT_A_WORD}([\w.~+/=-]{{8,}}+)",
        "bearer",
        "authorization",
    ),
    _kind(
        "password",
        r"""(?<!\S)(?:-u|--user)[ =]["']?(?P<user>[^\s:"']{1,128}):(?!\d+\b|(?P=user)\b)([^\s"']{1,256})""",
        "-u",
        "--user",
    ),
    _kind("password", rf"(?i:{_FLAG}{_TYPED_NAME}){_FLAG_VALUE}", "--"),
    _kind("secret", rf"(?i:{_FLAG}{_ISSUED_NAME}){_FLAG_VALUE}", "--"),
    _kind("password", rf"(?i:{_TYPED_NAME}){_IS}(?:{_QUOTED}|{_DIGIT_OR_SYMBOL}{_VALUE})", "pass", "pwd"),
    _kind("secret", rf"(?i:{_ISSUED_NAME}){_IS}(?:{_QUOTED}|{_DIGIT}{_LETTER}{_VALUE})", *_ISSUED),
    _kind("secret", rf"(?<![a-z]){_LOUD_NAME}={_LITERAL}({_LOOSE}{{6,}}+)", "pass", *_ISSUED),
)

_PLACEHOLDER = re.compile(
    r"""
      \[redacted:.* | \$\w+ | \$[{(].* | \{.*\} | <.*> | %\w*%? | @\w+@ | (?-i:[A-Z]+(?:_[A-Z]+)+)
    | x+ | \*+ | \.+ | …+ | •+ | -+ | _+ | \?+ | .*xxxx+.* | .*\.\.\.
    | (?:your|example|insert|replace|enter)[\W_].* | change[-_]?me | placeholder | redacted | hidden | masked
    | (?:my|your|user|db|access|auth|new|old)?[-_]?(?:pass(?:word|wd|phrase)?|pwd|(?:api)?[-_]?key|token|secret)
    | string | bytes | text | none | null | true | false | undefined | required | optional | bearer
    """,
    re.IGNORECASE | re.VERBOSE,
)


def redact(text: str) -> str:
    """`text` with every secret that is recognised replaced by a marker such as `[redacted: aws key]`."""
    places = _places(text)
    for kind in _KINDS:
        if found := tuple(kind.matches(text, places)):
            text = _without(text, found, kind.marker)
            places = _places(text)
    return text


def _places(text: str) -> Callable[[str], list[int]]:
    """Where a word is in `text`, in large or small letters."""
    # The one capital letter whose small form is longer would shift all places behind it.
    folded = text.replace("\u0130", "i").lower()

    @cache
    def places(word: str) -> list[int]:
        if not all(letter in folded for letter in word):  # far quicker than to look for the word
            return []
        found = [folded.find(word)]
        while found[-1] >= 0:
            found.append(folded.find(word, found[-1] + 1))
        return found[:-1]

    return places


def _without(text: str, found: Iterable[re.Match[str]], marker: str) -> str:
    """`text` with the secrets of the matches hidden."""
    pieces: list[str] = []
    end = 0
    for match in found:
        secret = match.lastindex or 0
        if not _PLACEHOLDER.fullmatch(match[secret]):
            pieces += (text[end : match.start(secret)], marker)
            end = match.end(secret)
    return "".join((*pieces, text[end:]))
