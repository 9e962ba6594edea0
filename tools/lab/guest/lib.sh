# SPDX-License-Identifier: GPL-2.0
# What the jobs of "make run" share. Sourced in the guest, in /job.

# The NIC number $1: its PCI device, its interface.
pci_of() { printf '0000:00:%02x.0' $((0x10 + $1)); }
dev_of() {
	local i dir
	dir=/sys/bus/pci/devices/$(pci_of "$1")
	for i in $(seq 100); do
		ls "$dir"/virtio*/net "$dir"/net 2>/dev/null | grep -o '^eth.*' && return
		sleep 0.05
	done
	echo "no interface on $(pci_of "$1")" >&2
	return 1
}

# Who is at the other end of NIC $1: "host" by a tap; or the guest itself, in a
# namespace with NIC $1 + 1, "hub" and "hns3".
peer_start() {
	[ "$peer" != host ] || return 0
	[ "$peer" != hns3 ] || modprobe hns3_sim || return
	ip netns add peer
	ip -n peer link set lo up
	(cd "${peer_dir:-/tmp}" && exec ip netns exec peer /job/txcount keep 5000 .) &
	ip netns exec peer iperf3 -s >/dev/null &
}

in_peer() { nsenter --net=/run/netns/peer "$@"; }
peer_dev() { ip -n peer -br link | awk '$1 ~ /^eth/ { print $1 }'; }

# Wait until NIC $1 reaches its peer.
reach() {
	local i
	for i in $(seq 50); do
		ping -c1 -W1 -q "10.1.$1.1" >/dev/null && return
	done
	echo "NIC $1 does not reach its peer" >&2
	return 1
}

# hns3's TX spare buffer: $2 bytes for NIC $1 and the peer, whose share are ACKs.
# The driver makes its rings anew.
spare_buffer() {
	ethtool --set-tunable "$(dev_of "$1")" tx-buf-size "$2" &&
		in_peer ethtool --set-tunable "$(peer_dev)" tx-buf-size "$2" &&
		reach "$1"
}

# Address and start NIC $1, and the peer's if it is here.
nic_up() {
	local dev
	dev=$(dev_of "$1") || return
	ip addr add "10.1.$1.2/24" dev "$dev"
	ip addr add "fd00:$1::2/64" dev "$dev" nodad
	ip link set "$dev" up
	if [ "$peer" != host ]; then
		dev=$(dev_of $(($1 + 1))) || return
		ip link set "$dev" netns peer
		ip -n peer addr add "10.1.$1.1/24" dev "$dev"
		ip -n peer link set "$dev" up
	fi
	reach "$1"
}

# Run a command while no driver is bound to NIC $1, nor to the peer's if it is
# here.
unbound() {
	local n nics=$1 pci driver
	[ "$peer" = host ] || nics="$1 $(($1 + 1))"
	for n in $nics; do
		pci=$(pci_of "$n")
		driver=$(readlink -e "/sys/bus/pci/devices/$pci/driver") || return
		echo "$pci" >"$driver/unbind"
	done
	"${@:2}" || return
	for n in $nics; do
		pci_of "$n" >"$driver/bind"
	done
	nic_up "$1"
}

group_type() { # type NIC...
	local n
	for n in "${@:2}"; do
		echo "$1" >"/sys/bus/pci/devices/$(pci_of "$n")/iommu_group/type" || return
	done
}

# Have the IOMMU treat NIC $1, and the peer's if it is here, as strict, lazy or
# passthrough from now on. The type of a group can only be changed while no
# driver is bound.
iommu_mode() {
	local nics=$1 type
	case $2 in
	strict) type=DMA ;;
	lazy) type=DMA-FQ ;;
	passthrough) type=identity ;;
	esac
	[ "$(cat "/sys/bus/pci/devices/$(pci_of "$1")/iommu_group/type")" != "$type" ] || return 0
	[ "$peer" = host ] || nics="$1 $(($1 + 1))"
	unbound "$1" group_type $type $nics
}

sysctl_file=/proc/sys/net/ipv4/tcp_use_pfrag_pool

# Switch the pool. Its creation is queued work: give it a moment.
setting() {
	[ "$1" = - ] && return 0
	echo "$1" >$sysctl_file || return
	[ "$peer" = host ] ||
		in_peer sh -c "echo $1 >$sysctl_file" || return
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
