"""`rdma-ray image build` with tools that record their arguments: what they get, and that nothing is half-made."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from infra.catalog.pins import OWN_TAG, RAY
from infra.project import version
from infra.settings import from_stack_file
from tests.workloads.conftest import ROOT
from tests.workloads.image.fake_tool import DIGEST, MOVED, VERSION
from workloads.cli import main
from workloads.exits import Exit, WorkloadError
from workloads.image import tools
from workloads.image.stack_file import image_of, with_image

GOOGLE = "us-central1-docker.pkg.dev/my-project/ray/ray-gke"
ECR = "111122223333.dkr.ecr.us-east-2.amazonaws.com/ray-efa"
IN_S3 = ("--project", "builder")
PUSHING = [("docker", GOOGLE), ("buildah", GOOGLE), ("podman", GOOGLE), ("cloud-build", GOOGLE), ("codebuild", ECR)]
PROGRAMS = {"cloud-build": "gcloud", "codebuild": "aws"}


class Bench:
    """A folder with stack files, and fake tools as the only programs on PATH."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.record, self._patch = folder, folder / "record", monkeypatch
        self.record.touch()
        (folder / "bin").mkdir()
        for name in ("gke", "gke-dws", "eks", "local"):
            shutil.copy(ROOT / f"Pulumi.{name}.yaml", folder)
        monkeypatch.setenv("PATH", str(folder / "bin"))
        monkeypatch.setenv("RECORD", str(self.record))
        monkeypatch.setattr(tools, "POLL_S", 0)

    def install(self, *names: str, fake: str = "") -> None:
        """Put tools on PATH that fail as `fake` names."""
        self._patch.setenv("FAKE", fake)
        for name in names:
            tool = self.folder / "bin" / PROGRAMS.get(name, name)
            tool.write_text(
                f"#!{sys.executable} -IS\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
                f"from tests.workloads.image.fake_tool import main\nprint(main({tool.name!r}, sys.argv[1:]))\n"
            )
            tool.chmod(0o700)

    def build(self, stack: str, *arguments: str) -> int:
        return main(["image", "build", "--stack-file", str(self.file(stack)), *arguments])

    def file(self, stack: str) -> Path:
        return self.folder / f"Pulumi.{stack}.yaml"

    @property
    def commands(self) -> list[list[str]]:
        """The recorded commands, without those that only show that a tool is installed."""
        found = [json.loads(line) for line in self.record.read_text().splitlines()]
        return [command for command in found if not {"version", "--version"} & {*command}]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


@pytest.mark.parametrize(("tool", "repository"), PUSHING)
def test_pushed_image_is_pinned(tool: str, repository: str, bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.install(tool)
    stack = "eks" if repository == ECR else "gke"
    before = bench.file(stack).read_text()
    bench.file(stack).chmod(0o640)
    assert bench.build(stack, "--push", "--repository", repository, *IN_S3) == Exit.OK
    out, err = capsys.readouterr()
    pinned = f"{repository}@{DIGEST}"
    assert out == f"{pinned}\n"
    assert "\n".join(" ".join(command) for command in bench.commands[:1]) in err.replace("'", "")
    after = bench.file(stack).read_text()
    assert image_of(after) == pinned
    # One line is changed or, where there was none, added; comments stay.
    old, new = before.splitlines(), after.splitlines()
    assert [line for line in new if line not in old] == [line for line in new if pinned in line]
    assert len(new) - len(old) == (stack == "eks")
    assert from_stack_file(bench.file(stack))
    assert bench.file(stack).stat().st_mode & 0o777 == 0o640
    assert not list((ROOT / "results").glob(".image-*"))


def test_commands_name_platform_stage_and_a_tag_of_the_code(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.install("docker")
    assert bench.build("gke-dws", "--push") == Exit.OK
    [command] = bench.commands
    image = command[command.index("--tag") + 1]
    assert image.startswith(f"{GOOGLE}:{OWN_TAG}-{version()}-"), "the repository is that of the stack file"
    assert command[command.index("--platform") + 1] == "linux/amd64"
    assert command[command.index("--target") + 1] == "ray-gke"
    capsys.readouterr()
    assert bench.build("gke-dws") == Exit.OK
    assert capsys.readouterr().out == f"{image}\n", "the same code has the same tag"
    assert "--load" in bench.commands[1]


def test_first_installed_tool_is_used(bench: Bench) -> None:
    bench.install("podman", "cloud-build")
    assert bench.build("gke-dws", "--push") == Exit.OK
    assert [command[0] for command in bench.commands] == ["podman", "podman"]


@pytest.mark.parametrize(("tool", "repository"), PUSHING)
def test_dry_run_prints_the_commands_and_runs_none(
    tool: str, repository: str, bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    before = bench.file("gke").read_bytes()
    options = ("--push", "--dry-run", "--tool", tool, "--repository", repository)
    assert bench.build("gke", *options, *IN_S3) == Exit.OK
    assert capsys.readouterr().out.startswith(PROGRAMS.get(tool, tool))
    assert bench.record.read_text() == ""
    assert bench.file("gke").read_bytes() == before


@pytest.mark.parametrize("fake", ["build", "push", "no-digest"])
@pytest.mark.parametrize(("tool", "repository"), PUSHING)
def test_failure_changes_nothing(
    tool: str, repository: str, fake: str, bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.install(tool, fake=fake)
    before = bench.file("gke").read_bytes()
    options = ("--push", "--tool", tool, "--repository", repository)
    assert bench.build("gke", *options, *IN_S3) == Exit.ERROR
    said = capsys.readouterr()
    assert "Pulumi.gke.yaml is unchanged" in said.err
    assert said.out == ""
    if fake == "push" and tool in ("docker", "buildah", "podman"):
        assert "gcloud auth configure-docker us-central1-docker.pkg.dev" in said.err
    assert bench.file("gke").read_bytes() == before
    assert sorted(path.name for path in bench.folder.iterdir() if path.name.startswith(".")) == []


@pytest.mark.parametrize(
    ("stack", "arguments", "says"),
    [
        ("gke", ["--push"], "--push: Pulumi.gke.yaml has no image in your repository"),
        ("gke", ["--repository", "https://example.com/ray"], "--repository https://example.com/ray: write registry"),
        ("gke", ["--repository", "example.com/ray:1"], "without a tag"),
        ("gke", ["--repository", "example.com/Ray"], "lower case"),
        ("local", [], "has target local"),
        ("gke-dws", ["--tool", "codebuild", "--push"], "--tool codebuild: it pushes only to Amazon ECR"),
        ("eks", ["--tool", "codebuild", "--push", "--repository", ECR], "choose its project with --project"),
        ("eks", ["--tool", "cloud-build", "--push", "--repository", ECR], "it pushes only to Google's registries"),
        ("gke", ["--tool", "cloud-build"], "add --push"),
        ("gke", ["--tool", "kaniko"], "--tool"),
        ("gke", ["--tool", "podman"], "there is no podman on PATH"),
        ("gke", [], "no tool can build"),
        ("nowhere", [], "cannot be read"),
    ],
)
def test_wrong_values(
    stack: str, arguments: list[str], says: str, bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.build(stack, *arguments) == Exit.ERROR
    said = capsys.readouterr()
    assert says in said.err
    assert said.out == ""
    assert bench.commands == []


def test_docker_without_buildx_is_not_used(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.install("docker", fake="not-installed")
    assert bench.build("gke") == Exit.ERROR
    assert "docker: `docker buildx version` fails: docker: no such plugin" in capsys.readouterr().err


def test_project_without_a_source_in_s3(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.install("codebuild", fake="no-project")
    assert bench.build("eks", "--push", "--repository", ECR, *IN_S3) == Exit.ERROR
    assert "--project builder: CodeBuild has no project of this name in us-east-2" in capsys.readouterr().err


def test_moved_tag_is_not_pinned(bench: Bench) -> None:
    """The registry's answer about a tag is of no use: whoever may push may have moved it."""
    bench.install("codebuild")
    assert bench.build("eks", "--push", "--repository", ECR, *IN_S3) == Exit.OK
    assert image_of(bench.file("eks").read_text()) == f"{ECR}@{DIGEST}"
    assert MOVED not in bench.file("eks").read_text()


def test_codebuild_reads_the_uploaded_version_of_the_source(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """Of two builds at the same time, or after an upload by somebody else, each builds its own code."""
    bench.install("codebuild")
    assert bench.build("eks", "--push", "--repository", ECR, *IN_S3) == Exit.OK
    [start] = [command for command in bench.commands if "start-build" in command]
    assert start[start.index("--source-version") + 1] == VERSION
    assert "keeps no versions" not in capsys.readouterr().err
    bench.install("codebuild", fake="no-versions")
    assert bench.build("eks", "--push", "--repository", ECR, *IN_S3) == Exit.OK
    assert "--source-version" not in bench.commands[-3]
    assert "bucket my-bucket keeps no versions" in capsys.readouterr().err


@pytest.mark.parametrize(("fake", "digest"), [("", DIGEST), ("no-digest", ""), ("push", None), ("build", None)])
def test_buildspec_exports_the_digest_of_its_push(fake: str, digest: str | None, bench: Bench) -> None:
    """CodeBuild ends a phase at the first command that fails, and exports the variables of its shell."""
    bench.install("docker", "codebuild", fake=fake)
    context = bench.folder / "context"
    for name in ("images", "infra", "workloads"):
        (context / name).mkdir(parents=True)
    (context / "pyproject.toml").touch()
    (context / "requirements-workloads.txt").touch()
    shutil.copy(ROOT / "images" / "Dockerfile", context / "images")
    spec = yaml.safe_load((ROOT / "images" / "buildspec.yml").read_text())
    [variable] = spec["env"]["exported-variables"]
    assert variable == tools.EXPORTED
    script = "\n".join(["set -e", *spec["phases"]["build"]["commands"], f'printf %s "${variable}"'])
    given = {"IMAGE": f"{ECR}:tag", "TARGET": "ray-efa", "REGION": "us-east-2"}
    done = subprocess.run(
        ["/bin/sh", "-c", script], cwd=context, env={**os.environ, **given}, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) is (digest is not None), done.stderr
    if digest is not None:
        assert done.stdout.rpartition("\n")[2] == digest


def test_stack_with_another_ray_is_refused_before_the_build(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.install("docker")
    file = bench.file("eks")
    file.write_text(file.read_text().replace("    idleMinutes: 15", '    version: "2.58.0"\n    idleMinutes: 15'))
    assert bench.build("eks", "--push", "--repository", ECR) == Exit.ERROR
    assert "ray.version is 2.58.0, but the image has Ray" in capsys.readouterr().err
    assert bench.commands == []


def test_new_image_may_fix_the_stack_files_problem(bench: Bench) -> None:
    """The stack file with its old image is invalid: the build is the fix, and must not be refused for it."""
    bench.install("docker")
    file = bench.file("gke-dws")
    file.write_text(file.read_text().replace(f"{GOOGLE}:{OWN_TAG}", f"rayproject/ray:{RAY}-gpu"))
    assert bench.build("gke-dws", "--push", "--repository", GOOGLE) == Exit.OK
    assert image_of(file.read_text()) == f"{GOOGLE}@{DIGEST}"


NEW = f"example.com/ray@{DIGEST}"


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("\n    image: a/b:1 # why\n    mode: job", f"\n    image: {NEW} # why\n    mode: job"),
        ("\n    image: 'a/b:1'", f"\n    image: {NEW}"),
        ('\n    "image": "a/b:1"   ', f'\n    "image": {NEW}   '),
        (" {image: a/b:1, mode: job}", f" {{image: {NEW}, mode: job}}"),
        ("\n    # why\n    mode: job", f"\n    # why\n    image: {NEW}\n    mode: job"),
        ("\n    image: >-\n      a/b:1\n    mode: job", None),
        (" {mode: job}", None),
        (" {}", None),
        ("", None),
        (' \'{"image": "a/b:1"}\'', None),
        ("\n    image:", None),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_only_the_image_changes(section: str, expected: str | None, end: str) -> None:
    form = "# first\nconfig:\n  rdma-ray:target: gke\n  rdma-ray:ray:{}\n  rdma-ray:protect: true # last\n"
    text = form.format(section).replace("\n", end)
    file = Path("Pulumi.x.yaml")
    if expected is None:
        with pytest.raises(WorkloadError, match=r"Pulumi\.x\.yaml.*(by hand|add it)"):
            with_image(text, NEW, file)
    else:
        assert with_image(text, NEW, file) == form.format(expected).replace("\n", end)


def test_section_is_missing() -> None:
    with pytest.raises(WorkloadError, match="has no map `rdma-ray:ray:`"):
        with_image("config:\n  rdma-ray:target: gke\n", NEW, Path("Pulumi.x.yaml"))


def test_environment_names_the_stack(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.install("docker")
    monkeypatch.setenv("STACK", "gke-ccc")
    assert main(["image", "build"]) == Exit.OK
    assert "ray-gke" in bench.commands[0]
