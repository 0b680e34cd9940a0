import base64
import json
import string
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaver.model.redact import (
    _PREFIXES,  # pyright: ignore[reportPrivateUsage]
    forget_secrets,
    know_secrets,
    redact,
)

ALNUM = "".join(sorted(set(string.ascii_letters + string.digits) - {"x", "X"}))
HEX = "0123456789abcdef"


def chars(size: int, alphabet: str = ALNUM) -> st.SearchStrategy[str]:
    return st.text(alphabet=alphabet, min_size=size, max_size=size)


def made(*parts: str | st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """A secret put together from parts, so that no file of ours holds one."""
    return st.tuples(*(st.just(part) if isinstance(part, str) else part for part in parts)).map("".join)


TOKENS = {
    "aws key": st.one_of(made("AK", "IA", chars(16, string.ascii_uppercase)), made("AS", "IA", chars(16, "ABC234"))),
    "github token": st.one_of(
        made(st.sampled_from(["ghp", "gho", "ghu", "ghs", "ghr"]), "_", chars(36)),
        made("github", "_pat_", chars(22), "_", chars(59)),
    ),
    "gitlab token": st.one_of(
        made(st.sampled_from(["glpat", "gldt", "glrt", "glcbt", "glptt", "glsoat"]), "-", chars(20)),
        made("glp", "at-", chars(27), ".0", chars(8, HEX)),
    ),
    "slack token": st.one_of(
        made("xo", st.sampled_from(["xb", "xp", "xa", "xs", "xr"]), "-", chars(12, string.digits), "-", chars(24)),
        made("xa", "pp-1-", chars(11), "-", chars(30)),
    ),
    "slack webhook": made("hooks.slack", ".com/services/T", chars(8), "/B", chars(8), "/", chars(24)),
    "discord webhook": made("discord", ".com/api/webhooks/", chars(18, string.digits), "/", chars(68)),
    "discord token": made("M", chars(23), ".", chars(6), ".", chars(38)),
    "telegram token": made(chars(10, "123456789"), ":AA", chars(33)),
    "matrix token": made("syt", "_", chars(12), "_", chars(20, string.ascii_letters), "_", chars(6)),
    "meta token": made("EA", "AB", chars(150)),
    "anthropic key": made("sk-", "ant-api03-", chars(93), "AA"),
    "openrouter key": made("sk-", "or-v1-", chars(64, HEX)),
    "openai key": st.one_of(made("sk-", "proj-7", chars(60)), made("sk-", "4", chars(47))),
    "groq key": made("gs", "k_", chars(52)),
    "xai key": made("xa", "i-", chars(80)),
    "perplexity key": made("pp", "lx-", chars(48)),
    "replicate token": made("r", "8_", chars(37)),
    "hugging face token": made("h", "f_", chars(34, string.ascii_letters)),
    "google key": st.one_of(made("AI", "za", chars(35)), made("GOC", "SPX-", chars(28))),
    "google token": st.one_of(made("ya", "29.", chars(60)), made("1/", "/0", chars(40))),
    "stripe key": made(st.sampled_from(["sk", "rk"]), "_", st.sampled_from(["live", "test"]), "_", chars(24)),
    "square token": made("sq0", "atp-", chars(22)),
    "twilio key": made("S", "K", chars(32, HEX)),
    "sendgrid key": made("S", "G.", chars(22), ".", chars(43)),
    "mailgun key": made("key", "-", chars(32, HEX)),
    "mailchimp key": made(chars(32, HEX), "-us", "12"),
    "npm token": made("np", "m_", chars(36)),
    "pypi token": made("py", "pi-AgEI", chars(80)),
    "docker token": made("dckr", "_pat_", chars(27)),
    "digitalocean token": made("do", st.sampled_from("opr"), "_v1_", chars(64, HEX)),
    "databricks token": made("da", "pi", chars(32, HEX)),
    "shopify token": made("shp", "at_", chars(32, HEX)),
    "atlassian token": made("AT", "ATT3", chars(186)),
    "linear key": made("lin", "_api_", chars(40)),
    "notion token": made("nt", "n_", chars(46)),
    "sentry token": made("snt", "rys_", chars(80)),
    "tailscale key": made("ts", "key-auth-", chars(17), "-", chars(32)),
    "vault token": made("hv", "s.", chars(24)),
    "palaver token": made("pal_", chars(43)),
    "age key": made("AGE-SECRET", "-KEY-1", chars(58, string.ascii_uppercase + string.digits)),
    "airtable token": made("pa", "t", chars(14), ".", chars(64, HEX)),
    "cloudflare key": made("v1.0", "-", chars(24, HEX), "-", chars(146, HEX)),
    "terraform token": made(chars(14), ".atlas", "v1.", chars(67)),
    "teams webhook": made("webhook.office", ".com/webhookb2/", chars(36), "@", chars(36)),
    "azure secret": made(chars(3), "8Q~", chars(34)),
    "password hash": st.one_of(
        made("$6$", chars(8), "$", chars(86, ALNUM + "./")),
        made("$2b$", "12$", chars(53, ALNUM + "./")),
        made("$y$j9T$", chars(22), "$", chars(43, ALNUM + "./")),
        made("$1$", chars(8), "$", chars(22, ALNUM + "./")),
        made("$argon2id$v=19$m=65536,t=3,p=4$", chars(22), "$", chars(43, ALNUM + "+/")),
    ),
    "token": made(st.sampled_from(_PREFIXES), "7", chars(24)),
    "jwt": made("ey", "J", chars(20), ".ey", "J", chars(40), ".", chars(43)),
}
SHAPED = made(chars(5, string.ascii_letters), chars(3, string.digits), chars(8))
LETTERS = chars(10, "bcdfghjk")
FEW = chars(5, "bcdfghjk")
ASSIGNED = {
    "Password: {}": SHAPED,
    '"password": "{}"': LETTERS,
    r"{{\"password\": \"{}\"}}": LETTERS,
    "my api key: {}": SHAPED,
    '"api_key": "{}"': LETTERS,
    "export FOO_TOKEN={}": LETTERS,
    "DB_PASSWORD={}(!)": LETTERS,
    "client_secret = {}": SHAPED,
    "clientSecret: '{}'": LETTERS,
    'os.environ["API_TOKEN"] = "{}"': LETTERS,
    "X-Api-Key: {}": SHAPED,
    "tool --auth-token={}": LETTERS,
    "tool --token '{}'": LETTERS,
    "postgres://joe:{}@db.example.com/x": LETTERS,
    "redis://:{}@localhost:6379": LETTERS,
    "https://example.com/a?access_token={}&b=1": LETTERS,
    "Authorization: Basic {}==": SHAPED,
    "Cookie: session={}; theme=dark": LETTERS,
    "set-cookie: sid={}; HttpOnly": LETTERS,
    "curl -s -u joe:{} https://example.com": LETTERS,
    "aws_secret_access_key = {}": chars(40, ALNUM + "/+"),
    "AccountKey={}==;EndpointSuffix=core": SHAPED,
    "SecretAccessKey  {}": chars(40, "bcdfghjk/+"),
    "Authorization: Bearer {}": LETTERS,
    "authorization: basic {}": LETTERS,
    "Authorization: {}": LETTERS,
    "curl -H 'Authorization: Token {}' https://example.com": LETTERS,
    'headers["Authorization"] = "Bearer {}"': LETTERS,
    "use Bearer {}": SHAPED,
    "x-api-key: {}": LETTERS,
    "PRIVATE-TOKEN: {}": LETTERS,
    "curl -H 'X-Auth-Token: {}' https://example.com": LETTERS,
    "Cookie: session={}": LETTERS,
    "password={}": FEW,
    "host=db password={} dbname=x": LETTERS,
    "Server=db;Password={};Database=x": LETTERS,
    "DB_PASS={}": FEW,
    "PGPASSWORD={} psql": FEW,
    "db.password={}": FEW,
    "api_key={}": LETTERS,
    "[client]\nuser = joe\npassword = {}": FEW,
    "[default]\r\ntoken = {}\r": LETTERS,
    "db:\n  user: joe\n  password: {}": FEW,
    '"password": "one {} three"': FEW,
    "passphrase: 'one {} three'": FEW,
    r"{{\"password\": \"one {} three\", \"a\": 1}}": FEW,
    "<password>{}</password>": FEW,
    "mysql -u root -p{} db": FEW,
    "mysqldump -uroot -p'{} x' db": FEW,
    "mysql --password={} db": FEW,
    "tool --password {} --force": FEW,
    "sshpass -p {} ssh joe@example.com": FEW,
    "sshpass -p '{}' ssh joe@example.com": FEW,
    "machine example.com login joe password {}": FEW,
    "machine example.com\n  login joe\n  account x\n  password {}\n": FEW,
    "default login joe password {}": FEW,
    "https://joe:{}@example.com/x": FEW,
    '{{"api_key":"{}"}}': FEW,
    "aws_session_token = {}==": chars(160, ALNUM + "/+"),
    "[default]\naws_session_token={}": chars(160, "bcdfghjk/+"),
    '"SessionToken": "{}="': chars(160, ALNUM + "/+"),
    "users:\n- user:\n    client-key-data: {}==": chars(200),
    "root:$6$rounds=5000$salt$" + "{}:19000:0:99999:7:::": chars(86, ALNUM + "./"),
    "Passwort: {}": FEW,
    "  Kennwort = {}": SHAPED,
    "mot de passe : {}": SHAPED,
    "Contraseña: {}": FEW,
    "senha={}": FEW,
    "Wachtwoord: {}": FEW,
    "hasło: {}": FEW,
    "Lösenord: {}": FEW,
    "Пароль: {}": FEW,
    "密码：{}": SHAPED,
    "パスワード: {}": FEW,
    "비밀번호: {}": FEW,
}
SURROUNDINGS = st.text(alphabet=" \n\t.,;:()<>\"'é漢a0", max_size=20)


@pytest.mark.parametrize("kind", TOKENS)
@settings(max_examples=15, deadline=None)
@given(st.data())
def test_a_planted_token_never_survives(kind: str, data: st.DataObject) -> None:
    secret, before, after = data.draw(TOKENS[kind]), data.draw(SURROUNDINGS), data.draw(SURROUNDINGS)
    redacted = redact(f"{before} {secret} {after}")
    assert secret not in redacted
    assert f"[redacted: {kind}]" in redacted
    assert redact(redacted) == redacted


@pytest.mark.parametrize("form", ASSIGNED)
@settings(max_examples=15, deadline=None)
@given(st.data())
def test_a_named_secret_never_survives(form: str, data: st.DataObject) -> None:
    secret, before, after = data.draw(ASSIGNED[form]), data.draw(SURROUNDINGS), data.draw(SURROUNDINGS)
    redacted = redact(f"{before}\n{form.format(secret)}\n{after}")
    assert secret not in redacted
    assert redact(redacted) == redacted


ORDINARY = [
    "the password: see the wiki",
    "Your password must contain 8 characters.",
    "password = get_password()",
    "token: str",
    "token: str | None = None",
    "def f(token: Optional[str] = None, password=None): ...",
    "self.token = token",
    'api_key=os.environ["OPENAI_API_KEY"]',
    "api_key = config.api_key",
    "login(password=password, token=access_token)",
    "token = tokens[0]",
    "password: <your key>",
    "export TOKEN=${TOKEN}",
    "export GITHUB_TOKEN=$GITHUB_TOKEN",
    "PASSWORD=***",
    'password: "********"',
    'api_key: "xxxxxxxxxxxx"',
    '"api_key": "YOUR_API_KEY"',
    "commit 3f2a9c4d5e6f708192a3b4c5d6e7f8091a2b3c4d",
    "550e8400-e29b-41d4-a716-446655440000",
    "max_tokens=4096, completion_tokens: 12345678",
    "token_count = 1234567",
    "PWD=/srv/user1/project",
    'if token == "abcdef": pass',
    "PASS: tests/test_foo1.py",
    "use --password to set it; the --token flag",
    "--password <password>",
    "http://localhost:8080/path@foo",
    "postgres://user:password@localhost/db",
    "Authorization: Bearer <token>",
    "Authorization: Bearer $TOKEN",
    "Bearer Authentication is used",
    "Bearer getToken()",
    "secretary: Jane",
    "the secret: never give up",
    "Cookie: a small sweet thing",
    "task-abcdefghijklmnopqrstuvwxyz0123456789",
    "risk-1234567890-abcdefghijklmnop",
    "access token: https://example.com/docs/a1",
    "docker run -u 1000:1000 -u node:node x",
    "password_file=/run/secrets/pw1",
    "password1 and password2 differ",
    '"password": "string"',
    "token: 4096",
    "mailto:joe@example.com",
    "the token = sum of 12 values",
    "Error: invalid token: unexpected '}' at line 12",
    "SyntaxError: Unexpected token: punc (12)",
    "private key: ~/.ssh/id_ed25519",
    "secret: my-secret (kubernetes)",
    'password = input("Password: ")',
    "const token = await getToken2();",
    'token = f"{a1}"',
    "the password is needed to log in",
    "my password was changed",
    "token count: 512",
    "pass: the test passed",
    "secret = ?",
    "Password: incorrect",
    "password: wrong!",
    "password: required",
    "token: expired",
    "api key: missing",
    "Authorization: required",
    "Authorization: Bearer authentication",
    "Authorization: Bearer authentication is used",
    "Basic authorization: sent with each request",
    "auth-token: required",
    "x-powered-by: Express",
    "mysql -p",
    "mysql -u root -p mydb",
    "mysql -p$PASS and sshpass -p $PASS and sshpass -p '$PASS'",
    "login and password are needed",
    "machine learning needs no password here",
    "create_user(name=name, password=hashed)",
    "create_user(\n    password=hashed,\n)",
    "password = hashed",
    "user.password = hashed",
    "password=args.value",
    "password=os.environ['X']",
    "  password: string;",
    "  password: SecretStr",
    "  password: hashedPassword",
    "  password: hashed,",
    "token=refresh_token",
    '"password": "Enter your password"',
    '"password": "is too short"',
    'print("Password: ", value, "and more")',
    '"Password: " + value + " and more"',
    '<label for="password">Password</label>',
    '<input type="password" name="password">',
    "PASS=4 FAIL=1",
    "[limits]\nmax_token = 5000",
    "credentials: 'include'",
    '"token_type": "bearer"',
    "use --password or --token - both work",
    "git push -u origin main",
    "bearer bonds were common",
    "Passwort: falsch",
    "Das Passwort: siehe Wiki",
    "Mein Passwort ist lang.",
    "echo $1 $2 and $6$7",
    "rubygems_are_kept_in_a_folder and figd_export_of_all_names",
    "the senhas and contraseñas of others",
]


@pytest.mark.parametrize("line", ORDINARY)
def test_ordinary_text_stays(line: str) -> None:
    assert redact(line) == line
    assert redact(f"{line}\n{line}") == f"{line}\n{line}"


NOUNS = ["password", "token", "secret", "api", "key", "keys", "cookie", "Bearer", "credentials?", "login,", "(auth)"]
OTHERS = ["the", "your", "is", "for", "see", "wiki", "it:", "=", "-", "`ls`", "getToken()", "None", "42", "v2", "a.b"]
WORDS = st.sampled_from([*NOUNS, *OTHERS, "https://example.com/a?b=c"])


@settings(deadline=None)
@given(st.lists(WORDS).map(" ".join))
def test_prose_about_secrets_stays(text: str) -> None:
    assert redact(text) == text


@given(st.binary(min_size=200, max_size=2000), st.uuids(), chars(40, HEX))
def test_images_ids_and_hashes_stay(image: bytes, uuid: object, commit: str) -> None:
    text = f"![](data:image/png;base64,{base64.b64encode(image).decode()}) {uuid} {commit}"
    assert redact(text) == text


PEM = "-----BEGIN {0}PRIVATE KEY-----\n{1}-----END {0}PRIVATE KEY-----"


@pytest.mark.parametrize("kind", ["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "])
@pytest.mark.parametrize("margin", ["", "  ", "+", "   12\t", "> "])
@settings(max_examples=15, deadline=None)
@given(st.lists(chars(64), min_size=1, max_size=5))
def test_a_private_key_never_survives(kind: str, margin: str, lines: list[str]) -> None:
    key = PEM.format(kind, "".join(f"{margin}{line}\n" for line in lines))
    assert redact(f"a\n{key}\nb") == "a\n[redacted: private key]\nb"


@given(st.lists(chars(64), min_size=1, max_size=5))
def test_a_private_key_without_its_end_never_survives(lines: list[str]) -> None:
    key = PEM.format("RSA ", "\n".join(lines)).partition("-----END")[0]
    assert redact(f"{key}\n\nand so on") == "[redacted: private key]\n\nand so on"


@pytest.mark.parametrize("text", ["starts with {} and so on", 'START = "{}"\nEND = "-----END RSA PRIVATE KEY-----"\n'])
def test_a_private_key_only_mentioned_stays(text: str) -> None:
    mentioned = text.format("-----BEGIN RSA PRIVATE KEY-----")
    assert redact(mentioned) == mentioned


@given(chars(64))
def test_a_private_key_in_json_or_under_headers_never_survives(line: str) -> None:
    headed = PEM.format("RSA ", f"Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n{line}\n")
    escaped = PEM.format("", f"{line}\n").replace("\n", r"\n")
    assert redact(f'{headed} "{escaped}"') == '[redacted: private key] "[redacted: private key]"'


def test_letters_that_grow_when_they_are_made_small_hide_nothing() -> None:
    assert (
        redact("İİİ password=hunter22, İ token: abc123def")
        == "İİİ password=[redacted: password], İ token: [redacted: secret]"
    )


@pytest.mark.parametrize(
    "line", ['print(key, token["a"], sep="")', "See https://example.com/?page=2 - it works.", "words"]
)
def test_very_much_ordinary_text_is_read(line: str) -> None:
    text = f"{line}\n" * (300_000 // len(line))
    assert redact(text) == text


NAMES = ["password", "token", "api_key", "PASS=", "?sig=", "--", "Bearer ", "Cookie: ", "-u a:", "://", "sk-", "eyJ"]
FORMS = [
    "Authorization: ",
    "x-api-key: ",
    "mysql -p",
    "sshpass -p ",
    "machine a login b password ",
    "[a]\n",
    "<pwd>",
    "</",
]
MARKS = ["=", ": ", '"', "'", " ", "\n", "@", "[", "]", ".", "\\", "$", "x", "[redacted: secret]"]
SCRAPS = st.sampled_from([*NAMES, *FORMS, *MARKS, "a1b2c3d4", "swordfish", "AK" + "IA" + "A" * 16])


@settings(max_examples=150, deadline=None)
@given(st.lists(SCRAPS, max_size=20).map("".join))
def test_what_is_redacted_needs_no_more_redaction(text: str) -> None:
    redacted = redact(text)
    assert redact(redacted) == redacted


HOSTILE = [
    *("$6$", "$argon2id$", "session_token=", "key-data: ", "aQ~", "A3-", "密", "contrase"),
    *("a", "1", " ", "token=", "eyJ", "://a:", "-----BEGIN PRIVATE KEY-----\n", "--", 'password="', 'password: "a '),
    *("[a]\n", "[a]\npassword = ", "mysql ", "sshpass -p ", "machine a login ", "x-key: ", "cookie: a=", "-u a:"),
    *("M" * 24 + ".", "?token=", "<password>", "Authorization: Bearer ", " " * 999 + "password: x", "\ud800"),
]


@pytest.mark.parametrize("scrap", HOSTILE)
def test_very_much_hostile_text_is_read_through(scrap: str) -> None:
    text = scrap * (300_000 // len(scrap))
    assert len(redact(text)) > 0


LARGER = [  # a secret that begins with, or contains, a token of its own
    "Cookie: jwt={0}; sessionid={1}",
    "> Cookie: sid=1; a={0}; sessionid={1}; theme=dark",
    '> Cookie: theme="dark"; jwt={0}; sessionid={1}',
    'curl -H \'Cookie: theme="a b"; jwt={0}; sessionid="{1}"\' https://example.org',
    r'{{"cookie": "jwt=\"{0}\"; sessionid={1}", "accept": "text/html"}}',
    '{{"name": "Cookie", "value": "jwt={0}; sessionid={1}"}}, {{"name": "Accept", "value": "text/html"}}',
    '{{\n  "name": "cookie",\n  "value": "sessionid={1}; jwt={0}"\n}}',
    r"{{\"name\": \"Cookie\", \"value\": \"jwt={0}; sessionid={1}\"}}",
    '{{"name": "X-Api-Key", "value": "{0}.{1}"}}',
    "X-Api-Key: {0}.{1}",
    "Authorization: Bearer {0}.{1}",
    "curl -s -b 'jwt={0}; sessionid={1}' https://example.org",
    "curl https://example.org --cookie jwt={0}{1}",
    "mysql -u root -p'{0}:{1}' shop",
    "mysql -h db -p{0}:{1} shop",
    "sshpass -p '{0} {1}' ssh me@host",
    'password="{0} {1} horse battery"',
    "password: '{0} {1} horse'",
    "PASSWORD={0}:{1}",
    "https://ann:{0}{1}@example.org/path",
    "https://example.org/?token={0}.{1}&page=2",
    "curl -u 'ann:{0}:{1}' https://example.org",
    'curl -u "ann:{0} {1} horse" https://example.org',
    "tool --password='{0}:{1}' --verbose",
    "<password>{0}:{1}</password>",
]
REST = chars(12).filter(lambda text: any(each.isdigit() for each in text))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("curl -H 'Cookie: a=\"b\"; c=d' https://example.org/path", "https://example.org/path"),
        ('curl -H "Cookie: a=" -H "Accept: text/html"', '-H "Accept: text/html"'),
        ('{"Cookie": "a=b; c=d", "Accept": "text/html"}', '"Accept": "text/html"'),
        (r'"{\"Cookie\": \"a=b; c=d\", \"Accept\": \"text/html\"}"', r"\"Accept\": \"text/html\""),
        ('{"name": "Cookie", "value": "a=b"}, {"name": "Accept", "value": "c"}', '{"name": "Accept", "value": "c"}'),
        ("curl -b 'a=b; c=d' https://example.org/path", "https://example.org/path"),
        ("curl -b cookies.txt https://example.org/?a=b", "curl -b cookies.txt https://example.org/?a=b"),
        ('{"name": "colour", "value": "blue=1"}', '"value": "blue=1"'),
    ],
)
def test_what_follows_a_cookie_header_stays(text: str, kept: str) -> None:
    assert kept in redact(text)


OWN = "Zwiebelkuchen im Ofen"


@pytest.fixture
def own_secrets() -> Iterator[None]:
    know_secrets("test", [OWN, 'a"quoted\nkey', "short", "changeme", "short, but longer"])
    yield
    forget_secrets("test")


@pytest.mark.usefixtures("own_secrets")
def test_the_gateways_own_keys_go_whatever_they_look_like() -> None:
    for text in (OWN, f"x{OWN}x", json.dumps({"a": 'a"quoted\nkey'}), f"?q={quote(OWN)}", f"password='{OWN} and more'"):
        told = redact(text)
        assert not [part for part in ("Ofen", "quoted", "more") if part in told], told
        assert redact(told) == told
    assert redact("short, but longer or short: changeme") == "[redacted: key of this gateway] or short: changeme"


@pytest.mark.usefixtures("own_secrets")
def test_forgotten_keys_are_words_again() -> None:
    know_secrets("other", [OWN])
    forget_secrets("test")
    assert OWN not in redact(f"x {OWN}")
    forget_secrets("other")
    assert redact(f"x {OWN}") == f"x {OWN}"


ONE_OF_EACH = st.fixed_dictionaries(TOKENS)


@settings(max_examples=3, deadline=None)
@given(tokens=ONE_OF_EACH, rest=REST)
def test_a_secret_around_a_token_goes_whole(tokens: dict[str, str], rest: str) -> None:
    for larger in LARGER:
        for token in tokens.values():
            if token.startswith("$") and " -p{" in larger:
                continue  # a variable of the shell
            told = redact(larger.format(token, rest))
            assert token not in told
            assert rest not in told, (larger, told)
            assert redact(told) == told
        # What another program redacted before keeps nothing either.
        assert rest not in redact(larger.format("[redacted: github token]", rest)), larger


@settings(max_examples=2, deadline=None)
@given(tokens=ONE_OF_EACH, between=st.sampled_from([" ", "\n", ", ", "; ", '", "', " and ", "\t"]))
def test_two_secrets_in_a_row_both_go(tokens: dict[str, str], between: str) -> None:
    for first in tokens.values():
        for second in tokens.values():
            told = redact(f"{first}{between}{second}")
            assert first not in told
            assert second not in told
            assert redact(told) == told


@settings(max_examples=3, deadline=None)
@given(token=TOKENS["npm token"], other=TOKENS["jwt"], rests=st.lists(REST, min_size=2, max_size=2, unique=True))
def test_named_secrets_in_a_row_both_go(token: str, other: str, rests: list[str]) -> None:
    for first in LARGER:
        for second in LARGER:
            told = redact(f"{first.format(token, rests[0])}\n{second.format(other, rests[1])}")
            assert not [each for each in (token, other, *rests) if each in told], told
            assert redact(told) == told
