#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What the pfrag_pool tests share: two network namespaces, a link between them,
# a sender and a receiver that checks every byte, and a look at the kernel log
# after each case.
#
# Environment:
#   PFRAG_NETIFS	two devices of virtio_net or hns3 joined back to back,
#			which are taken and renamed: run over them as well
#   PFRAG_LINKS	links to run over (nsim, and with PFRAG_NETIFS the name of
#			their driver)
#   PFRAG_BASELINE	1: run on a kernel that has no pfrag_pool, and see
#			what it makes of the traffic
#   PFRAG_EXPECT_HITS	no: the pool is to be refused over PFRAG_NETIFS (with
#			swiotlb=force, say)
#   PFRAG_CASES	regular expression: run the cases whose names match
#   KSFT_MACHINE_SLOW	yes: send fewer bytes

cd "$(dirname "$(readlink -e "$0")")" || exit 1
# shellcheck source=/dev/null
source ../lib.sh

netif_driver()
{
	basename "$(readlink -e "/sys/class/net/$1/device/driver")"
}

: "${PFRAG_LINKS:=nsim${PFRAG_NETIFS:+ $(netif_driver "${PFRAG_NETIFS%% *}")}}"
: "${PFRAG_BASELINE:=0}"
: "${PFRAG_EXPECT_HITS:=yes}"
: "${PFRAG_CASES:=.}"

SYSCTL=net/ipv4/tcp_use_pfrag_pool
PORT=5201
TX4=192.0.2.1
RX4=192.0.2.2
TX6=2001:db8::1
RX6=2001:db8::2
# Seconds without progress after which a flow counts as stuck
PATIENCE=120

NSIM_TX_ID=$((1000 + RANDOM % 1000))
NSIM_RX_ID=$((2000 + RANDOM % 1000))

BAD_LOG='WARNING:|BUG:|BUG |KASAN|KFENCE|UBSAN|DMA-API|Oops|Call Trace'
BAD_LOG+='|INFO: (possible|task|rcu|trying|inconsistent|suspicious)'
BAD_LOG+='|possible (recursive|circular|irq|deadlock)|suspicious RCU'
BAD_LOG+='|inconsistent lock|invalid wait context|general protection'
BAD_LOG+='|refcount_t|list_(add|del) corruption|[Bb]ad page|page dumped'
BAD_LOG+='|stalled pool shutdown|[Pp]age pool leak|memory leak'
BAD_LOG+='|DMAR: .*fault|unregister_netdevice: waiting|soft lockup'
BAD_LOG+='|event 0x[0-9a-f]+ received|Unhandled context fault|IO_PAGE_FAULT'
BAD_LOG+='|fault from EP|hns3_sim fault'
BAD_LOG+='|swiotlb buffer is full|leaked|scheduling while atomic'

##############################################################################
# Prerequisites

skip_all()
{
	echo "SKIP: $*"
	exit "$ksft_skip"
}

have_pool()
{
	[ -e "/proc/sys/$SYSCTL" ]
}

require()
{
	local cmd

	[ "$EUID" -eq 0 ] || skip_all "these tests need root"
	for cmd in ip tc ethtool jq nstat ping nsenter taskset; do
		command -v "$cmd" > /dev/null ||
			skip_all "$cmd is not installed"
	done
	for cmd in ./pfrag_io ./pfrag_xdp ./pfrag_pools ./pfrag_hds; do
		[ -x "$cmd" ] ||
			skip_all "$cmd is not built: run make here first"
	done
	if ! have_pool && [ "$PFRAG_BASELINE" != 1 ]; then
		skip_all "this kernel has no net.ipv4.tcp_use_pfrag_pool:" \
			 "CONFIG_PFRAG_POOL is off, or the patches are missing"
	fi

	TMP=$(mktemp -d)
	exec {SNOOZE}<> <(:)
	if have_pool; then
		SAVED_SETTING=$(cat "/proc/sys/$SYSCTL")
	fi
	trap cleanup EXIT
}

cleanup()
{
	local pids

	pids=$(jobs -p)
	# shellcheck disable=SC2086
	[ -n "$pids" ] && kill $pids 2> /dev/null
	defer_scopes_cleanup
	[ -n "$SAVED_SETTING" ] && echo "$SAVED_SETTING" > "/proc/sys/$SYSCTL"
	rm -rf "$TMP"
}

# Bytes for a transfer: MiB on a fast machine, an eighth of that on a slow one
mib()
{
	local n=$(($1 << 20))

	[ "$KSFT_MACHINE_SLOW" = yes ] && n=$((n / 8))
	echo "$n"
}

# "ip netns exec" also makes a mount namespace, which takes several times as
# long; and waiting by lib.sh's functions starts some programs for each look.
# Under emulation with KASAN both count.
in_ns()
{
	nsenter "--net=/run/netns/$1" "${@:2}"
}

snooze()
{
	read -rt "$1" -u "$SNOOZE"
	return 0
}

# seconds, condition
wait_for()
{
	local end=$((SECONDS + $1)); shift

	until "$@"; do
		((SECONDS < end)) || return 1
		snooze 0.1
	done
}

##############################################################################
# The setting and its counters

# Set the first namespace's and those of the link. The pool is made by a work
# item: wait for it.
pool_set()
{
	local ns

	have_pool || return 0
	echo "$1" > "/proc/sys/$SYSCTL" || return
	for ns in "$TXNS" "$RXNS"; do
		ns_there "$ns" || continue
		ns_set "$ns" "$1" || return
	done
	[ "$1" = 1 ] && [ -n "$TXNS" ] && ! pool_refused || return 0
	wait_for 30 pool_is_there
	check_err $? "no pool came up for the device"
}

ns_there()
{
	[ -n "$1" ] && [ -e "/run/netns/$1" ]
}

pool_is_there()
{
	in_ns "$TXNS" ./pfrag_pools | awk '
		$3 == 0 && $6 == "attached" { found = 1 }
		END { exit !found }'
}

ns_set()
{
	have_pool || return 0
	in_ns "$1" sh -c "echo $2 > /proc/sys/$SYSCTL"
}

# Sum of the TcpExt counters of a namespace whose names match. nstat and awk
# would take several times as long, and this is done around each transfer.
counter()
{
	local names values i sum=0

	while read -ra names && read -ra values; do
		[ "${names[0]}" = TcpExt: ] || continue
		for ((i = 1; i < ${#names[@]}; i++)); do
			# shellcheck disable=SC2053
			[[ ${names[i]} == $2 ]] && ((sum += values[i]))
		done
	done < <(in_ns "$1" cat /proc/net/netstat)
	echo "$sum"
}

hits()
{
	counter "${SENDER_NS:-$TXNS}" TCPPfragPoolFrags
}

fallbacks()
{
	counter "$TXNS" 'TCPPfragFallback*'
}

pool_refused()
{
	[ "$PFRAG_EXPECT_HITS" = no ] && [ "$LINK" != nsim ]
}

hits_beyond()
{
	(($(hits) > $1))
}

expect_hits()
{
	have_pool || return 0
	if pool_refused; then
		expect_no_hits "$1"
		return
	fi
	hits_beyond "$1" ||
		check_err 1 "no fragment came from a pool: $(fallback_reasons)"
}

expect_no_hits()
{
	local now

	now=$(hits)
	((now == $1))
	check_err $? "$((now - $1)) fragments came from a pool"
}

fallback_reasons()
{
	in_ns "$TXNS" nstat -as |
		awk '/TCPPfrag/ { printf "%s=%s ", $1, $2 }'
}

# Pools that belong to no NAPI, as the TX pools do: id inflight bytes state
tx_pools()
{
	{
		./pfrag_pools
		ns_there "$TXNS" && in_ns "$TXNS" ./pfrag_pools
		ns_there "$RXNS" && in_ns "$RXNS" ./pfrag_pools
	} 2> /dev/null | awk '$3 == 0 { print $1, $4, $5, $6 }' | sort -u
}

pools_text()
{
	echo "id pages bytes state: $(tx_pools | tr '\n' ';')"
}

tx_pool_pages()
{
	tx_pools | awk '{ sum += $2 } END { print sum + 0 }'
}

tx_pool_bytes()
{
	tx_pools | awk '{ sum += $3 } END { print sum + 0 }'
}

no_detached_pool()
{
	! tx_pools | grep -q detached
}

# Pages that virtio_net may keep for heads while the setting is on: enough for
# each entry of the rings of all its queues
driver_pages()
{
	local ns dev sum=0

	[ "$LINK" = virtio_net ] || { echo 0; return; }
	for dev in pftx pfrx; do
		[ $dev = pftx ] && ns=$TXNS || ns=$RXNS
		ns_there "$ns" || continue
		((sum += $(ring_max "$ns" $dev TX) / 64 *
			 $(queues_max "$ns" $dev)))
	done
	echo $sum
}

tx_pools_idle()
{
	(($(tx_pool_pages) <= ${1:-0}))
}

# What virtio_net keeps goes when the device is closed
link_cycle()
{
	local side ns

	for side in tx rx; do
		[ $side = tx ] && ns=$TXNS || ns=$RXNS
		ns_there "$ns" || continue
		ip -n "$ns" link set dev pf$side down
		ip -n "$ns" link set dev pf$side up
	done
	! ns_there "$TXNS" || wait_for 20 link_joined
}

# All sockets are gone: while the setting is on, a pool empties itself within
# seconds but for what its driver keeps; when it is off, it holds not a page.
expect_pools_empty()
{
	have_pool || return 0
	wait_for 60 tx_pools_idle "$(driver_pages)" ||
		check_err 1 "pages left in idle TX pools, $(pools_text)"
	pool_set 0
	[ "$LINK" != virtio_net ] || link_cycle
	check_err $? "the link did not come back"
	wait_for 30 tx_pools_idle ||
		check_err 1 "pages left in TX pools when off, $(pools_text)"
}

##############################################################################
# The link

ring_max()
{
	in_ns "$1" ethtool -g "$2" | awk -v w="$3:" '$1 == w { print $2; exit }'
}

queues_max()
{
	local n

	n=$(in_ns "$1" ethtool -l "$2" 2> /dev/null |
		awk '/Combined:/ { print $2; exit }')
	[[ $n =~ ^[0-9]+$ ]] && echo "$n" || echo 1
}

# As it was called
netif_name()
{
	local names

	read -ra names <<< "$PFRAG_NETIFS"
	[ "$1" = tx ] && echo "${names[0]}" || echo "${names[1]}"
}

# The device that does DMA: for virtio, what the virtio device sits on. A virtio
# device has another number when it comes back.
netif_dma_dev()
{
	local dir

	dir=$(readlink -e "/sys/class/net/$1/device")
	[ "$LINK" = virtio_net ] && dirname "$dir" || echo "$dir"
}

# Where a device of the link is now, whatever namespace and name it got
dev_path()
{
	case $LINK,$1 in
	nsim,tx) echo "/sys/bus/netdevsim/devices/netdevsim$NSIM_TX_ID" ;;
	nsim,rx) echo "/sys/bus/netdevsim/devices/netdevsim$NSIM_RX_ID" ;;
	virtio_net,tx) echo "$DMA_TX"/virtio* ;;
	virtio_net,rx) echo "$DMA_RX"/virtio* ;;
	hns3,tx) echo "$DMA_TX" ;;
	hns3,rx) echo "$DMA_RX" ;;
	esac
}

# Its name, seen from the first namespace
dev_name()
{
	local dir

	for dir in "$(dev_path "$1")"/net/*; do
		[ -e "$dir" ] && echo "${dir##*/}" && return
	done
	return 1
}

dev_there()
{
	dev_name "$1" > /dev/null
}

dev_driver()
{
	case $LINK in
	nsim) echo /sys/bus/netdevsim/drivers/netdevsim ;;
	virtio_net) echo /sys/bus/virtio/drivers/virtio_net ;;
	hns3) echo /sys/bus/pci/drivers/hns3 ;;
	esac
}

dev_unbind()
{
	basename "$(dev_path "$1")" > "$(dev_driver)/unbind"
}

dev_bind()
{
	basename "$(dev_path "$1")" > "$(dev_driver)/bind"
	wait_for 10 dev_there "$1"
}

# The same with the device that does DMA, whose end is the pool's
dma_dev_unbind()
{
	DMA_DRIVER=$(readlink -e "$DMA_TX/driver") &&
		echo "${DMA_TX##*/}" > "$DMA_DRIVER/unbind"
}

dma_dev_bind()
{
	echo "${DMA_TX##*/}" > "$DMA_DRIVER/bind"
	wait_for 10 dev_there tx
}

# Bring a device into its namespace: tx or rx
dev_adopt()
{
	local side=$1
	local ns name a4 a6 mac

	if [ "$side" = tx ]; then
		ns=$TXNS a4=$TX4 a6=$TX6 mac=02:00:00:00:00:01
	else
		ns=$RXNS a4=$RX4 a6=$RX6 mac=02:00:00:00:00:02
	fi
	wait_for 10 dev_there "$side" || return
	name=$(dev_name "$side")
	ip link set dev "$name" netns "$ns" name "pf$side" || return
	# A NIC keeps its address when it is bound again, netdevsim draws a new
	# one: its peer would send to the old one for a minute
	[ "$LINK" != nsim ] ||
		ip -n "$ns" link set dev "pf$side" address $mac || return
	ip -n "$ns" addr replace "$a4/24" dev "pf$side" &&
		ip -n "$ns" addr replace "$a6/64" dev "pf$side" nodad &&
		ip -n "$ns" link set dev "pf$side" up || return
	# going down took the IPv6 address away
	ip -n "$ns" addr replace "$a6/64" dev "pf$side" nodad
}

nsim_join()
{
	local fda fdb ia ib

	ia=$(ip -n "$TXNS" -j link show pftx | jq '.[0].ifindex')
	ib=$(ip -n "$RXNS" -j link show pfrx | jq '.[0].ifindex')
	exec {fda}< "/run/netns/$TXNS" {fdb}< "/run/netns/$RXNS"
	# those that came back together from a namespace still are linked
	echo "$fda:$ia" 2> /dev/null > /sys/bus/netdevsim/unlink_device
	echo "$fda:$ia $fdb:$ib" > /sys/bus/netdevsim/link_device
	local ret=$?
	exec {fda}<&- {fdb}<&-
	return $ret
}

link_joined()
{
	in_ns "$TXNS" ping -c 1 -W 1 -q "$RX4" > /dev/null &&
		in_ns "$TXNS" ping -6 -c 1 -W 1 -q "$RX6" > /dev/null
}

# Devices come back to the first namespace when theirs goes
link_leave()
{
	local side ns

	for side in tx rx; do
		[ $side = tx ] && ns=$TXNS || ns=$RXNS
		ns_there "$ns" || continue
		ip -n "$ns" link set dev pf$side down 2> /dev/null
		[ "$LINK" != nsim ] &&
			ip -n "$ns" link set dev pf$side netns 1 \
				name "$(netif_name $side)" 2> /dev/null
		cleanup_ns "$ns"
	done
	if [ "$LINK" = nsim ]; then
		echo "$NSIM_TX_ID" > /sys/bus/netdevsim/del_device
		echo "$NSIM_RX_ID" > /sys/bus/netdevsim/del_device
	fi 2> /dev/null
	TXNS="" RXNS=""
}

# Sets LINK_SKIP to the reason when the link is not to be had
nsim_find()
{
	modprobe -q netdevsim
	if [ ! -e /sys/bus/netdevsim/new_device ]; then
		LINK_SKIP="netdevsim is missing (CONFIG_NETDEVSIM)"
		return 1
	fi
	echo "$NSIM_TX_ID 1 2" > /sys/bus/netdevsim/new_device &&
		echo "$NSIM_RX_ID 1 2" > /sys/bus/netdevsim/new_device
}

netif_find()
{
	local name found=()

	read -ra found <<< "$PFRAG_NETIFS"
	LINK_SKIP="PFRAG_NETIFS has to name two $LINK devices that are joined"
	LINK_SKIP+=" back to back, and down; it is '$PFRAG_NETIFS'"
	[ ${#found[@]} -eq 2 ] || return
	for name in "${found[@]}"; do
		[ "$(netif_driver "$name")" = "$LINK" ] &&
			! ip_link_is_up "$name" || return
	done
	DMA_TX=$(netif_dma_dev "${found[0]}")
	DMA_RX=$(netif_dma_dev "${found[1]}")
}

virtio_net_find()
{
	netif_find
}

hns3_find()
{
	netif_find
}

link_adopt()
{
	local ns

	setup_ns TXNS RXNS || return
	# An orphaned socket keeps its fragments, and its namespace, until it
	# gives up: let that be soon
	for ns in "$TXNS" "$RXNS"; do
		in_ns "$ns" sysctl -qw \
			net.ipv4.tcp_orphan_retries=1 \
			net.ipv6.conf.all.keep_addr_on_down=1 \
			net.ipv6.conf.default.keep_addr_on_down=1
	done
	dev_adopt tx && dev_adopt rx || return
	[ "$LINK" != nsim ] || nsim_join || return
	wait_for 20 link_joined
}

link_setup()
{
	LINK=$1
	LINK_SKIP="the two ends of the link do not reach each other"
	TXNS="" RXNS=""
	# before anything is made: half a link is to be cleaned up too
	defer link_leave
	"$1_find" && link_adopt
}

##############################################################################
# Traffic

# options of pfrag_io -l; FLOWS is the number of flows at both ends
rx_start()
{
	: > "$TMP/rx"
	nsenter "--net=/run/netns/${RECEIVER_NS:-$RXNS}" \
		./pfrag_io -l -p $PORT \
		-n "${FLOWS:-1}" -P "$TMP/rx" "$@" > "$TMP/rx.log" 2>&1 &
	RX_PID=$!
	wait_for 20 test -s "$TMP/rx"
}

# address, then options of pfrag_io -c
tx_start()
{
	: > "$TMP/tx"
	nsenter "--net=/run/netns/${SENDER_NS:-$TXNS}" \
		./pfrag_io -c "$1" -p $PORT -n "${FLOWS:-1}" -t $PATIENCE \
		-P "$TMP/tx" "${@:2}" > "$TMP/tx.log" 2>&1 &
	TX_PID=$!
}

tx_wait()
{
	local ret=0

	wait "$TX_PID" || ret=1
	if ((ret)); then
		stop_process "$RX_PID"
	else
		wait "$RX_PID" || ret=1
	fi
	((ret)) && cat "$TMP/tx.log" "$TMP/rx.log"
	return $ret
}

stop_process()
{
	{ kill "$1" && wait "$1"; } 2> /dev/null
	return 0
}

# The bytes so far, in PROGRESS: tx counts those acknowledged, rx those checked
progress()
{
	local n=0

	[ -s "$TMP/$1" ] && read -r n < "$TMP/$1"
	PROGRESS=$((10#$n))
}

progress_beyond()
{
	progress "$1"
	((PROGRESS > $2))
}

# Has the flow moved on by this many bytes from now?
flow_goes_on()
{
	progress tx
	wait_for $PATIENCE progress_beyond tx $((PROGRESS + 200000))
	check_err $? "the flow did not go on ${1:-}"
}

# address, options of the receiver as one word, options of the sender
transfer()
{
	# shellcheck disable=SC2086
	rx_start $2 || return
	tx_start "$1" "${@:3}"
	tx_wait
}

##############################################################################
# Cases

# check_err, and tell whether to go on: must $? "what failed" || return
must()
{
	local ret=$1

	check_err "$@"
	return "$ret"
}

skip_case()
{
	ret_set_ksft_status "$ksft_skip" "$*"
}

log_mark()
{
	MARK="pfrag_pool test $$ $RANDOM: $*"
	echo "$MARK" > /dev/kmsg
}

# What the kernel said since the mark
log_since_mark()
{
	local lines i

	mapfile -t lines < <(dmesg)
	for ((i = ${#lines[@]}; i-- > 0;)); do
		[[ ${lines[i]} == *"$MARK"* ]] && break
	done
	printf '%s\n' "${lines[@]:i + 1}"
}

# name, function, arguments
run_case()
{
	local name=$1; shift
	local log

	[[ $name =~ $PFRAG_CASES ]] || return 0
	RET=0
	retmsg=
	log_mark "$name $LINK"
	in_defer_scope "$@"
	log=$(log_since_mark)
	if [[ $log =~ $BAD_LOG ]]; then
		head -n 80 <<< "$log"
		check_err 1 "the kernel log has '${BASH_REMATCH[0]}'"
	fi
	log_test "$name" ${LINK:+"$LINK"}
}

# Each function over each link
run_links()
{
	local link

	for link in $PFRAG_LINKS; do
		RET=0
		retmsg=
		log_mark "set up $link"
		in_defer_scope run_link "$link" "$@"
	done
}

run_link()
{
	local link=$1; shift
	local fn

	if ! link_setup "$link"; then
		retmsg=$LINK_SKIP
		RET=$ksft_skip log_test "$(basename "$0")" "$link"
		return
	fi
	for fn in "$@"; do
		"$fn"
	done
}
