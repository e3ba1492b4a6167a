"""The AWS CLI itself, against AWS on loopback: what it prints is what pre-flight reads, every page of it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from infra.catalog.pins import EKS, EKS_NEXT, RAY
from infra.settings import EksSettings, from_stack_file
from infra.settings.stack_file import read_config
from tests.workloads.preflight.aws_wire import Wire
from tests.workloads.preflight.recorded_aws import stack_file
from workloads.cli import main
from workloads.preflight.answers import PreflightCheck
from workloads.preflight.aws_cli import Aws
from workloads.preflight.capacity_eks import offers
from workloads.preflight.eks_place import subnets
from workloads.preflight.eks_versions import cluster

pytestmark = pytest.mark.skipif(shutil.which("aws") is None, reason="the AWS CLI is not installed")

RESERVED = {"rdma-ray:nodes.capacity": "reservation", "rdma-ray:nodes.reservation": "cr-0123456789abcdef0"}
TAG = f"{RAY}-v1"
IMAGE = f"123456789012.dkr.ecr.us-east-2.amazonaws.com/ray:{TAG}"


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    server = Wire()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def signed_in(wire: Wire, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """An environment in which the AWS CLI asks the server as a user, whose configuration asks for tables."""
    config = tmp_path_factory.mktemp("aws") / "config"
    config.write_text("[default]\noutput = table\nregion = eu-west-1\n", encoding="utf-8")
    variables = {
        "AWS_ENDPOINT_URL": wire.url,
        "AWS_CONFIG_FILE": str(config),
        "AWS_SHARED_CREDENTIALS_FILE": str(config.parent / "none"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    iam = client("iam")
    iam.create_user(UserName="ops")
    key = iam.create_access_key(UserName="ops")["AccessKey"]
    variables |= {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
    with pytest.MonkeyPatch.context() as patch:
        # A dozen at once, on two busy cores.
        patch.setattr("workloads.preflight.cli.ANSWER_S", 120.0)
        for name, value in variables.items():
            patch.setenv(name, value)
        yield {**os.environ}


def client(service: str) -> Any:
    """Return a client of moto in the stack's region."""
    return boto3.client(service, region_name="us-east-2")


def test_preflight_reads_what_the_cli_prints(wire: Wire, signed_in: dict[str, str], tmp_path: Path) -> None:
    ec2 = client("ec2")
    [image] = ec2.describe_images(Owners=["amazon"])["Images"][:1]
    ec2.run_instances(ImageId=image["ImageId"], InstanceType="m5.4xlarge", MinCount=2, MaxCount=2)
    for _ in range(5):
        ec2.allocate_address(Domain="vpc")
    client("s3").create_bucket(Bucket="my-training-data", CreateBucketConfiguration={"LocationConstraint": "us-east-2"})
    ecr = client("ecr")
    ecr.create_repository(repositoryName="ray")
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json", "layers": []}
    ecr.put_image(repositoryName="ray", imageTag=TAG, imageManifest=json.dumps(manifest))
    changes = {
        **RESERVED,
        "rdma-ray:nodes.placementGroup": "training",
        "rdma-ray:storage": {"bucket": "my-training-data"},
        "rdma-ray:ray.image": IMAGE,
    }
    assert signed_in
    result = tmp_path / "result.json"
    main(["preflight", str(stack_file(tmp_path, {"set": changes})), f"--json={result}"])
    answers = {each["check"]: each for each in json.loads(result.read_text())["answers"]}
    found = {check: (each["state"], each["found"]) for check, each in answers.items()}
    assert found["caller"] == ("ok", "arn:aws:iam::123456789012:user/ops")
    assert found["permissions"][0] == found["organization policies"][0] == "ok"
    # 2 machines of 16 vCPUs run, and 2 of 8 are reserved on the first page of reservations: 48 of 64.
    [standard] = [each for check, each in found.items() if check.startswith("quota Running On-Demand Standard")]
    assert standard == ("not ok", "needs 24 (3 x m6i.2xlarge of 8 vCPUs); 48 of 64 in use")
    assert found["quota EC2-VPC Elastic IPs"] == ("not ok", "needs 1 (1 address of the NAT gateway); 5 of 5 in use")
    assert found["quota VPCs per Region"] == ("ok", "needs 1 (1 VPC); 1 of 5 in use")
    assert found["zone us-east-2a"][0] == found["zone us-east-2b"][0] == "ok"
    assert found["machine m6i.2xlarge in us-east-2a"][0] == "ok"
    assert found["bucket my-training-data"] == ("ok", "it is in us-east-2")
    # On the second page.
    assert found["reservation cr-0123456789abcdef0"] == ("ok", "needs 4; 4 of its 4 machines are free")
    assert found["placement group training"][0] == "ok"
    assert found[f"Kubernetes {EKS}"][0] == found["add-ons"][0] == "ok"
    # moto has no such images of Amazon's.
    assert found["node images"][0] == "not ok"
    assert found["image"][0] == "ok"
    assert wire.actions.count("ListServiceQuotas") == 3 + 2
    assert wire.actions.count("DescribeCapacityReservations") == 2


def test_capacity_reads_what_the_cli_prints(signed_in: dict[str, str], tmp_path: Path) -> None:
    assert signed_in
    file = stack_file(tmp_path, {})
    settings = from_stack_file(file)
    assert isinstance(settings, EksSettings)
    found = [offer for question in offers(settings, read_config(file)) for offer in question.answers()]
    by_kind = {offer.kind: offer for offer in found}
    assert by_kind["spot"].available == "3 of 10 for 4 nodes"
    assert by_kind["spot"].where == "us-east-2a"
    assert by_kind["capacity-block"].price == pytest.approx(41.61)
    assert by_kind["reservation"].available == "4 of 4 nodes"


def test_own_network_and_cluster_are_read_as_the_cli_prints_them(signed_in: dict[str, str], tmp_path: Path) -> None:
    assert signed_in
    ec2 = client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24", AvailabilityZone="us-east-2a")["Subnet"]["SubnetId"]
    client("eks").create_cluster(
        name="training",
        version=EKS_NEXT,
        roleArn="arn:aws:iam::123456789012:role/eks",
        resourcesVpcConfig={"subnetIds": [subnet]},
        accessConfig={"authenticationMode": "API"},
    )
    changes = {
        "rdma-ray:cluster": {"existing": "training"},
        "rdma-ray:network": {"subnets": [subnet]},
        "rdma-ray:access": None,
    }
    settings = from_stack_file(stack_file(tmp_path, {"set": changes}))
    assert isinstance(settings, EksSettings)
    aws = Aws("us-east-2")
    [answer] = subnets(aws, settings)
    assert answer.state == "not ok"
    assert answer.found == "needs 352 addresses; 251 are free"
    # moto does not have the mode, so the answer is not ok, although the version is wrong as well.
    [answer] = PreflightCheck("cluster", lambda: [cluster(aws, settings)]).answers()
    assert (answer.state, "authentication mode" in answer.found) == ("unknown", True)
    gone = settings.model_copy(update={"cluster": settings.cluster.model_copy(update={"existing": "gone"})})
    assert cluster(aws, gone).found == "there is none"
