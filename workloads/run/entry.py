"""How the user's command starts: as a driver on the head, by torchrun on every node, or once per rank."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath, PurePosixPath

from workloads.exits import WorkloadError
from workloads.gang.options import Mode

# Options of torchrun (torch/distributed/run.py, 2.15). Underscores and unique prefixes are accepted as well.
_FLAGS = ("standalone", "module", "no-python", "run-path", "virtual-local-rank")
_COUNTS = ("nnodes", "nproc-per-node")
_WITH_VALUE = (
    *("monitor-interval", "start-method", "event-log-handler", "role", "log-dir", "redirects", "tee", "logs-specs"),
    *("log-line-prefix-template", "local-ranks-filter", "duplicate-stdout-filters", "duplicate-stderr-filters"),
    *("numa-binding", "signals-to-handle", "shutdown-timeout"),
)
_CONFLICTS = dict.fromkeys(
    ("rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf", "node-rank", "master-addr", "master-port", "local-addr"),
    "the launcher chooses the rendezvous and each node's rank once the nodes are placed: leave it out",
) | {"max-restarts": "one rank's failure ends the whole gang: write --max-restarts before the `--`"}
_OPTIONS = (*_FLAGS, *_COUNTS, *_WITH_VALUE, *_CONFLICTS)
_SHORT = {"m": "module", "r": "redirects", "t": "tee"}


@dataclass(frozen=True)
class Entry:
    """A command, with torchrun as `torchrun OPTIONS SCRIPT …` without its counts of nodes and ranks."""

    mode: Mode
    command: tuple[str, ...]
    nodes: int | None
    per_node: int | None


def entry_of(command: tuple[str, ...], nodes: int | None, per_node: int | None) -> Entry:
    """Return the entry of a command with `--nodes` and `--per-node`. WorkloadError if they contradict each other."""
    _check(command)
    if (after := _torchrun(command)) is not None:
        return _torchrun_entry(command, after, nodes, per_node)
    if nodes is not None:
        return Entry("ranks", command, nodes, per_node)
    if per_node is not None:
        raise WorkloadError(f"--per-node {per_node}: without --nodes the command runs once on the head: add --nodes 1")
    return Entry("driver", command, None, None)


def _check(command: tuple[str, ...]) -> None:
    if not command or not command[0]:
        raise WorkloadError("no command: write it after `--`, as in: rdma-ray run --nodes 2 -- python train.py")
    for word in command:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise WorkloadError(f"COMMAND: {word!a} is not UTF-8") from None
        if "\0" in word:
            raise WorkloadError(f"COMMAND: {word!a} contains a NUL byte, which no program's argument can")
    first = command[0]
    if re.match(r"[A-Za-z_]\w*=", first, re.ASCII):
        raise WorkloadError(f"COMMAND begins with {first}, which is not a program: set a variable with --env {first}")
    if len(command) == 1 and re.search(r"\s", first):
        raise WorkloadError(f"there is no program named {first!r}: remove the quotes, or use -- bash -c '…'")


def _torchrun(command: tuple[str, ...]) -> int | None:
    """Return the index after `torchrun` or `python -m torch.distributed.run`; None for another command."""
    program = PurePosixPath(command[0]).name
    if program == "torchrun":
        return 1
    if not re.fullmatch(r"python[\d.]*", program):
        return None
    for index, word in enumerate(command[1:], 1):
        if word == "-m":
            module = command[index + 1 : index + 2]
            if module == ("torch.distributed.launch",):
                raise WorkloadError("torch.distributed.launch is deprecated: write torchrun in its place")
            return index + 2 if module == ("torch.distributed.run",) else None
        if not word.startswith("-"):
            return None
    return None


def _torchrun_entry(command: tuple[str, ...], start: int, nodes: int | None, per_node: int | None) -> Entry:
    kept, counts = ["torchrun"], dict[str, str]()
    words = iter(command[start:])
    standalone = False
    for word in words:
        name, equals, value = word.partition("=")
        option = _option(name)
        if option is None:  # the script, or an option of a newer torchrun
            kept += [word, *words]
            break
        if reason := _CONFLICTS.get(option):
            raise WorkloadError(f"torchrun's {name}: {reason}")
        if option == "standalone":
            standalone = True
        elif option in _COUNTS:
            counts[option] = value if equals else next(words, "")
        elif option in _FLAGS or equals:
            kept.append(word)
        else:
            kept += [word, *([following] if (following := next(words, None)) is not None else [])]
    if len(kept) == 1:
        raise WorkloadError("torchrun without a script: write it after torchrun's options")
    nnodes, nproc = counts.get("nnodes"), counts.get("nproc-per-node")
    if nproc in ("gpu", "auto"):
        nproc = None
    chosen = _agreed("--nodes", nodes, "--nnodes", nnodes) or 1
    if standalone and chosen > 1:
        raise WorkloadError(f"torchrun's --standalone is for one node, but the run has {chosen}: omit it")
    return Entry("torchrun", tuple(kept), chosen, _agreed("--per-node", per_node, "--nproc-per-node", nproc))


def _option(word: str) -> str | None:
    """Return the full name of torchrun's option, without dashes; None if the word is none."""
    if word[:1] == "-" and word[1:2] in _SHORT and not word.startswith("--"):
        return _SHORT[word[1]]
    if not word.startswith("--"):
        return None
    name = word[2:].replace("_", "-")
    matches = [option for option in _OPTIONS if option.startswith(name)]
    return name if name in _OPTIONS else matches[0] if len(matches) == 1 else None


def _agreed(own: str, value: int | None, name: str, text: str | None) -> int | None:
    """Return the number that an option of `run` or torchrun's option gives. WorkloadError if the two differ."""
    if text is None:
        return value
    low, _, high = text.partition(":")
    if high and low != high:
        raise WorkloadError(f"torchrun's {name} {text}: a gang has a fixed size: write {name} {high}")
    if not low.isascii() or not low.isdecimal() or int(low[:9]) < 1 or len(low) > 9:
        raise WorkloadError(f"torchrun's {name} {text}: write a number of at least 1")
    if value is not None and value != int(low):
        raise WorkloadError(f"{own} {value} and torchrun's {name} {text} contradict each other: use only one of them")
    return int(low)


def name_of(command: tuple[str, ...]) -> str:
    """Return the name of the script in a command, or of its program."""
    scripts = [word for word in command if re.search(r"\.(py|sh)\Z", word)]
    return PurePath(scripts[0] if scripts else command[0]).name if command else ""
