"""The line `image:` of a stack file: read it, and change it without touching the rest of the file."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

from infra.settings import Settings, SettingsError, from_stack_file
from infra.settings.stack_file import read_config
from workloads.exits import WorkloadError

SECTION, KEY = "rdma-ray:ray", "image"


def read_text(file: Path) -> str:
    """Return the text of a stack file with its line ends. WorkloadError if it is not a readable stack file."""
    try:
        read_config(file)
    except SettingsError as problems:
        raise WorkloadError(str(problems)) from None
    return file.read_bytes().decode()


def target_of(text: str) -> object:
    """Return the target in the text of a stack file; None without one."""
    return yaml.safe_load(text)["config"].get("rdma-ray:target")


def image_of(text: str) -> str | None:
    """Return the image in the text of a stack file; None without one."""
    section = yaml.safe_load(text)["config"].get(SECTION)
    image = section.get(KEY) if isinstance(section, dict) else None
    return image if isinstance(image, str) else None


def with_image(text: str, image: str, file: Path) -> str:
    """Return the text with this image and everything else unchanged. WorkloadError if the file's form prevents it."""
    expected: dict[str, Any] = copy.deepcopy(yaml.safe_load(text))
    section = _section(text, file)
    fix = f"write it there by hand, as a line `{KEY}: {image}` below `{SECTION}:`"
    values = [value for key, value in section.value if key.value == KEY]
    if values:
        begin, end, new = values[0].start_mark.index, values[0].end_mark.index, image
    elif section.flow_style or not section.value:
        raise WorkloadError(f"{file.name}: {SECTION} has no block of settings that a line could be added to: {fix}")
    else:
        first = section.value[0][0].start_mark
        begin = end = first.index - first.column
        new = f"{' ' * first.column}{KEY}: {image}{chr(13) if chr(13) in text else ''}\n"
    edited = text[:begin] + new + text[end:]
    expected["config"][SECTION][KEY] = image
    try:
        same = yaml.safe_load(edited) == expected
    except yaml.YAMLError:
        same = False
    if not same:
        raise WorkloadError(f"{file.name}: ray.image is written in a form that cannot be changed safely: {fix}")
    return edited


def checked(text: str, file: Path, folder: Path) -> Settings:
    """Return the settings of a stack file with this text. WorkloadError with all of its problems.

    Args:
        folder: Empty folder for the text; the name of the file counts, because it contains the stack's.
    """
    draft = folder / file.name
    draft.write_bytes(text.encode())
    try:
        return from_stack_file(draft)
    except SettingsError as problems:
        raise WorkloadError(str(problems)) from None
    finally:
        draft.unlink()


def _section(text: str, file: Path) -> yaml.MappingNode:
    """Return the node of the settings `ray`."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    for name in ("config", SECTION):
        assert isinstance(node, yaml.MappingNode)
        node = next((value for key, value in node.value if key.value == name), None)
        if not isinstance(node, yaml.MappingNode):
            raise WorkloadError(f"{file.name} has no map `{SECTION}:`: add it with a line `{KEY}: …`, and try again")
    assert isinstance(node, yaml.MappingNode)
    return node
