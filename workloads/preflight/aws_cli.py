"""The AWS command line as pre-flight asks it: version 1 or 2, reads only, each command once."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from workloads.preflight.answers import Asked
from workloads.preflight.cli import Cli, NoAnswerError, Once

ABSENT = "absent"
"""Kind of a `NoAnswerError`: AWS says that the thing that was asked for does not exist."""
MOST_ROWS = 100_000
MORE = ("NextToken", "nextToken", "IsTruncated")
"""What an answer has if rows are missing. The AWS CLI reads every page, unless it is told not to."""

AWS = Cli(
    program="aws",
    fixes={
        "missing": "install the AWS CLI: https://docs.aws.amazon.com/cli/latest/userguide/getting-started-install.html",
        "signed-out": "sign in: `aws sso login` or `aws configure`, with the profile of aws:profile if it is set",
        "denied": "ask an administrator for the right to read it, or to run the command",
        "throttled": "wait a minute, and run it again",
        "old": "update the AWS CLI",
        "slow": "check the connection to AWS, and run the command yourself",
        "broken": "run the command yourself",
        ABSENT: "check its name and its region",
    },
    # The codes of errors (EC2 API reference, error codes; IAM, STS and Service Quotas, common errors) and the texts of
    # the command itself (aws/aws-cli and boto/botocore: exceptions.py; read 2026-11-28). The first that matches counts.
    errors={
        "throttled": re.compile(r"\((?:Throttl\w*|RequestLimitExceeded|TooManyRequests\w*|SlowDown)\)|Rate exceeded"),
        "denied": re.compile(
            r"\((?:AccessDenied\w*|UnauthorizedOperation|Forbidden|403|OptInRequired|SubscriptionRequired\w*)\)"
        ),
        ABSENT: re.compile(r"\((?:404|NoSuchBucket|NoSuchEntity|[\w.]{0,80}NotFound(?:Exception)?)\)"),
        "signed-out": re.compile(
            r"\((?:ExpiredToken\w*|RequestExpired|InvalidClientTokenId|UnrecognizedClient\w*|AuthFailure|"
            r"InvalidToken|SignatureDoesNotMatch)\)|Unable to locate credentials|[Tt]oken has expired|SSO [Ss]ession|"
            r"SSO Token|aws (?:sso )?login|config profile \(|Error when retrieving|Enter MFA code|Partial credentials|"
            r"Unable to parse"
        ),
        "old": re.compile(r"Invalid choice|Unknown options|invalid choice"),
        "slow": re.compile(r"Could not connect to the endpoint|[Tt]imeout on endpoint|Could not resolve"),
    },
    # Version 1 has no --no-cli-pager. A user's own output format or query cannot change what is read here.
    environment={"AWS_PAGER": "", "AWS_CLI_AUTO_PROMPT": "off", "AWS_DEFAULT_OUTPUT": "json"},
)


class Aws:
    """An account in a region, as the user's profile shows it. Checks in several threads share its answers.

    Args:
        region: Name of a region, already checked.
        profile: Profile of the user's AWS configuration; None for the default one.
    """

    def __init__(self, region: str, profile: str | None = None) -> None:
        self.region, self.profile = region, profile
        self._options = [f"--region={region}", "--output=json", *([f"--profile={profile}"] if profile else [])]
        self._once = Once(AWS)

    def in_region(self, region: str) -> Aws:
        """Return the same account in another region."""
        return Aws(region, self.profile)

    def ask(self, *arguments: str) -> Any:
        """Return the parsed JSON that a command prints; it runs once. Raises NoAnswerError.

        The command reads every page of an answer (AWS CLI user guide, pagination; read 2026-11-28).
        """
        return self._once.ask(*arguments, *self._options)

    def rows(self, key: str, *arguments: str) -> list[Mapping[str, Any]]:
        """Return the maps of a list in an answer. Raises NoAnswerError, also if something else is in the list.

        A missing row would be as good as a free one where rows are counted.
        """
        answer = self.ask(*arguments)
        found = answer.get(key) if isinstance(answer, Mapping) else None
        if not isinstance(found, list) or not all(isinstance(row, Mapping) for row in found):
            raise self.unclear(f"the answer has no list {key}", *arguments)
        if len(found) > MOST_ROWS or any(answer.get(key) for key in MORE):
            raise self.unclear(f"the answer has a part of {key} only", *arguments)
        return found

    def asked(self, *arguments: str) -> Asked:
        """Return the answers that follow from what a command printed."""
        return Asked(self.line(*arguments))

    def line(self, *arguments: str) -> str:
        """Return the command line of a question, without what makes its output the same for everybody."""
        options = [each for each in self._options if each != "--output=json"]
        return shlex.join([AWS.program, *arguments, *options])

    def unclear(self, reason: str, *arguments: str) -> NoAnswerError:
        """Return the error of an answer that lacks something."""
        return NoAnswerError("broken", reason, AWS.fixes["broken"], self.line(*arguments))
