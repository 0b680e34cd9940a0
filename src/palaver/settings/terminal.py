"""The terminal: where the agent runs commands, which ones it can run, and how many."""

from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from palaver.model.access import AccessRole
from palaver.model.command_policy import CommandPolicy, CommandRule
from palaver.model.errors import BadArgument
from palaver.model.tools import ApprovalMode
from palaver.settings.types import Duration, Roles, Section, Syntax, Variables, as_pydantic_error
from palaver.store.processes import ProcessLimits

_SECOND, _DAY, _YEAR = timedelta(seconds=1), timedelta(days=1), timedelta(days=365)
_LIMITS, _POLICY = ProcessLimits(), CommandPolicy()
_FILE = Syntax("a file, absolute or relative to this file", "~/.ssh/id_ed25519")


class BackendName(StrEnum):
    OWNER = "owner"
    """On this machine, for the owner at the terminal and in the web window alone. Every command asks."""
    OFF = "off"
    LOCAL = "local"
    SSH = "ssh"
    DOCKER = "docker"
    APPTAINER = "apptainer"
    MODAL = "modal"


class StopMode(StrEnum):
    """What happens to processes when the gateway stops."""

    KEEP = "keep"
    END = "end"


def _host(text: str) -> str:
    """Check that ssh does not take it for an option."""
    if not text.strip() or text.startswith("-") or any(map(str.isspace, text)):
        raise ValueError(text)
    return text


class RuleConfig(Section):
    pattern: Annotated[str | None, Syntax("a command, with * for anything", "git push*")] = Field(
        default=None, description="Commands that the rule is for. Default: every one."
    )
    mode: ApprovalMode = Field(default=ApprovalMode.ASK, description="Whether they run, need approval, or never run.")
    roles: Roles = Field(default=None, description="For whom the rule holds. Default: everybody.")

    @model_validator(mode="after")
    def _is_not_for_guests(self) -> Self:
        if AccessRole.GUEST in (self.roles or ()):
            raise as_pydantic_error(
                BadArgument(
                    "guests can never run commands, so no rule can be for",
                    found=AccessRole.GUEST.text,
                    allowed="member, admin and owner",
                    example="{pattern: git push*, mode: ask, roles: admin}",
                )
            )
        return self

    def rule(self) -> CommandRule:
        return CommandRule(pattern=self.pattern or "*", mode=self.mode, roles=self.roles or frozenset())


class SshConfig(Section):
    host: Annotated[
        str | None, AfterValidator(lambda host: host and _host(host)), Syntax("a host for ssh", "me@build")
    ] = Field(default=None, description="The other machine: a name, user@name, or a name in your ssh configuration.")
    port: Annotated[int | None, Field(ge=1, le=65535), Syntax("a whole number, from 1 to 65535", "22")] = Field(
        default=None, description="Its port, if ssh does not know it."
    )
    remote_folder: Annotated[str, Syntax("a folder there", "/srv/work")] = Field(
        default=".", description="The working directory there. Default: the home directory."
    )
    key_file: Annotated[Path | None, _FILE] = Field(default=None, description="Log in with this private key.")
    known_hosts_file: Annotated[Path | None, _FILE] = Field(default=None, description="Check the host key with this.")


class DockerConfig(Section):
    image: Annotated[str | None, Syntax("the name of an image", "debian:12")] = Field(
        default=None, description="Start containers of this image. Pull or build it first."
    )
    socket: Annotated[str, Syntax("a path", "/var/run/docker.sock")] = Field(
        default="/var/run/docker.sock", description="The socket of the Docker engine."
    )
    network: Annotated[str, Syntax("a Docker network, or none", "bridge")] = Field(
        default="none", description="The network of the containers."
    )
    memory_mb: int = Field(default=1024, ge=16, le=1_000_000, description="Memory of each container, in megabytes.")
    cpus: Annotated[float, Syntax("a number, from 0.1 to 256", "1.5")] = Field(
        default=2.0, ge=0.1, le=256, description="How many processors each container can use."
    )
    user: Annotated[str | None, Syntax("a user or user:group", "1000:1000")] = Field(
        default=None, description="The user in the containers. Default: the one of the gateway."
    )


class ApptainerConfig(Section):
    image: Annotated[str | None, Syntax("an image", "docker://debian:12")] = Field(
        default=None, description="Start containers of this image."
    )


class ModalConfig(Section):
    image: Annotated[str | None, Syntax("the name of an image in a registry", "debian:12")] = Field(
        default=None, description="Start sandboxes of this image."
    )
    app: Annotated[str, Syntax("the name of an app", "palaver")] = Field(
        default="palaver", description="The app of the sandboxes; it is made at first use."
    )
    volume: Annotated[str, Syntax("the name of a volume", "palaver-work")] = Field(
        default="palaver-work", description="The volume with the working directory; it is made at first use."
    )
    network: bool = Field(default=False, description="Whether sandboxes reach the network.")


class TerminalConfig(Section):
    backend: BackendName = Field(
        default=BackendName.OWNER,
        description="Where commands run. With owner, on this machine, for the owner at the terminal and in the web "
        "window alone, and every command asks. With off, nowhere.",
    )
    folder: Annotated[Path | None, Syntax("a folder, absolute or relative to this file", "~/work")] = Field(
        default=None, description="The working directory. Default: work in the data directory."
    )
    environment: Variables = Field(default={}, repr=False, description="Pass these variables to commands.")
    rules: tuple[RuleConfig, ...] = Field(default=(), description="Rules for commands. The first that matches decides.")
    default_mode: ApprovalMode = Field(default=_POLICY.default, description="What holds for all other commands.")
    destructive: ApprovalMode = Field(
        default=_POLICY.destructive, description="What holds at least for commands that look destructive."
    )
    timeout: Duration = Field(
        default=_SECOND * 60, ge=_SECOND, le=_DAY, description="After this long, a command goes on in the background."
    )
    wait_limit: Duration = Field(
        default=_SECOND * 100, ge=_SECOND, le=_DAY, description="Wait at most this long in one tool call."
    )
    per_session: int = Field(
        default=_LIMITS.per_session, ge=0, le=10_000, description="Run at most this many processes per conversation."
    )
    processes: int = Field(
        default=_LIMITS.total, ge=0, le=100_000, description="Run at most this many processes in all."
    )
    keep_finished: Duration = Field(
        default=_DAY, ge=_SECOND, le=_YEAR, description="Keep finished processes and their output for this long."
    )
    on_stop: StopMode = Field(
        default=StopMode.KEEP, description="Whether processes keep running when the gateway stops."
    )
    ssh: SshConfig = Field(default=SshConfig(), description="The machine of the ssh back end.")
    docker: DockerConfig = Field(default=DockerConfig(), description="The containers of the docker back end.")
    apptainer: ApptainerConfig = Field(
        default=ApptainerConfig(), description="The containers of the apptainer back end."
    )
    modal: ModalConfig = Field(default=ModalConfig(), description="The sandboxes of the modal back end.")

    @model_validator(mode="after")
    def _has_what_its_backend_needs(self) -> Self:
        needed = {
            BackendName.SSH: ("ssh.host", self.ssh.host, "{backend: ssh, ssh: {host: me@build}}"),
            BackendName.DOCKER: ("docker.image", self.docker.image, "{backend: docker, docker: {image: debian:12}}"),
            BackendName.APPTAINER: (
                "apptainer.image",
                self.apptainer.image,
                "{backend: apptainer, apptainer: {image: debian.sif}}",
            ),
            BackendName.MODAL: ("modal.image", self.modal.image, "{backend: modal, modal: {image: debian:12}}"),
        }
        name, found, example = needed.get(self.backend, ("", "none needed", ""))
        if not found:
            problem = f"the back end {self.backend.value} needs {name}, which is"
            raise as_pydantic_error(BadArgument(problem, found="missing", allowed=name, example=example))
        return self

    def policy(self) -> CommandPolicy:
        if self.backend is BackendName.OWNER:
            refused = tuple(rule.rule() for rule in self.rules if rule.mode is ApprovalMode.NEVER)
            return CommandPolicy(rules=refused, default=ApprovalMode.ASK)
        rules = tuple(rule.rule() for rule in self.rules)
        return CommandPolicy(rules=rules, default=self.default_mode, destructive=self.destructive)

    def limits(self) -> ProcessLimits:
        return ProcessLimits(per_session=self.per_session, total=self.processes)
