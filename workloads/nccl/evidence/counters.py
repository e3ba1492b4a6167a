"""What the RDMA NICs of a node counted, read before and after a run.

Names: Linux, Documentation/ABI/stable/sysfs-class-infiniband (port_xmit_data and port_rcv_data count units of 4 bytes);
mlx5, NVIDIA's document on RDMA counters; EFA, Linux, drivers/infiniband/hw/efa/efa_verbs.c; all read in Nov 2026.
"""

from __future__ import annotations

from pathlib import Path

from workloads.nccl.evidence.facts import Counter

INFINIBAND = Path("/sys/class/infiniband")
WORD = 4  # bytes per unit of port_xmit_data and port_rcv_data

ERRORS = frozenset(
    (
        # of every NIC (counters/)
        "symbol_error",
        "link_error_recovery",
        "link_downed",
        "port_rcv_errors",
        "port_rcv_remote_physical_errors",
        "port_rcv_switch_relay_errors",
        "port_xmit_discards",
        "port_xmit_constraint_errors",
        "port_rcv_constraint_errors",
        "local_link_integrity_errors",
        "excessive_buffer_overrun_errors",
        "VL15_dropped",
        # of mlx5 (hw_counters/)
        "out_of_sequence",
        "out_of_buffer",
        "packet_seq_err",
        "local_ack_timeout_err",
        "rnr_nak_retry_err",
        "implied_nak_seq_err",
        "duplicate_request",
        "req_cqe_error",
        "resp_cqe_error",
        "req_remote_access_errors",
        "resp_remote_access_errors",
        "req_remote_invalid_request",
        "resp_local_length_error",
        "req_transport_retries_exceeded",
        "roce_adp_retrans",
        "roce_adp_retrans_to",
        "roce_slow_restart",
        "rx_icrc_encapsulated",
        # of EFA (hw_counters/)
        "rx_drops",
        "retrans_bytes",
        "retrans_pkts",
        "retrans_timeout_events",
        "unresponsive_remote_events",
        "impaired_remote_conn_events",
        "rdma_read_wr_err",
        "rdma_write_wr_err",
    )
)
CONGESTION = frozenset(
    [
        "np_cnp_sent",
        "rp_cnp_handled",
        "rp_cnp_ignored",
        "np_ecn_marked_roce_packets",
        "roce_slow_restart_cnps",
        "port_xmit_wait",
    ]
)
DETAILS = frozenset(
    ["send_bytes", "recv_bytes", "rdma_read_bytes", "rdma_read_resp_bytes", "rdma_write_bytes", "rdma_write_recv_bytes"]
)
SENT, RECEIVED = ("port_xmit_data", "tx_bytes"), ("port_rcv_data", "rx_bytes")  # every NIC; EFA

Reading = dict[str, dict[str, int]]
"""Counters by name, by NIC: `mlx5_0`, and `mlx5_0:2` for the second port of one with several."""


def read(root: Path = INFINIBAND) -> Reading | None:
    """What the NICs under `root` say now; None where there is none. A counter that cannot be read is left out."""
    found: Reading = {}
    for port in ports(root):
        counters = {}
        for folder in ("counters", "hw_counters"):
            for file in _entries(port / folder):
                value = _number(file)
                if value is not None:
                    counters[file.name] = value
        found[port_name(port)] = counters
    return found or None


def ports(root: Path) -> list[Path]:
    """The folders of all ports under `root` (/sys/class/infiniband), by name and number."""
    return [port for device in _entries(root) for port in _entries(device / "ports")]


def port_name(port: Path) -> str:
    device = port.parent.parent.name
    return device if len(_entries(port.parent)) == 1 else f"{device}:{port.name}"


def difference(before: Reading, after: Reading) -> tuple[list[Counter], list[str]]:
    """Each NIC's counters, after minus before; and what is to be said of NICs that came or went."""
    notes = [f"NIC {name} was there before the run and not after it" for name in before if name not in after]
    notes += [f"NIC {name} was there after the run and not before it" for name in after if name not in before]
    return [_counter(name, before[name], after[name]) for name in before if name in after], notes


def _counter(nic: str, before: dict[str, int], after: dict[str, int]) -> Counter:
    resets = [False]

    def moved(name: str) -> int:
        if name not in before or name not in after:
            return 0
        delta, reset = _since(before[name], after[name])
        resets.append(reset)
        return delta

    def those(names: frozenset[str]) -> dict[str, int]:
        return {name: delta for name in sorted(names & before.keys()) if (delta := moved(name))}

    def data(names: tuple[str, str]) -> int:
        words, of_efa = names
        return moved(words) * WORD if words in before and words in after else moved(of_efa)

    return Counter(
        nic=nic,
        sent=data(SENT),
        received=data(RECEIVED),
        errors=those(ERRORS),
        congestion=those(CONGESTION),
        details=those(DETAILS),
        reset=any(resets),
    )


def _since(before: int, after: int) -> tuple[int, bool]:
    """How far a counter went, and whether it began again at zero.

    One that is lower than before went through the end of its 32 or 64 bits, if that makes a small step; else the NIC or
    its driver was restarted, and the counter tells what came after that.
    """
    if after >= before:
        return after - before, False
    bits = 32 if before < 2**32 else 64
    step = (after - before) % 2**bits
    return (step, False) if step < 2 ** (bits - 1) else (after, True)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []  # no such folder: no NIC, or one that has just gone


def _number(file: Path) -> int | None:
    try:
        text = file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None  # a counter that this NIC lists and refuses to tell
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 20 else None  # else `N/A (no PMA)`
