"""Model providers: how their keys and models are named and where they are reached. These facts stand nowhere else."""

import re
from collections.abc import Sequence
from itertools import takewhile

from palaver.model.value import value


@value
class Provider:
    """A provider of models on the internet."""

    name: str
    """As in `provider:model`."""
    title: str
    default_model: str
    base_url: str
    """What `base_url` of the configuration replaces."""
    key_variables: tuple[str, ...]
    """Where its key usually is in the environment."""
    key_page: str
    """Where to create a key."""
    models_path: str = "/models"
    """Where it lists its models, below `base_url`."""
    address_variable: str = ""
    """Where the environment usually has another address for it."""
    key_form: str = ""
    """The pattern of its keys; empty if they look like any other random word."""
    key_prefix: str = ""
    """How they start."""
    model_prefixes: tuple[str, ...] = ()
    """How its models are named that no other provider has."""


PROVIDERS = {
    each.name: each
    for each in (
        Provider(
            name="openai",
            title="OpenAI",
            default_model="gpt-5-mini",
            base_url="https://api.openai.com/v1",
            key_variables=("OPENAI_API_KEY",),
            key_page="https://platform.openai.com/api-keys",
            address_variable="OPENAI_BASE_URL",
            key_form=r"(?<![\w-])sk-(?=[A-Za-z_-]{0,64}\d)[\w-]{20,}+",
            key_prefix="sk-",
            model_prefixes=("gpt-", "chatgpt-", "o1", "o3", "o4"),
        ),
        Provider(
            name="anthropic",
            title="Anthropic",
            default_model="claude-sonnet-4-5",
            base_url="https://api.anthropic.com",
            key_variables=("ANTHROPIC_API_KEY",),
            key_page="https://console.anthropic.com/settings/keys",
            models_path="/v1/models",
            address_variable="ANTHROPIC_BASE_URL",
            key_form=r"sk-ant-[\w-]{20,}+",
            key_prefix="sk-ant-",
            model_prefixes=("claude-",),
        ),
        Provider(
            name="google",
            title="Google",
            default_model="gemini-2.5-flash",
            base_url="https://generativelanguage.googleapis.com",
            key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
            key_page="https://aistudio.google.com/apikey",
            models_path="/v1beta/models",
            address_variable="GOOGLE_GEMINI_BASE_URL",
            key_form=r"AIza[\w-]{35,}+",
            key_prefix="AIza",
            model_prefixes=("gemini-",),
        ),
        Provider(
            name="mistral",
            title="Mistral",
            default_model="mistral-medium-latest",
            base_url="https://api.mistral.ai/v1",
            key_variables=("MISTRAL_API_KEY",),
            key_page="https://console.mistral.ai/api-keys",
            model_prefixes=("mistral-", "magistral-", "ministral-", "codestral-"),
        ),
        Provider(
            name="groq",
            title="Groq",
            default_model="llama-3.3-70b-versatile",
            base_url="https://api.groq.com/openai/v1",
            key_variables=("GROQ_API_KEY",),
            key_page="https://console.groq.com/keys",
            key_form=r"gsk_[A-Za-z0-9]{40,}+",
            key_prefix="gsk_",
        ),
        Provider(
            name="openrouter",
            title="OpenRouter",
            default_model="openai/gpt-5-mini",
            base_url="https://openrouter.ai/api/v1",
            key_variables=("OPENROUTER_API_KEY",),
            key_page="https://openrouter.ai/settings/keys",
            key_form=r"sk-or-[\w-]{20,}+",
            key_prefix="sk-or-",
        ),
        Provider(
            name="deepseek",
            title="DeepSeek",
            default_model="deepseek-chat",
            base_url="https://api.deepseek.com",
            key_variables=("DEEPSEEK_API_KEY",),
            key_page="https://platform.deepseek.com/api_keys",
            key_form=r"(?<![\w-])sk-(?=[a-f]{0,32}\d)[0-9a-f]{32}(?![\w-])",
            key_prefix="sk-",
            model_prefixes=("deepseek-",),
        ),
        Provider(
            name="xai",
            title="xAI",
            default_model="grok-4",
            base_url="https://api.x.ai/v1",
            key_variables=("XAI_API_KEY",),
            key_page="https://console.x.ai",
            key_form=r"xai-[A-Za-z0-9]{60,}+",
            key_prefix="xai-",
            model_prefixes=("grok-",),
        ),
    )
}
"""In the order in which they are offered."""
KEYED_PROVIDERS = tuple(each for each in reversed(PROVIDERS.values()) if each.key_form)
"""Those whose keys have a form, the widest form last."""


@value
class LocalServer:
    """A program that serves models on this machine, with OpenAI's API."""

    title: str
    port: int
    owner: str
    """What `owned_by` says in its list of models."""
    address_variable: str = ""
    """Where the environment can have another address for it."""


LOCAL_SERVERS = (
    LocalServer(title="Ollama", port=11434, owner="library", address_variable="OLLAMA_HOST"),
    LocalServer(title="LM Studio", port=1234, owner="organization_owner"),
    LocalServer(title="llama.cpp", port=8080, owner="llamacpp"),
    LocalServer(title="vLLM", port=8000, owner="vllm"),
)
"""Programs at their usual ports."""

COMPATIBLE = "openai"
"""With a `base_url`, the provider of every server with OpenAI's API."""
_INTERFACES = {"openai-chat": COMPATIBLE, "openai-responses": COMPATIBLE}
"""Other names of one provider, which choose how it is spoken to."""
_NO_CHAT = re.compile(
    r"embed|whisper|tts|dall-e|image|audio|realtime|moderation|rerank|transcri|guard|sora|veo|imagen|ocr|instruct$"
    r"|^(?:babbage|davinci)|computer-use|search",
    re.IGNORECASE,
)


def parse_model(said: str) -> str:
    """Return `provider:model` for `provider/model` of a known provider, and for a model that only one provider has."""
    name = _with_colon(said.strip())
    if ":" in name or "/" in name:
        return name
    known = [each.name for each in PROVIDERS.values() if each.model_prefixes and name.startswith(each.model_prefixes)]
    return f"{known[0]}:{name}" if known else name


def spell_model(name: str) -> str:
    """Return the name of a model as people see it, the same for every interface of its provider."""
    provider, separator, model = _with_colon(name).partition(":")
    return f"{_INTERFACES.get(provider, provider)}{separator}{model}"


def _with_colon(name: str) -> str:
    head, _, rest = name.partition("/")
    return f"{head}:{rest}" if rest and (head in PROVIDERS or head in _INTERFACES) else name


def chat_models(listed: Sequence[str]) -> list[str]:
    """Return those of a list that answer in a chat, as far as their names tell."""
    return [each for each in listed if not _NO_CHAT.search(each)] or list(listed)


def pick_model(listed: Sequence[str], wanted: str = "") -> str:
    """Return the wanted model if it is listed, else the one whose name begins most like it; "" if there is none."""
    if wanted in listed:
        return wanted
    # The shortest name is the one without a date or a size.
    return min(chat_models(listed), key=lambda name: (-_common_length(name, wanted), len(name)), default="")


def _common_length(name: str, other: str) -> int:
    common = "".join(mine for mine, _ in takewhile(lambda pair: pair[0] == pair[1], zip(name, other, strict=False)))
    return len(common.rstrip("-.:"))
