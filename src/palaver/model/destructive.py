"""Commands that can destroy what cannot be brought back, as words that follow each other in a line."""

import re
from collections.abc import Sequence

_GIT, _DOCKER = r"\bgit\b", r"\b(?:docker|podman)\b"
_OPTIONS = r"(?: (?:-\S*|\w+=\S*))*"
_BEFORE = rf"(?:^|[;&|(`] ?|\b(?:sudo|doas|env|exec|command|nohup|time|then|do|else|busybox){_OPTIONS} )"
_FOLDER = r"(?:/[\w/.-]{0,60}/)?"
_INTERPRETER = r"(?:\w*sh|python[\d.]*|perl|ruby|node|php)\b"
_DISKS = "dev/(?:sd|nvme|hd|vd|xvd|mmcblk|disk|mapper|loop)"
_FORCE = r" (?:-\w*f\w*|--force)\b"

_CHAINS: tuple[tuple[str, ...], ...] = (
    (r"\brm(?= )", r" (?:-\w*[rf]\w*|--[rf]\w*)\b"),
    (r"\bfind\b", r" -delete\b"),
    (r"\bfind\b", r" -(?:exec|ok)(?:dir)?\b", r"\b(?:rm|rmdir|shred|unlink)\b"),
    (r"\bxargs\b", r"\b(?:rm|rmdir|shred|unlink)\b"),
    (r"\b(?:shred|wipefs|fdisk|sfdisk|parted|mkswap|blkdiscard|mkfs(?:\.\w+)?)\b",),
    (r"\bdd\b", r"\bof="),
    (rf">\|? ?/(?:{_DISKS}|etc/)",),
    (r"\btee\b", r" /etc/"),
    (r"\b(?:cp|mv|ln|install|rsync) \S+", r" /etc(?:/\S*)? ?(?:$|[;&|)])"),
    (r"\bsed\b", r" (?:-\w*i|--in-place)", r" /etc/"),
    (rf"{_BEFORE}{_FOLDER}(?:shutdown|reboot|halt|poweroff|init [06]|passwd|visudo|userdel|groupdel)\b",),
    (_GIT, r" push\b", r" (?:--(?:force|mirror|delete|prune)|-\w*[fd]\w*\b|\+|:\S)"),
    (_GIT, r" reset\b", r" --ha"),
    (_GIT, r" clean\b", r" -(?:\w*[fdx]|-f)"),
    (_GIT, r" (?:filter-branch|filter-repo)\b"),
    (_GIT, r" checkout\b", r" (?:-\w*f\w*|--force|--|\.)(?= |$)"),
    (_GIT, r" switch\b", rf"{_FORCE}| --discard-changes\b"),
    (_GIT, r" restore\b(?! --staged| -(?-i:S)\b)"),
    (_GIT, r" branch\b", r" -(?:-delete|\w*(?-i:D))"),
    (_GIT, r" stash (?:clear|drop)\b"),
    (r"\bch(?:mod|own|grp)\b", r" (?:-\w*r\w*|--rec\w*)\b"),
    (r"\b(?:drop|truncate) (?:table|database|schema|view)\b",),
    (r"\bdelete from \S+ ?(?:;|$)",),
    (r"\b(?:kill|pkill|killall)\b", r" -(?:9|kill|sigkill|[sn] (?:9|kill|sigkill)|1)\b"),
    (r"\b(?:curl|wget)\b", rf"\| ?(?:(?:sudo|doas|env|exec|nohup)(?: \S+){{0,5}} )?{_FOLDER}{_INTERPRETER}"),
    (rf"\b(?:eval|source|{_INTERPRETER})|(?:^|[;&|] ?)\. ", r"(?:\$\(|`|<\() ?(?:sudo )?(?:curl|wget)\b"),
    (r"\bsystemctl\b", r" (?:stop|disable|mask|poweroff|reboot|halt|kill)\b"),
    (r"\bcrontab\b", r" -\w*r\b"),
    (r"\b(?:ip6?tables|nft)\b", r" (?:-f|--flush|flush)\b"),
    (_DOCKER, r" (?:prune|rmi|kill|volume rm)\b"),
    (_DOCKER, r" rm\b", _FORCE),
    (r"\bkubectl\b", r" delete\b"),
    (r"\bterraform\b", r" destroy\b"),
    (r"\b(?:apt|apt-get|dnf|yum|pacman)\b", r" (?:remove|purge|autoremove|-r\w*)\b"),
    (r": ?\( ?\) ?\{.{0,20}: ?\| ?:",),
    (r"\btruncate\b", r" (?:-\w*s|--size)"),
    (r"\bcryptsetup\b", r" (?:erase|luksformat)"),
    (r"\brsync\b", r" --del"),
)
DESTRUCTIVE = tuple(tuple(re.compile(part, re.IGNORECASE) for part in chain) for chain in _CHAINS)
"""They are searched in one line without quotes and with single blanks. No part repeats what another can repeat."""


def in_order(line: str, chain: Sequence[re.Pattern[str]]) -> bool:
    """Tell whether the parts follow each other, however far apart. Each is searched once, so no line takes long."""
    at = 0
    for part in chain:
        found = part.search(line, at)
        if found is None:
            return False
        at = found.end()
    return True
