"""gcloud as pre-flight asks it, and the project and account that it uses."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infra.settings import GkeSettings
from infra.terminal import printable
from workloads.preflight.answers import Asked, PreflightAnswer, refused
from workloads.preflight.cli import Cli, NoAnswerError, Once
from workloads.preflight.fields import text

PROJECT = re.compile(r"([a-z][a-z0-9.-]{0,61}:)?[a-z][a-z0-9-]{2,61}[a-z0-9]")
"""Id of a project, also of a domain's (Resource Manager docs, creating-managing-projects, read 2026-11)."""
PROVIDER_VARIABLES = ("GOOGLE_PROJECT", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT")
"""Where the provider looks for a project that the stack file does not name (pulumi-gcp 10.2.0: provider schema)."""

GCLOUD = Cli(
    program="gcloud",
    fixes={
        "missing": "install the Google Cloud CLI: https://cloud.google.com/sdk/docs/install",
        "signed-out": "gcloud auth login",
        "api-off": "gcloud services enable the API that the message names, or look in the console",
        "throttled": "ask again in a minute",
        "denied": "ask somebody who may, or get roles/viewer on the project",
        "old": "gcloud components update, or your package manager",
        "absent": "check the name",
        "unsupported": "choose another zone or capacity: rdma-ray capacity shows where the machine can be had",
        "slow": "ask again, or run the command by itself",
        "broken": "run the command by itself; gcloud info --run-diagnostics checks gcloud's connection",
        "incomplete": "ask again: a part of Google Cloud did not answer",
    },
    # In this order: an API that is off and a missing right are both PERMISSION_DENIED (gcloud 528.0.0:
    # api_lib/util/api_enablement.py, core/credentials, calliope/parser_extensions.py).
    errors={
        "unsupported": re.compile(r"is not supported in locations"),
        "signed-out": re.compile(
            r"active account selected|gcloud auth login|refreshing your current auth tokens|invalid_grant|"
            r"Reauthentication|UNAUTHENTICATED|invalid authentication credentials"
        ),
        "api-off": re.compile(
            r"SERVICE_DISABLED|accessNotConfigured|has not been used in project|"
            r"API \[[^]]+\] not enabled|it is disabled"
        ),
        "throttled": re.compile(
            r"RATE_LIMIT_EXCEEDED|rateLimitExceeded|RESOURCE_EXHAUSTED|Quota exceeded for quota metric|"
            r"HTTPError 429|code=429"
        ),
        "denied": re.compile(
            r"PERMISSION_DENIED|Required ['\"][^'\"]+['\"] permission|code=403|"
            r"does not have (permission|\S+ access)|caller does not have|"
            r"HTTPError 403|\bforbidden\b",
            re.IGNORECASE,
        ),
        "old": re.compile(r"Invalid choice|unrecognized arguments|command group installed"),
        "absent": re.compile(r"was not found|not found: 404|HTTPError 404|code=404|NOT_FOUND|Image not found"),
    },
    reasons={
        "signed-out": "gcloud is not signed in, or its login has expired",
        "old": "this gcloud does not have the command",
    },
    # gcloud exits with 0 after a list of which a part failed (528.0.0: command_lib/compute, "did not succeed").
    incomplete=re.compile(r"requests did not succeed|were unreachable|is unreachable"),
    environment={
        # Not disabled: gcloud would then install a missing command group and answer yes to other questions, too.
        # Without a terminal, it takes the default, or fails (528.0.0: core/console/console_io.py PromptContinue).
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "false",
        # Nor offer to enable an API.
        "CLOUDSDK_CORE_SHOULD_PROMPT_TO_ENABLE_API": "false",
        "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
        "CLOUDSDK_SURVEY_DISABLE_PROMPTS": "true",
        # What the user's configuration may have turned off.
        "CLOUDSDK_CORE_USER_OUTPUT_ENABLED": "true",
        "CLOUDSDK_CORE_VERBOSITY": "warning",
    },
)


@dataclass(frozen=True)
class Reply(Asked):
    """What a command printed, and the answers that follow from it."""

    document: Any = None


@dataclass
class Account:
    """Who asks, about which project.

    Args:
        named: Project of the stack file or of the provider's variables; None if gcloud's own is used.
    """

    named: str | None

    def __post_init__(self) -> None:
        self._once = Once(GCLOUD)

    @classmethod
    def of(cls, config: Mapping[str, Any], variables: Mapping[str, str]) -> Account:
        """Return the account for the map of a stack file and the environment."""
        found = (config.get("gcp:project"), *(variables.get(name) for name in PROVIDER_VARIABLES))
        named = next((project for project in found if project), None)
        # An encrypted value is a map, which is not for output.
        return cls(None if named is None else named if isinstance(named, str) else f"a {type(named).__name__}")

    @property
    def own(self) -> Any:
        """gcloud's own account and project. Raises NoAnswerError."""
        return self._once.ask("config", "list", "--format=json(core.account,core.project)")

    @property
    def project(self) -> str:
        """The project. Raises NoAnswerError if there is none, or if it cannot be one."""
        project = self.named or text(self.own, "core", "project")
        if project is None or not PROJECT.fullmatch(project):
            wrong = "no project is set" if project is None else f"{printable(project)[:60]} is not the id of a project"
            raise NoAnswerError("absent", wrong, "pulumi config set gcp:project YOUR-PROJECT-ID", "")
        return project

    @property
    def member(self) -> str | None:
        """The caller as policies name it; None if gcloud has no account."""
        account = text(self.own, "core", "account")
        if account is None or "@" not in account:
            return None
        return f"{'serviceAccount' if account.endswith('gserviceaccount.com') else 'user'}:{account}"

    def ask(self, *arguments: str, project: str | None = None) -> Reply:
        """Ask about the project, or another one. Raises NoAnswerError."""
        arguments = (*arguments, f"--project={project or self.project}", "--format=json")
        return Reply(shlex.join(["gcloud", *arguments]), GCLOUD.ask(*arguments))


@dataclass(frozen=True)
class Question:
    """What the questions about a stack on Google Cloud share."""

    settings: GkeSettings
    account: Account

    @property
    def zone(self) -> str:
        return self.settings.location

    @property
    def region(self) -> str:
        return self.settings.region

    def project_answers(self) -> Iterator[PreflightAnswer]:
        """Yield whether the project is known, and from where."""
        try:
            project = self.account.project
        except NoAnswerError as error:
            yield refused(error, "absent").not_ok("gcp:project", "setup", error.reason, error.fix)
            return
        if self.account.named:
            yield Asked().ok("gcp:project", f"{project} is set")
        else:
            found = f"{project}, of gcloud's configuration: Pulumi needs gcp:project in the stack file"
            yield Asked().not_ok("gcp:project", "setup", found, f"pulumi config set gcp:project {project}")
