"""Home Assistant: events of its automations and apps in, notifications out."""

from palaver.protocols import Ability, Platform, PlatformNote, SetupGuide, SetupQuestion

PLATFORM = Platform(
    name="homeassistant",
    title="Home Assistant",
    adapter="palaver.platforms.homeassistant.adapter:HomeAssistantAdapter",
    abilities=frozenset({Ability.BUTTONS}),
    extras=("homeassistant",),
    connection="connects to Home Assistant",
    keeps_history=False,
    has_names=False,
    chat_id_pattern=r"(?:notify\.)?[a-z0-9_]+",
    example_chat="mobile_app_anns_phone",
    notes=(
        PlatformNote(
            text=(
                "Messages here are notifications of Home Assistant, on a phone or a page: answer in a few short lines. "
                "You cannot see or control devices here: say so instead of promising it."
            )
        ),
    ),
    guide=SetupGuide(
        before=(
            "In Home Assistant, open the profile of an administrator, Security, and create a long-lived access token.",
            "Find the name of your phone under Settings, Tools, Actions: it begins with notify.mobile_app_.",
        ),
        questions=[
            SetupQuestion(option="url", prompt="Address of Home Assistant, like http://homeassistant.local:8123:"),
            SetupQuestion(option="token", prompt="Access token (hidden while you type):"),
            SetupQuestion(
                option="notify", prompt="Where answers go, like mobile_app_anns_phone (optional):", required=False
            ),
        ],
        after=("Fire the event palaver_message with a text, from an automation or under Settings, Tools, Events.",),
        owner_prompt="Your own user id in Home Assistant (32 letters and digits; or pair later)?",
        owner_pattern=r"[0-9a-f]{32}",
        owner_example="31ddb597e03147118cf8d2f8fbea5553",
    ),
)
