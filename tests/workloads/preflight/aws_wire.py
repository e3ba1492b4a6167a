"""AWS on loopback: moto, and in front of it what moto lacks, as the APIs' references describe it on the wire.

moto's own server needs a web framework. moto answers requests of this process to AWS instead, and the server here
passes on what the command line asks.
"""

from __future__ import annotations

import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import requests
from moto import mock_aws

from infra.catalog.pins import EKS, EKS_RELEASES

EC2_XML = (
    '<?xml version="1.0"?><{action}Response xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>1</requestId>'
)
RESERVATION = """<item><capacityReservationId>{id}</capacityReservationId><ownerId>123456789012</ownerId>
<availabilityZoneId>use2-az1</availabilityZoneId><availabilityZone>us-east-2a</availabilityZone>
<instanceType>{machine}</instanceType><instancePlatform>Linux/UNIX</instancePlatform><tenancy>default</tenancy>
<totalInstanceCount>{count}</totalInstanceCount><availableInstanceCount>{count}</availableInstanceCount>
<ebsOptimized>true</ebsOptimized><ephemeralStorage>false</ephemeralStorage><state>active</state>
<startDate>2024-10-23T15:00:24.000Z</startDate><endDateType>unlimited</endDateType>
<instanceMatchCriteria>targeted</instanceMatchCriteria><reservationType>default</reservationType><tagSet/></item>"""
OFFERING = """<item><capacityBlockOfferingId>cb-0bfad2f7fb1b4478a</capacityBlockOfferingId>
<instanceType>p5en.48xlarge</instanceType><availabilityZone>us-east-2b</availabilityZone><instanceCount>4</instanceCount>
<startDate>2099-12-01T11:30:00.000Z</startDate><endDate>2099-12-02T11:30:00.000Z</endDate>
<capacityBlockDurationHours>24</capacityBlockDurationHours><upfrontFee>3994.56</upfrontFee>
<currencyCode>USD</currencyCode><tenancy>default</tenancy></item>"""
SCORE = "<item><region>us-east-2</region><availabilityZoneId>use2-az1</availabilityZoneId><score>3</score></item>"
DECISION = """<member><EvalActionName>{name}</EvalActionName><EvalResourceName>*</EvalResourceName>
<EvalDecision>allowed</EvalDecision><MatchedStatements/><MissingContextValues/>
<OrganizationsDecisionDetail><AllowedByOrganizations>true</AllowedByOrganizations></OrganizationsDecisionDetail></member>"""


def ec2(action: str, form: dict[str, list[str]]) -> str | None:
    """Return the answer of an action of EC2 that moto lacks, the reservations on two pages."""
    group = "<groupName>training</groupName><strategy>cluster</strategy><state>available</state>"
    body = {
        "DescribePlacementGroups": f"<placementGroupSet><item>{group}</item></placementGroupSet>",
        "GetSpotPlacementScores": f"<spotPlacementScoreSet>{SCORE}</spotPlacementScoreSet>",
        "DescribeCapacityBlockOfferings": f"<capacityBlockOfferingSet>{OFFERING}</capacityBlockOfferingSet>",
        "DescribeCapacityReservations": "<capacityReservationSet>"
        + (
            RESERVATION.format(id="cr-0123456789abcdef0", machine="p5en.48xlarge", count=4)
            if "NextToken" in form
            else RESERVATION.format(id="cr-0fedcba9876543210", machine="m6i.2xlarge", count=2)
        )
        + "</capacityReservationSet>"
        + ("" if "NextToken" in form else "<nextToken>second</nextToken>"),
    }.get(action)
    return body and EC2_XML.format(action=action) + body + f"</{action}Response>"


def policies(form: dict[str, list[str]]) -> str:
    """Return that everything is allowed."""
    names = [values[0] for key, values in form.items() if key.startswith("ActionNames.member.")]
    rows = "".join(DECISION.format(name=name) for name in names)
    return (
        '<SimulatePrincipalPolicyResponse xmlns="https://iam.amazonaws.com/doc/2010-05-08/"><SimulatePrincipalPolicyResult>'
        f"<IsTruncated>false</IsTruncated><EvaluationResults>{rows}</EvaluationResults></SimulatePrincipalPolicyResult>"
        "<ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></SimulatePrincipalPolicyResponse>"
    )


def quotas(request: dict[str, str]) -> str:
    """Return the quotas of a service, each on a page of its own."""
    limits = {
        "ec2": [("L-1216C47A", 64), ("L-417A185B", 0), ("L-0263D0A3", 5)],
        "vpc": [("L-F678F1CE", 5), ("L-29B6F2EB", 50)],
    }[request["ServiceCode"]]
    page = int(request.get("NextToken", "0"))
    code, value = limits[page]
    more = {"NextToken": str(page + 1)} if page + 1 < len(limits) else {}
    row = {"ServiceCode": request["ServiceCode"], "QuotaCode": code, "QuotaName": code, "Value": value}
    return json.dumps({"Quotas": [row], **more})


def eks(path: str) -> str | None:
    """Return the answer of EKS to a GET that moto lacks. Times are seconds (EKS API, DescribeClusterVersions)."""
    if path == "/cluster-versions":
        row = {"clusterVersion": EKS, "clusterType": "eks", "versionStatus": "STANDARD_SUPPORT"}
        return json.dumps({"clusterVersions": [{**row, "endOfStandardSupportDate": 1806105600}]})
    if path == "/addons/supported-versions":
        pins = [(name, pin) for name, pin in EKS_RELEASES[EKS].items() if name not in ("node image", "autoscaler")]
        rows = [{"addonName": name, "addonVersions": [{"addonVersion": pin}], "owner": "aws"} for name, pin in pins]
        return json.dumps({"addons": rows})
    return None


HOSTS = {"iam": "iam.amazonaws.com", "ecr": "api.ecr.us-east-2.amazonaws.com"}
"""Hosts that are not named by service and region."""


class Wire:
    """The server: `url` is its address, `actions` what was asked of the part in front of moto."""

    def __init__(self) -> None:
        self.moto = mock_aws()
        self.moto.start()
        actions: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(b"")

            def do_HEAD(self) -> None:
                self.answer(b"")

            def do_POST(self) -> None:
                self.answer(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

            def do_PUT(self) -> None:
                self.do_POST()

            def answer(self, body: bytes) -> None:
                path, target = urlsplit(self.path).path, self.headers.get("X-Amz-Target", "")
                form = parse_qs(body.decode(errors="replace"))
                action = form.get("Action", [""])[0]
                kind, text = "text/xml", ec2(action, form)
                if action == "SimulatePrincipalPolicy":
                    text = policies(form)
                if target.endswith(".ListServiceQuotas"):
                    kind, text = "application/x-amz-json-1.1", quotas(json.loads(body))
                if self.command == "GET" and text is None:
                    kind, text = "application/json", eks(path)
                if text is None:
                    self.forward(body)
                    return
                actions.append(action or target.rpartition(".")[2] or path)
                self.reply(200, {"Content-Type": kind}, text.encode())

            def forward(self, body: bytes) -> None:
                headers = {key: value for key, value in self.headers.items() if key.lower() not in ("host", "expect")}
                scope = re.search(r"Credential=[^/]+/\d+/[^/]+/([^/]+)/", headers.get("Authorization", ""))
                service = scope[1] if scope else ""
                host = HOSTS.get(service, f"{service}.us-east-2.amazonaws.com")
                answer = requests.request(self.command, f"https://{host}{self.path}", headers=headers, data=body)
                self.reply(answer.status_code, dict(answer.headers), answer.content)

            def reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
                self.send_response(status)
                for key, value in headers.items():
                    if key.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                        self.send_header(key, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(b"" if self.command == "HEAD" else body)

            def log_message(self, *_: object) -> None:
                """Keep quiet."""

        self.actions = actions
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Stop both."""
        self.server.shutdown()
        self.server.server_close()
        self.moto.stop()
