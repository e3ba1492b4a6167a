#!/bin/bash
# Make the node's Lustre client use EFA. cloud-init runs this at every boot; nodeadm, which starts the kubelet, waits for
# it (amazon-eks-ami v20260724: nodeadm-run.service). The steps are those of FSx for Lustre's docs, configure-efa-clients,
# as GoogleCloudPlatform/PerfKitBenchmarker runs them (aws_disk_strategies.py, 561e34a5), read 2026-11. If one fails, the
# client uses TCP; /var/log/cloud-init-output.log has it. Lustre's modules read their settings when they are loaded, so
# nothing may load them before. GPUDirect Storage is not included: the node image has no nvidia-fs.
set -euo pipefail

# Signed, from Amazon Linux's repositories, which are in S3.
rpm -q lustre-client || dnf install -y lustre-client

# A P6-B300 also has InfiniBand devices of another driver. The order of the PCI bus puts neighbors of one GPU together.
devices=($(for device in /sys/class/infiniband/*; do
    if [[ $(readlink -f "$device/device/driver") == */efa ]]; then
        echo "$(readlink -f "$device/device") ${device##*/}"
    fi
done | sort | awk '{print $2}'))
count=${#devices[@]}
used=$((count < 8 ? count : 8)) # a file system accepts 1,024, those of 128 nodes
interface=$(ip -4 -o route show default | awk '{print $5; exit}')

modprobe lnet
modprobe kefalnd ipif_name="$interface"
modprobe ksocklnd
lnetctl lnet configure
lnetctl net del --net tcp || true
lnetctl net add --net tcp --if "$interface"
for ((number = 0; number < used; number++)); do
    lnetctl net add --net efa --if "${devices[number * count / used]}" --peer-credits 32
done
lnetctl set discovery 1
lnetctl udsp add --src efa --priority 0
modprobe lustre
lnetctl net show | grep '@efa'
