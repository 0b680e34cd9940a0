"""Redaction: secrets in a text replaced by a marker that names their kind.

A secret is told by a format of its own, or by the name it is given together with the shape of the value, so that prose
about passwords, code that handles them and placeholders stay as they are. In the patterns every repetition is bounded,
possessive or starts where nothing like it precedes: hostile text costs linear time.
"""

import re

__all__ = ["redact"]

_TYPED_NAME = r"(?:pass(?:word|wd|phrase|code)|(?<=[_-])pass|pwd)"
_ISSUED_NAME = (
    r"(?:(?:api|access|secret|private|signing|encryption|account|shared|master|auth)[_. -]?key"
    r"|secret|token|credentials?)"
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
_FLAG_VALUE = rf"(?:[ =]{_QUOTED}|={_LITERAL}({_BARE}{{4,}}+)| {_NOT_A_WORD}{_LITERAL}({_BARE}{{4,}}+))"

_SCHEME = r"""\b(?:bearer|authorization["']?[ \t]?[:=][ \t]{0,4}["']?(?:basic|bot|digest|token|apikey))"""
_KEY_LINE = r"(?:\s|\\[nr])*+[^\n]{0,12}?[A-Za-z0-9+/=]{16,}+"
_KEY_HEADER = r"(?:\s|\\[nr])*+[^\n]{0,12}?(?:Proc-Type|Version|Comment):"
_PEM_KEY = (  # up to its end, or for as long as it looks like one
    rf"-----BEGIN (?:[A-Z0-9]{{1,16}} ){{0,3}}PRIVATE KEY(?: BLOCK)?-----(?={_KEY_LINE}|{_KEY_HEADER})"
    rf"(?:(?:[^-]++|-(?!----))*+-----END [A-Z0-9 ]{{0,48}}-----|(?:{_KEY_LINE})++)"
)

# What a pattern captures is the secret; where it captures nothing, the whole match is.
_KINDS = (
    ("private key", _PEM_KEY),
    ("jwt", r"(?<![\w-])eyJ[\w-]{8,}+(?:\.[\w-]*+){2,4}"),
    ("aws key", r"(?<![A-Za-z0-9])(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ("aws secret", r"(?i:secret_?access_?key)\W{1,6}([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])"),
    ("github token", r"gh[pousr]_\w{36,}+|github_pat_\w{22,}+"),
    ("gitlab token", r"gl(?:pat|dt|rt|rtr|cbt|ptt|ft|imt|agent|soat|oas|ffct|wt)-[\w-]{20,}+(?:\.\w++)*+"),
    ("gitlab token", r"GR1348941[\w-]{20,}+"),
    ("slack token", r"(?:xoxe\.)?xox[abceoprs]-[\w-]{10,}+|xapp-\d-[\w-]{10,}+"),
    ("slack webhook", r"hooks\.slack\.com/(?:services|workflows|triggers)/([\w/+-]{16,}+)"),
    ("discord webhook", r"discord(?:app)?\.com/api/webhooks/(\d{15,21}/[\w-]{20,}+)"),
    ("discord token", r"(?<![\w.-])[MNO][\w-]{23,27}\.[\w-]{6,7}\.[\w-]{27,45}(?![\w-])"),
    ("telegram token", r"(?<!\d)\d{8,10}:[\w-]{35}(?![\w-])"),
    ("matrix token", r"syt_[A-Za-z0-9+/=-]{1,200}_[A-Za-z]{20}_[A-Za-z0-9]{6}"),
    ("meta token", r"(?<![A-Za-z0-9+/])EAA[A-Za-z0-9]{100,}+"),
    ("anthropic key", r"sk-ant-[\w-]{20,}+"),
    ("openrouter key", r"sk-or-[\w-]{20,}+"),
    ("openai key", r"(?<![\w-])sk-(?=[A-Za-z_-]{0,64}\d)[\w-]{20,}+"),
    ("groq key", r"gsk_[A-Za-z0-9]{40,}+"),
    ("xai key", r"xai-[A-Za-z0-9]{60,}+"),
    ("perplexity key", r"pplx-[A-Za-z0-9]{40,}+"),
    ("replicate token", r"r8_[A-Za-z0-9]{37,}+"),
    ("hugging face token", r"(?:hf|api_org)_[A-Za-z0-9]{30,}+"),
    ("google key", r"AIza[\w-]{35,}+|GOCSPX-[\w-]{20,}+"),
    ("google token", r"ya29\.[\w-]{20,}+|(?<![\w/])1//0[\w-]{30,}+"),
    ("stripe key", r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}+|whsec_[A-Za-z0-9+/=]{24,}+"),
    ("square token", r"sq0[a-z]{3}-[\w-]{22,}+"),
    ("twilio key", r"(?<![A-Za-z0-9])SK[0-9a-f]{32}(?![A-Za-z0-9])"),
    ("sendgrid key", r"SG\.[\w-]{16,32}\.[\w-]{32,64}"),
    ("mailgun key", r"(?<![\w-])key-[0-9a-f]{32}(?![A-Za-z0-9])"),
    ("mailchimp key", r"(?<![A-Za-z0-9])[0-9a-f]{32}-us\d{1,2}(?![A-Za-z0-9])"),
    ("npm token", r"npm_[A-Za-z0-9]{36,}+"),
    ("pypi token", r"pypi-[\w-]{50,}+"),
    ("docker token", r"dckr_[a-z]{3}_[\w-]{20,}+"),
    ("digitalocean token", r"do[opr]_v1_[0-9a-f]{64}"),
    ("databricks token", r"(?<![A-Za-z0-9])dapi[0-9a-f]{32}(?:-\d)?"),
    ("shopify token", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32,}+"),
    ("atlassian token", r"ATATT3[\w=-]{60,}+"),
    ("linear key", r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}+"),
    ("notion token", r"ntn_[A-Za-z0-9]{40,}+"),
    ("sentry token", r"sntry[su]_[\w+/=-]{40,}+"),
    ("tailscale key", r"tskey-[a-z]{2,12}-[\w-]{16,}+"),
    ("vault token", r"(?<![\w.])hv[sbr]\.[\w-]{24,}+"),
    ("age key", r"AGE-SECRET-KEY-1[A-Z0-9]{58}"),
    ("url password", r"""(?<=://)[^\s/:@"'<>]{0,256}:([^\s/"'<>]{1,256})@"""),
    (
        "url parameter",
        rf"""(?i:[?&][\w-]{{0,32}}(?:{_TYPED_NAME}|{_ISSUED_NAME}|sig|signature))=([^\s&#"'<>\[]{{8,}}+)""",
    ),
    ("cookie", r"""(?i:\bcookie["']?:)[ \t]{0,4}["']?([^\s=;"'\[]{1,128}=[^\r\n"']++)"""),
    ("authorization", rf"(?i:{_SCHEME})[ \t]{{1,4}}{_NOT_A_WORD}([\w.~+/=-]{{8,}}+)"),
    ("password", r"""(?<!\S)(?:-u|--user)[ =]["']?(?P<user>[^\s:"']{1,128}):(?!\d+\b|(?P=user)\b)([^\s"']{1,256})"""),
    ("password", rf"(?i:{_FLAG}{_TYPED_NAME}){_FLAG_VALUE}"),
    ("secret", rf"(?i:{_FLAG}{_ISSUED_NAME}){_FLAG_VALUE}"),
    ("password", rf"(?i:{_TYPED_NAME}){_IS}(?:{_QUOTED}|{_DIGIT_OR_SYMBOL}{_VALUE})"),
    ("secret", rf"(?i:{_ISSUED_NAME}){_IS}(?:{_QUOTED}|{_DIGIT}{_LETTER}{_VALUE})"),
    ("secret", rf"(?<![a-z]){_LOUD_NAME}={_LITERAL}({_LOOSE}{{6,}}+)"),
)
_PATTERNS = tuple((f"[redacted: {name}]", re.compile(pattern, re.ASCII)) for name, pattern in _KINDS)

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
    for marker, pattern in _PATTERNS:
        text = pattern.sub(lambda found, marker=marker: _hide(found, marker), text)
    return text


def _hide(found: re.Match[str], marker: str) -> str:
    secret = found.lastindex or 0
    if _PLACEHOLDER.fullmatch(found[secret]):
        return found[0]
    start, end = found.start(secret) - found.start(), found.end(secret) - found.start()
    return found[0][:start] + marker + found[0][end:]
