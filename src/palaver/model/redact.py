"""Redaction: replace secrets in a text with a marker that names their kind.

The gateway knows its own keys, and replaces them even if they look like words.

Any other secret is recognised by its own format, or by the name before it together with the shape of the value. Prose
about passwords, code that handles them and placeholders stay unchanged. Every repetition in the patterns is bounded,
possessive or anchored, so hostile text costs linear time. No group is possessive: Python 3.11.2, which Debian 12 has,
does not go back to where its last repetition began.

Every stored text passes through here and nearly none holds a secret, so two cheap checks first rule most texts out.

A key of a model provider in a message is recognised before the message is stored, and can be tried: see `PastedKey`.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from enum import Enum
from functools import cache, cached_property
from urllib.parse import quote

from palaver.model.providers import KEYED_PROVIDERS, PROVIDERS
from palaver.model.turn import Inbound
from palaver.model.value import value

_FIRST_PRIVATE, _LAST_PRIVATE = 0xF0000, 0xFFFFD
"""A range of private use: no text has a character for it, and nearly none contains one."""
_STAND_INS = f"{chr(_FIRST_PRIVATE)}-{chr(_LAST_PRIVATE)}"
"""What stands for the secrets that were found: see `redact`."""

_TYPED_NAME = (
    r"(?:pass(?:word|wd|phrase|code|wort)|(?<=[_-])pass|pwd|kennwort|wachtwoord|mot de passe|contrase[ñn]a|senha"
    r"|has[łl]o|l[öo]senord|[Пп]ароль|密[码碼]|パスワード|비밀번호)"
)
_ISSUED_NAME = (
    r"(?:(?:api|access|secret|private|signing|encryption|account|shared|master|auth)[_. -]?key"
    r"|secret|token|credentials?)"
)
_TYPED = (  # how a typed name starts
    *("pass", "pwd", "kennwort", "wachtwoord", "mot de passe", "contrase", "senha", "has", "l\u00f6senord", "losenord"),
    *("\u043f\u0430\u0440\u043e\u043b\u044c", "密", "パスワード", "비밀번호"),
)
_ISSUED = (  # how an issued name starts
    *("api", "access", "secret", "private", "signing", "encryption", "account", "shared", "master", "auth"),
    *("token", "credential"),
)
_LOUD_NAME = r"(?:PASS(?:WORD|WD|PHRASE)?|SECRET|TOKEN|CREDENTIALS?|(?:API|ACCESS|SECRET|PRIVATE|ACCOUNT|AUTH)_?KEY)"
_HEADER_NAME = r"(?<![\w-])(?:x-[\w-]{0,32}?(?:key|token|secret)|(?:api|access|auth|private|secret)-(?:key|token))"
_FLAG = r"(?<![\w-])--[\w-]{0,32}?"
_IS = r"""(?:\\?["'`]\]?)?[ \t]{0,4}(?::=|=>|[:=\uff1a])[ \t]{0,4}(?!=)"""
_KEY_OF_A_LINE = r"""^[ \t]*+(?:- )?["']?[\w.-]{0,40}?"""

_QUOTED = (  # a backslash before the closing mark is not part of it
    r"""\\?["'`](?=[^\s"'`]{4})(\\*+[^\s"'`\\]++(?:\\++[^\s"'`\\]++)*)(?=\\*+(?:["'`]|\Z))"""
)
_PHRASE = (
    r"""\\?(?P<mark>["'`])((?:\w|[^\x00-\x7f])(?:(?!\\?(?P=mark))[^\r\n]){2,128}(?<!\s))\\?(?P=mark)(?=[\s,;)}\]]|\Z)"""
)
_BARE = r"""[^\s"'`,;&|<>(){}\[\]=\\]"""
_LOOSE = r"""[^\s"'`]"""
_LITERAL = (  # not a path, a URL, a variable, an attribute
    r"(?![/.~$%<({\[]|\w{1,16}://|(?:[A-Za-z_]\w{0,64}\.){1,8}[A-Za-z_]\w{0,64}(?![^\s,;)(\[]))"
)
_VALUE = rf"{_LITERAL}({_BARE}{{6,}}+={{0,2}})(?!\(|\[(?!redacted: ))"
_DIGIT = rf"(?={_BARE}{{0,64}}?\d)"
_LETTER = rf"(?={_BARE}{{0,64}}?[A-Za-z])"
_DIGIT_OR_SYMBOL = rf"(?={_BARE}{{0,64}}?(?:\d|[@#$%^*+~!?]{_BARE}))"
_NOT_A_WORD = r"(?=\S{0,64}?(?:\d|[a-z][A-Z]|=|[@#$%^*+]\S))"
_NOT_A_CALL = r"(?![A-Za-z_][\w.]{0,64}\()"
_LAST_IN_LINE = r"[ \t]{0,8}\r?$"
_LAST_WORD = rf"{_LITERAL}({_BARE}{{4,}}+){_LAST_IN_LINE}"
_ENDED = rf"""(?=\\?["']|{_LAST_IN_LINE}|\\[nr])"""
_SET = rf"{_LITERAL}({_BARE}{{4,}}+)(?![,(){{}}\[\]<>=])"  # not an argument of a call
_QUOTED_COOKIE = "|".join(  # a mark elsewhere ends the header
    rf"""(?<==)\\*+{mark}[^\\\r\n{mark}]{{0,1024}}+\\*+{mark}(?=[ \t]{{0,4}}(?:;|\r?$|\\*+["'])|\\[rn])"""
    for mark in ('"', "'")
)
_COOKIE_FLAG = r"(?:-b|--cookie)[ =]"
_IN_A_TAG = r">([^<>\s]{4,256}+)</"
_FLAG_VALUE = (
    rf"(?:[ =]{_QUOTED}|={_LITERAL}({_BARE}{{3,}}+)| {_NOT_A_WORD}{_LITERAL}({_BARE}{{4,}}+)"
    rf"| {_LITERAL}({_BARE}{{4,}}+)(?= -))"
)
_ARGUMENT = rf"""(?:["']((?!\$)[^\r\n"']{{1,1024}}+)["']|{_LITERAL}([^\s"'`|;&<>]{{1,1024}}+))"""

_SCHEME = r"(?:basic|bearer|bot|digest|token|apikey)"
_LISTED = r""",\s{0,40}\\*["']value\\*["'][ \t]?:"""
"""After the name of a header where headers are a list, as in HAR files: `{"name": "Cookie", "value": "…"}`."""
_AUTHORIZATION = rf"""\bauthorization(?:\\*["'])?\]?[ \t]?(?:[:=]|{_LISTED})[ \t]{{0,4}}(?:\\*["'])?"""
_CREDENTIAL = rf"(?:(?:\d++:)?[\w.~+/-]*+[{_STAND_INS}][\w.~+/{_STAND_INS}-]*+={{0,2}}|[\w.~+/=-]{{8,}}+)"
_KEY_LINE = r"(?:\s|\\[nr])*[^\n]{0,12}?[A-Za-z0-9+/=]{16,}+"
_KEY_HEADER = r"(?:\s|\\[nr])*[^\n]{0,12}?(?:Proc-Type|Version|Comment):"
_PEM_KEY = (  # up to its end, or for as long as it looks like one
    rf"-----BEGIN (?:[A-Z0-9]{{1,16}} ){{0,3}}PRIVATE KEY(?: BLOCK)?-----(?={_KEY_LINE}|{_KEY_HEADER})"
    rf"(?:[^-]*+(?:-{{1,4}}+[^-]++)*-----END [A-Z0-9 ]{{0,48}}-----|(?:{_KEY_LINE})+)"
)
_DISCORD_USER = "|".join(rf"(?<=(?<![\w.-])[MNO][\w-]{{{size}}}\.)" for size in range(23, 28))
_SECTION = re.compile(r"^\[[\w .:/-]{1,64}\][ \t]{0,8}\r?$", re.MULTILINE)
_MARKER = "[redacted"
_OWN_MARKER = f"{_MARKER}: key of this gateway]"
_SHORTEST_OWN_LENGTH = 8
"""A shorter one can be part of anything that is said."""


class _Kind:
    """How to recognise one kind of secret. The last captured group is the secret, or else the whole match.

    Each match starts with one of the words, in any case, so the pattern is tried only there; with `anywhere` a match
    only contains one. The text must also contain the pattern `where`. A secret that is `certain` is redacted even if
    it looks like a placeholder.
    """

    def __init__(
        self,
        name: str,
        pattern: str,
        *words: str,
        anywhere: bool = False,
        where: re.Pattern[str] | None = None,
        certain: bool = False,
    ) -> None:
        self.marker = f"{_MARKER}: {name}]"
        self._pattern = pattern
        self.words = words
        self.anywhere = anywhere
        self.where = where
        self.certain = certain

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Compiled on first use: most programs redact little, and there are many."""
        return re.compile(self._pattern, re.ASCII | re.MULTILINE)

    def matches(self, text: str, folded: str, words: Iterable[str]) -> Iterator[re.Match[str]]:
        """Yield each match from left to right; `folded` is the text in lower case, `words` are those it contains."""
        if self.where and not self.where.search(text):
            return
        if self.anywhere:
            yield from self.pattern.finditer(text)
            return
        end = 0
        for start in sorted({index for word in words for index in _occurrences(word, folded)}):
            if start >= end and (found := self.pattern.match(text, start)):
                yield found
                end = found.end()


# Formats that begin with a prefix of their own and go on for 20 or more characters, after published lists of secrets.
_PREFIXES = (
    *("API-", "EAAA", "bedrock-api-key-", "eyJrIjoi", "ico-", "ops_eyJ", "pat.", "s-s4t2", "tk-us-"),
    *("_gitlab_session=", "A3-", "ABSK", "AKCp", "CCIPAT_", "CLOJARS_", "EZAK", "EZTK", "FLWSECK-", "FLWSECK_TEST-"),
    *("HRKU-AA", "LTAI", "NRAK-", "NRJS-", "PMAK-", "cmVmd", "dG9rO", "dp.pt.", "dp.st.", "dp.ct.", "dp.sa."),
    *("dt0c01.", "duffel_live_", "duffel_test_", "figd_", "fio-u-", "fm1r_", "fm2_", "fo1_", "glc_", "glsa_", "jfrt@"),
    *("key_live_", "nvapi-", "oy2", "p8e-", "pat-eu1-", "pat-na1-", "phc_", "phx_", "pnu_", "pscale_oauth_"),
    *("pscale_pw_", "pscale_tkn_", "pul-", "rdme_", "rk_prod_", "rubygems_", "sbp_", "sgp_", "sha256~", "shippo_live_"),
    *("shippo_test_", "sk_prod_", "tfp_", "tvly-", "waka_", "xau_", "xkeysib-", "xsmtpsib-", "rnd_"),
)

# Each of these contains 20 or more letters, digits, `_`, `-`, `+` and `/` in a row: see `_has_long_run`.
_FORMATS = (
    _Kind("private key", _PEM_KEY, "-----begin "),
    _Kind("jwt", r"(?<![\w-])eyJ[\w-]{17,}+(?:\.[\w-]*+){2,4}", "eyj"),
    _Kind(
        "aws key",
        r"(?<![A-Za-z0-9])(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])",
        *("a3t", "akia", "asia", "abia", "acca"),
    ),
    _Kind(
        "aws session token",
        r"""(?i:session_?token)["']?[ \t]{0,8}[:=][ \t]{0,8}["']?([A-Za-z0-9/+]{40,}+={0,2})""",
        *("session_token", "sessiontoken"),
    ),
    _Kind("private key", r"""(?i:key-data)["']?:[ \t]{0,8}["']?([A-Za-z0-9+/]{40,}+={0,2})""", "key-data"),
    _Kind(
        "password hash",
        r"(?<![\w$])\$(?:[1567y]|2[abxy]?|gy|apr1|sha1|scrypt|argon2(?:id?|d)|pbkdf2[a-z0-9-]{0,16})"
        r"\$(?=[^\s:$]{0,64}\$?[./\w=,+$-]{20})[./\w=,+$-]{24,}+",
        *("$1$", "$2", "$5$", "$6$", "$7$", "$y$", "$gy$", "$apr1$", "$sha1$", "$scrypt$", "$argon2", "$pbkdf2"),
    ),
    _Kind(
        "token",
        rf"(?<![\w-])(?:{'|'.join(map(re.escape, _PREFIXES))})(?=[\w.+/=~-]{{0,64}}?\d)[\w.+/=~-]{{20,}}+",
        *map(str.lower, _PREFIXES),
    ),
    _Kind("azure secret", r"(?<![\w~.-])[\w~.]{3}\dQ~[\w~.-]{31,34}(?![\w~.-])", "q~", anywhere=True),
    _Kind("aws secret", r"(?i:secret_?access_?key)\W{1,6}([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])", "secret"),
    _Kind("github token", r"gh[pousr]_\w{36,}+|github_pat_\w{22,}+", "gh", "github_pat_"),
    _Kind("gitlab token", r"gl(?:pat|dt|rt|rtr|cbt|ptt|ft|imt|agent|soat|oas|ffct|wt)-[\w-]{20,}+(?:\.\w++)*", "gl"),
    _Kind("gitlab token", r"GR1348941[\w-]{20,}+", "gr1348941"),
    _Kind("slack token", r"(?:xoxe\.)?xox[abceoprs]-[\w-]{15,}+|xapp-\d-[\w-]{13,}+", "xox", "xapp-"),
    _Kind("slack webhook", r"hooks\.slack\.com/(?:services|workflows|triggers)/([\w/+-]{16,}+)", "hooks.slack.com/"),
    _Kind(
        "discord webhook",
        r"discord(?:app)?\.com/api/webhooks/(\d{15,21}/[\w-]{20,}+)",
        "discord.com/",
        "discordapp.com/",
    ),
    _Kind("discord token", rf"\.(?:{_DISCORD_USER})([\w-]{{6,7}}\.[\w-]{{27,45}})(?![\w-])", "."),
    _Kind("telegram token", r":(?<=\d{8}:)([\w-]{35})(?![\w-])", ":"),
    _Kind("matrix token", r"syt_[A-Za-z0-9+/=-]{1,200}_[A-Za-z]{20}_[A-Za-z0-9]{6}", "syt_"),
    _Kind("meta token", r"(?<![A-Za-z0-9+/])EAA[A-Za-z0-9]{100,}+", "eaa"),
    *(_Kind(f"{each.name} key", each.key_form, each.key_prefix.lower()) for each in KEYED_PROVIDERS),
    _Kind("perplexity key", r"pplx-[A-Za-z0-9]{40,}+", "pplx-"),
    _Kind("replicate token", r"r8_[A-Za-z0-9]{37,}+", "r8_"),
    _Kind("hugging face token", r"(?:hf|api_org)_[A-Za-z0-9]{30,}+", "hf_", "api_org_"),
    _Kind("google key", r"GOCSPX-[\w-]{20,}+", "gocspx-"),
    _Kind("google token", r"ya29\.[\w-]{20,}+|(?<![\w/])1//0[\w-]{30,}+", "ya29.", "1//0"),
    _Kind("stripe key", r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}+|whsec_[A-Za-z0-9+/=]{24,}+", "sk_", "rk_", "whsec_"),
    _Kind("square token", r"sq0[a-z]{3}-[\w-]{22,}+", "sq0"),
    _Kind("airtable token", r"(?<!\w)pat\w{14}\.[0-9a-f]{64}", "pat"),
    _Kind("cloudflare key", r"(?<!\w)v1\.0-[0-9a-f]{24}-[0-9a-f]{146}", "v1.0-"),
    _Kind("terraform token", r"\.atlasv1\.([\w=-]{60,}+)", ".atlasv1."),
    _Kind("meta token", r"(?<!\w)\d{15,16}\|([\w-]{27})(?![\w-])", "|", anywhere=True),
    _Kind("teams webhook", r"webhook\.office\.com/webhookb2/([\w@/-]{36,}+)", "webhook.office.com/"),
    _Kind("twilio key", r"(?<![A-Za-z0-9])SK[0-9a-fA-F]{32}(?![A-Za-z0-9])", "sk"),
    _Kind("sendgrid key", r"SG\.(?:[\w-]{16,32}\.[\w-]{32,64}|[\w=.-]{66})", "sg."),
    _Kind("mailgun key", r"(?<![\w-])key-[0-9a-f]{32}(?![A-Za-z0-9])", "key-"),
    _Kind("mailchimp key", r"(?<![A-Za-z0-9])[0-9a-f]{32}-us\d{1,2}(?![A-Za-z0-9])", "-us", anywhere=True),
    _Kind("npm token", r"npm_[A-Za-z0-9]{36,}+", "npm_"),
    _Kind("pypi token", r"pypi-[\w-]{50,}+", "pypi-"),
    _Kind("docker token", r"dckr_[a-z]{3}_[\w-]{20,}+", "dckr_"),
    _Kind("digitalocean token", r"do[opr]_v1_[0-9a-f]{64}", "doo_v1_", "dop_v1_", "dor_v1_"),
    _Kind("databricks token", r"(?<![A-Za-z0-9])dapi[0-9a-f]{32}(?:-\d)?", "dapi"),
    _Kind("shopify token", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32,}+", "shp"),
    _Kind("atlassian token", r"ATATT3[\w=-]{60,}+", "atatt3"),
    _Kind("linear key", r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}+", "lin_"),
    _Kind("notion token", r"ntn_[A-Za-z0-9]{40,}+", "ntn_"),
    _Kind("sentry token", r"sntry[su]_[\w+/=-]{40,}+", "sntry"),
    _Kind("tailscale key", r"tskey-[a-z]{2,12}-[\w-]{16,}+", "tskey-"),
    _Kind("vault token", r"(?<![\w.])hv[sbr]\.[\w-]{24,}+", "hv"),
    _Kind("palaver token", r"(?<![\w-])palr?_[\w-]{40,}+", "pal_", "palr_"),
    _Kind("age key", r"AGE-SECRET-KEY-1[A-Z0-9]{58}", "age-secret-key-1"),
)

# Each of these contains a separator between name and value: see `_has_assignment`.
_NAMED = (
    _Kind("url password", r"""://[^\s/:@"'<>]{0,256}:([^\s/"'<>]{1,256})@""", "://"),
    _Kind(
        "url parameter",
        rf"""(?i:[?&][\w-]{{0,32}}(?:{_TYPED_NAME}|{_ISSUED_NAME}|sig|signature))=([^\s&#"'<>\[]{{8,}}+)""",
        *("?", "&"),
    ),
    _Kind(
        "cookie",
        rf"""(?i:\bcookie(?:\\*["'])?(?::|{_LISTED}))[ \t]{{0,4}}(?:\\*["'])?"""
        rf"""([^\s=;"'\[]{{1,128}}=(?:{_QUOTED_COOKIE}|[^\r\n"'\\]++|\\++(?!["']))+)""",
        "cookie",
        certain=True,
    ),
    _Kind(
        "cookie",
        rf"""curl\b(?:(?!\s{_COOKIE_FLAG})[^\n|&]){{0,400}}\s{_COOKIE_FLAG}(?:(?P<mark>["'])"""
        r"""([^\s=;"']{1,128}=(?:(?!(?P=mark))[^\r\n]){1,4096})(?P=mark)|([^\s=;"'|&<>]{1,128}=[^\s"'|;&<>]{1,4096}+))""",
        "curl",
        certain=True,
    ),
    _Kind(
        "authorization",
        rf"(?i:\b(?:bearer|{_AUTHORIZATION}{_SCHEME}))[ \t]{{1,4}}{_NOT_A_CALL}{_NOT_A_WORD}({_CREDENTIAL})",
        *("bearer", "authorization"),
    ),
    _Kind("authorization", rf"(?i:{_AUTHORIZATION}(?:{_SCHEME}[ \t]{{1,4}})?)({_CREDENTIAL}){_ENDED}", "authorization"),
    _Kind(
        "secret",
        rf"""(?i:{_HEADER_NAME})(?:\\*["'])?(?::|{_LISTED})[ \t]{{0,4}}(?:\\*["'])?{_LITERAL}({_CREDENTIAL}){_ENDED}""",
        *("x-", "api-", "access-", "auth-", "private-", "secret-"),
    ),
    _Kind(
        "password",
        r"""(?<!\S)(?:-u|--user)[ =](?P<mark>["'])(?P<user>[^\s:"']{1,128}):(?!\d+["']|(?P=user)["'])"""
        r"""(?!(?:\w*(?:pass|password|passwd|pwd|secret|token|key)|[$<{%*.][^"'\r\n]*)(?P=mark))"""
        r"""((?:(?!(?P=mark))[^\r\n]){1,256})(?P=mark)""",
        *("-u", "--user"),
        certain=True,
    ),
    _Kind(
        "password",
        rf"""(?<!\S)(?:-u|--user)[ =]["']?(?P<user>[^\s:"']{{1,128}}):(?!\d+(?![^\s"'])|(?P=user)\b)"""
        rf"({_LOOSE}{{1,256}})",
        *("-u", "--user"),
    ),
    _Kind(
        "password",
        rf"(?:mysql|mariadb)(?:(?!\s-p\S)[^\n|;&]){{0,200}}\s-p{_ARGUMENT}",
        "mysql",
        "mariadb",
        certain=True,
    ),
    _Kind("password", rf"sshpass[ \t]{{1,4}}-p[ \t]{{0,4}}{_ARGUMENT}", "sshpass", certain=True),
    _Kind(
        "password",
        rf"(?:machine\s{{1,16}}\S{{1,128}}|default)(?:\s{{1,16}}(?:login|account)\s{{1,16}}\S{{1,128}}){{1,2}}"
        rf"\s{{1,16}}password\s{{1,16}}{_LITERAL}({_LOOSE}{{1,256}}+)",
        *("machine", "default"),
        certain=True,
    ),
    _Kind("password", rf"(?i:{_FLAG}{_TYPED_NAME}){_FLAG_VALUE}", "--"),
    _Kind("secret", rf"(?i:{_FLAG}{_ISSUED_NAME}){_FLAG_VALUE}", "--"),
    _Kind(
        "password",
        rf"(?i:{_TYPED_NAME})(?:{_IS}(?:{_QUOTED}|{_PHRASE}|{_DIGIT_OR_SYMBOL}{_VALUE})|={_SET}|{_IN_A_TAG})",
        *_TYPED,
    ),
    _Kind(
        "secret",
        rf"(?i:{_ISSUED_NAME})(?:{_IS}(?:{_QUOTED}|{_DIGIT}{_LETTER}{_VALUE})|=(?=\S{{8}}){_SET}|{_IN_A_TAG})",
        *_ISSUED,
    ),
    _Kind("secret", rf"(?<![a-z]){_LOUD_NAME}={_LITERAL}({_LOOSE}{{6,}}+)", "pass", *_ISSUED),
    _Kind("password", rf"{_KEY_OF_A_LINE}(?i:{_TYPED_NAME})[\"']?:[ \t]{{1,8}}{_LAST_WORD}", *_TYPED, anywhere=True),
    _Kind(
        "secret",
        rf"{_KEY_OF_A_LINE}(?i:{_TYPED_NAME}|{_ISSUED_NAME}(?=[ \t=]{{1,17}}\S{{8}}))"
        rf"[ \t]{{0,8}}=[ \t]{{0,8}}{_LAST_WORD}",
        *(*_TYPED, *_ISSUED),
        anywhere=True,
        where=_SECTION,
    ),
)

_PLACEHOLDER = re.compile(
    r"""
      \[redacted:.* | \$\w+ | \$[{(].* | \{[^{}]*\} | <[^<>]*> | %\w*%? | @\w+@ | (?-i:[A-Z]+(?:_[A-Z]+)+)
    | x+ | \*+ | \.+ | …+ | •+ | -+ | _+ | \?+ | .*xxxx+.* | .*\.\.\.
    | (?:your|example|insert|replace|enter)[\W_].* | change[-_]?me | placeholder | redacted | hidden | masked
    | (?:my|your|user|db|access|auth|new|old)?[-_]?(?:pass(?:word|wd|phrase)?|pwd|(?:api)?[-_]?key|token|secret)
    | [a-z]+_(?:password|token|key) | (?-i:[a-z]+(?:[A-Z][a-z]+)*(?:Password|Passwd|Pwd|Key|Token|Secret|Hash))
    | str(?:ing)? | secret_?str | bytes | text | char | varchar | int(?:eger)? | number | bool(?:ean)? | any | object
    | none | null | nil | true | false | undefined | unset | required | optional | missing | needed | prompt | todo
    | (?:invalid|incorrect|wrong|valid|expired|changed|updated|forgotten|denied|accepted|rejected|enabled|disabled)[.!]?
    | falsch\w* | ungültig\w* | erforderlich | vergessen | siehe
    | bearer | basic | digest | authenticat\w+ | include | omit | same-origin
    | (?=.*\s)[^=]*\b(?:pass\w*|token|your|please|enter|must|should|cannot|can't|is|are|too|forgot\w*|required)\b[^=]*
    """,
    re.IGNORECASE | re.VERBOSE,
)


_secrets_of: dict[object, frozenset[str]] = {}
_own: list[str] = []
"""Longest first, so that one that contains another goes whole."""


def know_secrets(holder: object, secrets: Iterable[str]) -> None:
    """Redact these exactly, in addition to those known before, until the holder forgets them."""
    forms = {
        form
        for secret in map(str.strip, secrets)
        if len(secret) >= _SHORTEST_OWN_LENGTH and secret not in _OWN_MARKER and not _is_placeholder(secret)
        for form in (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], quote(secret, ""))
    }
    _secrets_of[holder] = _secrets_of.get(holder, frozenset()) | forms
    _sort_own()


def forget_secrets(holder: object) -> None:
    _secrets_of.pop(holder, None)
    _sort_own()


def _sort_own() -> None:
    _own[:] = sorted({secret for each in _secrets_of.values() for secret in each}, key=len, reverse=True)


def _is_placeholder(secret: str) -> bool:
    return " " not in secret and _PLACEHOLDER.fullmatch(secret) is not None


def redact_own(text: str) -> str:
    """Replace only the keys of the gateway itself."""
    for secret in _own:
        if secret in text:
            text = text.replace(secret, _OWN_MARKER)
    return text


def redact(text: str) -> str:
    """Replace every recognised secret with a marker such as `[redacted: aws key]`.

    Until the end a secret that was found stands as one character, so that a larger secret around it is still
    recognised, and goes whole.
    """
    text = redact_own(text)
    stands_for = _free_characters(text) if _MARKER in text else {}
    for marker, character in stands_for.items():
        text = text.replace(marker, character)
    has_format, has_name = "$" in text or _has_long_run(text), _has_assignment(text)
    stands_for = stands_for or (_free_characters(text) if has_format or has_name else {})
    if has_format:
        text = _redact_kinds(_FORMATS, text, stands_for)
    if has_name:
        text = _redact_kinds(_NAMED, text, stands_for)
    return text.translate({ord(character): marker for marker, character in stands_for.items()}) if stands_for else text


def _free_characters(text: str) -> dict[str, str]:
    """Return a character that the text does not contain for each marker."""
    markers = dict.fromkeys((_OWN_MARKER, *(kind.marker for kind in (*_FORMATS, *_NAMED))))
    used = () if text.isascii() else {each for each in text if each >= chr(_FIRST_PRIVATE)}
    free = (chr(code) for code in range(_FIRST_PRIVATE, _LAST_PRIVATE) if chr(code) not in used)
    return dict(zip(markers, free, strict=False))


_LONG_RUN = b"a" * 20
_RUNS = bytes(ord("a" if re.match(rb"[\w+/-]", bytes([byte])) else " ") for byte in range(256))


def _has_long_run(text: str) -> bool:
    return text.encode("utf-8", "surrogatepass").translate(_RUNS).find(_LONG_RUN) >= 0


_NAME_ENDS = (
    *("word", "sswd", "rase", "code", "pass", "pwd", "key", "oken", "cret", "tial", "ials", "okie", "zation", "sig"),
    *("alue", "ture", "wort", "oord", "asse", "seña", "sena", "enha", "asło", "aslo", "nord"),
    *("оль", "码", "碼", "ワード", "번호"),
)
_GAPS = ("", r"""["'`\s]""")
_WIDE_GAPS = (r"""["'`\\\s]["'`\]\s]""", r"""["'`]\]\s""")
_AFTER_A_NAME = "|".join(
    f"(?<={before}.)" for before in (*(end + gap for gap in _GAPS for end in _NAME_ENDS), *_WIDE_GAPS)
)
_ASSIGNMENTS = tuple(  # Each pattern begins with a fixed character, which is found quickly.
    (separator, re.compile(pattern))
    for separator, pattern in (
        (":", rf":(?:(?i:{_AFTER_A_NAME})|//[^\s/]{{1,513}}@)"),
        ("\uff1a", rf"\uff1a(?i:{_AFTER_A_NAME})"),
        ("=", rf"=(?i:{_AFTER_A_NAME})"),
        (">", rf">(?i:{_AFTER_A_NAME})"),
        ("-", r"-(?<![\w-]-)(?:-[A-Za-z]|[bpu])"),
    )
)


def _has_assignment(text: str) -> bool:
    """Return whether a value can follow a name somewhere in the text."""
    for separator, pattern in _ASSIGNMENTS:
        if separator in text and pattern.search(text):
            return True
    return "earer" in text or "login" in text


def _redact_kinds(kinds: Iterable[_Kind], text: str, stands_for: Mapping[str, str]) -> str:
    folded = _lower(text)
    for kind in kinds:
        words = [word for word in kind.words if word in folded]
        if words and (found := tuple(kind.matches(text, folded, words))):
            text = _replace_secrets(text, found, kind, stands_for)
            folded = _lower(text)
    return text


def _lower(text: str) -> str:
    """Lower the case without changing the length: the lower case of U+0130 has two characters."""
    return text.replace("\u0130", "i").lower()


def _occurrences(word: str, folded: str) -> Iterator[int]:
    index = folded.find(word)
    while index >= 0:
        yield index
        index = folded.find(word, index + 1)


def _replace_secrets(text: str, found: Iterable[re.Match[str]], kind: _Kind, stands_for: Mapping[str, str]) -> str:
    known = frozenset(stands_for.values())
    pieces: list[str] = []
    end = 0
    for match in found:
        start, stop = match.span(match.lastindex or 0)
        is_done = text[start:stop] in known  # an earlier kind's
        if not is_done and (kind.certain or not _PLACEHOLDER.fullmatch(text, start, stop)):
            pieces += (text[end:start], stands_for[kind.marker])
            end = stop
    return "".join((*pieces, text[end:]))


# Keys of model providers in messages

_MAX_WORDS_AROUND = 200
"""A message with more characters besides its key is about something else."""
_MAX_LINES = 6
_MAX_AROUND_A_PART = 40
_VARIABLES = {variable: each.name for each in PROVIDERS.values() for variable in each.key_variables}
_KEY_PREFIXES = tuple(sorted({each.key_prefix for each in KEYED_PROVIDERS}))


class Pasted(Enum):
    """What a message with a key brings."""

    KEY = "one key, with few words around it"
    SEVERAL = "several keys"
    PART = "a part of a key"
    INSIDE = "a key inside a longer text"


@value
class PastedKey:
    kind: Pasted
    provider: str
    """The name of the provider in the table; of the first one, if there are several keys."""
    rest: str
    """The message with a marker for each key."""
    key: str = ""
    """Only if it is to be used."""

    def __repr__(self) -> str:
        return f"PastedKey({self.kind}, {self.provider})"


@value(kw_only=False)
class _Found:
    start: int
    end: int
    provider: str


def find_pasted_key(text: str) -> PastedKey | None:
    """Recognise the keys in a message by their form, or by the name of a variable before them."""
    if not any(each in text for each in (*_KEY_PREFIXES, "_API_KEY")):
        return None
    found = list(_find(text))
    rest = _masked(text, found)
    if not found:
        part = _part().search(text)
        is_alone = part is not None and len(text) - len(part[0]) <= _MAX_AROUND_A_PART
        return PastedKey(kind=Pasted.PART, provider=_provider_of(part[0]), rest=text) if part and is_alone else None
    keys = {text[each.start : each.end] for each in found}
    around = len(text) - sum(each.end - each.start for each in found)
    kind = Pasted.KEY if len(keys) == 1 else Pasted.SEVERAL
    if around > _MAX_WORDS_AROUND or text.strip().count("\n") >= _MAX_LINES:
        kind = Pasted.INSIDE
    key = keys.pop() if kind is Pasted.KEY else ""
    return PastedKey(kind=kind, provider=found[0].provider, rest=rest, key=key)


def mask_keys(text: str) -> str:
    """Return a message with a marker for each key of a model provider."""
    found = find_pasted_key(text)
    return found.rest if found else text


def hide_keys(text: str) -> str:
    """Return a text of the same length, with a dot for each character of a key."""
    found = find_pasted_key(text)
    if found is None or found.rest == text:
        return text
    for each in list(_find(text)):
        text = text[: each.start] + "•" * (each.end - each.start) + text[each.end :]
    return text


@cache
def browser_pattern() -> str:
    """Return a pattern for what can be a key or a part of one, in JavaScript's words too."""
    starts, names = "|".join(map(re.escape, _KEY_PREFIXES)), "|".join(_VARIABLES)
    return rf"(?:{starts})[\w\-]{{8,}}|(?:{names})[ \t]*[=:][ \t]*[\"'`]?[\w\-]{{8,}}"


def _find(text: str) -> Iterator[_Found]:
    """Yield keys from left to right. The name of a variable says better whose key it is than its form."""
    end = 0
    for match in _keys().finditer(text):
        named = match["variable"]
        place = "value" if named else next(each.name for each in KEYED_PROVIDERS if match[each.name])
        start, stop = match.span(place)
        if start >= end:
            yield _Found(start, stop, _VARIABLES[named] if named else place)
            end = stop


@cache
def _keys() -> re.Pattern[str]:
    assigned = rf"(?P<variable>{'|'.join(_VARIABLES)})[ \t]{{0,4}}[=:][ \t]{{0,4}}[\"'`]?(?P<value>[\w-]{{20,256}}+)"
    forms = "|".join(f"(?P<{each.name}>{each.key_form})" for each in KEYED_PROVIDERS)
    return re.compile(f"{assigned}|{forms}", re.ASCII)


@cache
def _part() -> re.Pattern[str]:
    """Match how a key begins and goes on, with digits, as no word does."""
    starts = "|".join(map(re.escape, sorted(_KEY_PREFIXES, key=len, reverse=True)))
    return re.compile(rf"(?<![\w-])(?:{starts})(?=(?:[A-Za-z_-]{{0,64}}\d){{2}})[\w-]{{6,}}+", re.ASCII)


def _provider_of(part: str) -> str:
    return next((each.name for each in KEYED_PROVIDERS[::-1] if part.startswith(each.key_prefix)), "")


def _masked(text: str, found: list[_Found]) -> str:
    pieces, end = list[str](), 0
    for each in found:
        pieces += text[end : each.start], f"[redacted: {each.provider} key]"
        end = each.end
    return "".join((*pieces, text[end:]))


def without_keys(message: Inbound) -> Inbound:
    """Return a message with a marker for each key, also in what it quotes and in the instructions of its client."""
    text, instructions, quote = mask_keys(message.text), mask_keys(message.instructions), message.quote
    if quote is not None:
        quote = replace(quote, text=mask_keys(quote.text))
    if (text, instructions, quote) == (message.text, message.instructions, message.quote):
        return message
    return replace(message, text=text, instructions=instructions, quote=quote)
