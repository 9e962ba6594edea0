# SPDX-License-Identifier: GPL-2.0
# What the jobs of "make run" share. Sourced in the guest, in /job.

# The NIC of a Tap or Hub number $1: its PCI device, its interface.
pci_of() { printf '0000:00:%02x.0' $((0x10 + $1)); }
dev_of() {
	local i
	for i in $(seq 100); do
		ls "/sys/bus/pci/devices/$(pci_of "$1")"/virtio*/net 2>/dev/null && return
		sleep 0.05
	done
	echo "no interface on $(pci_of "$1")" >&2
	return 1
}

# Address and start the NIC of Tap $1.
nic_up() {
	local dev
	dev=$(dev_of "$1") || return
	ip addr add "10.1.$1.2/24" dev "$dev"
	ip addr add "fd00:$1::2/64" dev "$dev" nodad
	ip link set "$dev" up
	return 0
}

# Have the IOMMU treat NIC $1 as strict, lazy or passthrough from now on. The
# type of a group can only be changed while no driver is bound.
iommu_mode() {
	local pci type
	pci=$(pci_of "$1")
	case $2 in
	strict) type=DMA ;;
	lazy) type=DMA-FQ ;;
	passthrough) type=identity ;;
	esac
	[ -e "/sys/bus/pci/devices/$pci/iommu_group" ] || return 1
	[ "$(cat "/sys/bus/pci/devices/$pci/iommu_group/type")" = "$type" ] && return 0
	echo "$pci" >/sys/bus/pci/drivers/virtio-pci/unbind
	echo "$type" >"/sys/bus/pci/devices/$pci/iommu_group/type" || return
	echo "$pci" >/sys/bus/pci/drivers/virtio-pci/bind
	nic_up "$1"
}

sysctl_file=/proc/sys/net/ipv4/tcp_use_pfrag_pool

# Switch the pool. Its creation is queued work: give it a moment.
setting() {
	[ "$1" = - ] && return 0
	echo "$1" >$sysctl_file || return
	sleep 0.2
}

# The pool's counters, as "nstat NAME VALUE" lines. Not by nstat, which rounds
# and lets long names run into their values.
pfrag_counters() {
	awk '$1 == "TcpExt:" {
		if (!seen++) { split($0, name); next }
		for (i = 2; i <= NF; i++)
			if (name[i] ~ /^TCPPfrag/)
				print "nstat", "TcpExt" name[i], $i
	}' /proc/net/netstat
}
