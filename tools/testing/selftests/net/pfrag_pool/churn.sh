#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The device goes down, changes its queues, gets XDP, loses its driver or its
# namespace while flows run with the setting on: nothing is leaked, no byte is
# wrong, and flows go on where they would without the pool.

# shellcheck source=/dev/null
source "$(dirname "$0")/pfrag_lib.sh"

MIX=write,more,splice,sendfile,zerocopy

TX() { in_ns "$TXNS" "$@"; }

# A flow without an end, until flow_end
flow_start()
{
	pool_set 1
	rx_start
	FLOWS=1 tx_start "${1:-$RX4}" -d 1000 -w 1:256K -m $MIX
	flow_goes_on "at its start"
}

# After what takes the pool from the netdev for a while, or the driver's memory
flow_uses_pool()
{
	local before

	pool_set 1
	before=$(hits)
	flow_goes_on "$1"
	# what arrives first may have been written before
	have_pool && ! pool_refused && wait_for 30 hits_beyond "$before"
	expect_hits "$before"
}

flow_end()
{
	kill -USR1 "$TX_PID"
	tx_wait
	check_err $? "the flow did not end well"
}

link_down_up()
{
	local addr=$1 ns=$2 dev=$3
	local i

	flow_start "$addr"
	for i in 1 2 3; do
		ip -n "$ns" link set $dev down
		sleep 0.3
		ip -n "$ns" link set $dev up
		flow_uses_pool "after link down and up, round $i"
	done
	flow_end
}

channels()
{
	local i n

	if [ "$(queues_max "$TXNS" pftx)" -lt 2 ]; then
		skip_case "the device has one queue only"
		return
	fi
	flow_start
	for i in 1 2 3; do
		for n in 1 2; do
			TX ethtool -L pftx combined $n
			check_err $? "ethtool -L combined $n"
		done
		flow_uses_pool "with other queues, round $i"
	done
	flow_end
}

# Down to rings so small that a packet takes a good part of one
rings()
{
	local rx tx i size small="64 32"

	rx=$(ring_max "$TXNS" pftx RX) tx=$(ring_max "$TXNS" pftx TX)
	[[ $rx =~ ^[0-9]+$ && $tx =~ ^[0-9]+$ ]]
	must $? "ethtool -g" || return
	# its least is 72
	[ "$LINK" = hns3 ] && small="128 72"
	((rx = rx > 1024 ? 1024 : rx, tx = tx > 1024 ? 1024 : tx))
	if ! TX ethtool -G pftx tx $((tx / 2)) 2> /dev/null; then
		skip_case "the device has no other rings"
		return
	fi
	TX ethtool -G pftx tx "$tx"
	flow_start
	for i in 1 2; do
		for size in $((tx / 2)) $small $tx; do
			TX ethtool -G pftx rx $((rx / i)) tx $size
			check_err $? "ethtool -G $((rx / i)) $size"
			flow_goes_on "with a TX ring of $size, round $i"
		done
	done
	flow_uses_pool "with the rings it had"
	flow_end
	TX ethtool -G pftx rx "$rx" tx "$tx"
}

nsim_queue_reset()
{
	local file mode

	file=/sys/kernel/debug/netdevsim/netdevsim$NSIM_TX_ID/ports/0
	file+=/queue_reset
	if [ ! -e "$file" ]; then
		skip_case "no debugfs"
		return
	fi
	flow_start
	for mode in 0 1 2 3; do
		echo "0 $mode" > "$file"
		check_err $? "queue reset, mode $mode"
		flow_goes_on "after a queue reset, mode $mode"
	done
	flow_end
}

# Pools that are listed with a netdev: all, or those without a NAPI
pools_of()
{
	./pfrag_pools | awk -v i="$(cat "/sys/class/net/$1/ifindex")" \
		-v tx="$2" '$2 == i && (!tx || !$3) { n++ } END { print n + 0 }'
}

pools_are()
{
	(($(pools_of "$1" "$3") == $2))
}

# Two ports share a pool. The one that it is listed with goes: it is listed with
# the other one, and hides none of that one's own, younger pools.
nsim_ports()
{
	local id=$((3000 + RANDOM % 1000)) dir dev a="" b="" n

	dir=/sys/bus/netdevsim/devices/netdevsim$id
	pool_set 1
	echo "$id 2 2" > /sys/bus/netdevsim/new_device
	must $? "no netdevsim with two ports" || return
	defer eval "echo $id > /sys/bus/netdevsim/del_device"
	for dev in "$dir"/net/*; do
		case $(cat "$dev/phys_port_name") in
		p1) a=${dev##*/} ;;
		p2) b=${dev##*/} ;;
		esac
	done
	[ -n "$a" ] && [ -n "$b" ]
	must $? "the ports have no names" || return
	ip link set "$a" up
	wait_for 20 pools_are "$a" 1 tx ||
		check_err 1 "no TX pool: $(./pfrag_pools)"
	ip link set "$b" up
	n=$(pools_of "$b")
	check_err $((n == 0)) "no RX pool: $(./pfrag_pools)"
	echo 0 > "$dir/del_port"
	wait_for 20 pools_are "$b" $((n + 1))
	check_err $? "pools when the first port is gone: $(./pfrag_pools)"
}

# Attach and detach: drv, generic, xsk
xdp()
{
	local i pid

	flow_start
	for i in 1 2 3; do
		nsenter "--net=/run/netns/$TXNS" ./pfrag_xdp pftx "$1" \
			> "$TMP/xdp.log" 2>&1 &
		pid=$!
		defer stop_process $pid
		wait_for 20 grep -q . "$TMP/xdp.log"
		if ! grep -q attached "$TMP/xdp.log"; then
			skip_case "$(< "$TMP/xdp.log")"
			break
		fi
		# a queue that is bound to an AF_XDP socket receives nothing
		# but what it gets from there
		[ "$1" = xsk ] || flow_goes_on "with XDP $1, round $i"
		stop_process $pid
		flow_uses_pool "after XDP $1, round $i"
	done
	log_info "XDP $1: $(< "$TMP/xdp.log")"
	flow_end
}

# Fragments wait in the retransmit queue of a flow whose peer does not read
stuck_flow_start()
{
	pool_set 1
	rx_start -q 65536 -B 65536
	tx_start "${1:-$RX4}" -b "$(mib 8)" -w 1:256K
	wait_for 20 progress_beyond rx 65535
	check_err $? "the flow did not start"
	sleep 1
}

stuck_flow_end()
{
	kill -USR1 "$RX_PID"
	tx_wait
	check_err $? "the flow did not go on after unbind and bind"
	wait_for 30 no_detached_pool ||
		check_err 1 "a pool does not end: $(pools_text)"
}

rebind()
{
	local addr=$1

	stuck_flow_start "$addr"
	dev_unbind tx
	check_err $? "unbind"
	sleep 2
	dev_bind tx
	check_err $? "bind"
	dev_adopt tx && { [ "$LINK" != nsim ] || nsim_join; }
	check_err $? "the device did not come back"
	stuck_flow_end
}

rebind_in_full_flow()
{
	local i

	flow_start
	for i in 1 2 3; do
		dev_unbind tx
		sleep 0.2
		dev_bind tx
		dev_adopt tx && { [ "$LINK" != nsim ] || nsim_join; }
		check_err $? "the device did not come back"
		flow_uses_pool "after unbind and bind, round $i"
	done
	flow_end
	wait_for 30 no_detached_pool ||
		check_err 1 "a pool does not end: $(pools_text)"
}

# The device that the pages are mapped for loses its driver: the fragments that
# wait for their acknowledgment must be mapped anew when it comes back
rebind_dma_dev()
{
	local addr=$1 before

	stuck_flow_start "$addr"
	dma_dev_unbind
	check_err $? "unbind of the device that does DMA"
	wait_for 10 pool_is_detached ||
		check_err 1 "the pool did not go with its device: $(pools_text)"
	sleep 2
	dma_dev_bind
	dev_adopt tx
	check_err $? "the device did not come back"
	stuck_flow_end
	pool_set 1
	before=$(hits)
	transfer "$addr" "" -b "$(mib 2)"
	check_err $? "transfer afterwards failed"
	expect_hits "$before"
}

pool_is_detached()
{
	pool_refused || ! no_detached_pool
}

rebind_peer()
{
	flow_start
	dev_unbind rx
	sleep 0.2
	dev_bind rx
	dev_adopt rx && { [ "$LINK" != nsim ] || nsim_join; }
	check_err $? "the device did not come back"
	flow_goes_on "after the peer's unbind and bind"
	flow_end
}

# The driver is gone, the flow stays stuck for longer than page_pool's warning
# takes, then its process dies.
unbind_and_wait()
{
	stuck_flow_start
	dev_unbind tx
	check_err $? "unbind"
	sleep 66
	log_info "stuck for 66 s: $(pools_text)"
	{ kill -KILL "$TX_PID" && wait "$TX_PID"; } 2> /dev/null
	stop_process "$RX_PID"
	cleanup_ns "$TXNS" "$RXNS"
	wait_for 60 no_detached_pool ||
		check_err 1 "a pool does not end: $(pools_text)"
	dev_bind tx
	check_err $? "bind"
	TXNS="" RXNS=""
	link_adopt
	check_err $? "the link did not come back"
}

netns_gone()
{
	stuck_flow_start "$1"
	{ kill -KILL "$TX_PID" && wait "$TX_PID"; } 2> /dev/null
	cleanup_ns "$TXNS"
	stop_process "$RX_PID"
	cleanup_ns "$RXNS"
	TXNS="" RXNS=""
	# the devices are back in the first namespace
	wait_for 20 dev_there tx
	check_err $? "the device went with its namespace"
	link_adopt
	check_err $? "the link did not come back"
	transfer $RX4 "" -b "$(mib 2)"
	check_err $? "transfer afterwards failed"
}

# Away to another namespace and back
netns_move()
{
	flow_start
	ip -n "$TXNS" link set pftx netns 1
	sleep 0.5
	dev_adopt tx
	check_err $? "the device did not come back"
	flow_uses_pool "after its device went to another namespace and back"
	flow_end
}

nsim_module_gone()
{
	if [ ! -e /sys/module/netdevsim/refcnt ]; then
		skip_case "netdevsim is built in"
		return
	fi
	stuck_flow_start
	modprobe -r netdevsim
	must $? "netdevsim cannot be unloaded" || return
	sleep 2
	{ kill -KILL "$TX_PID" && wait "$TX_PID"; } 2> /dev/null
	stop_process "$RX_PID"
	cleanup_ns "$TXNS" "$RXNS"
	TXNS="" RXNS=""
	nsim_find && link_adopt
	check_err $? "the link did not come back"
	transfer $RX4 "" -b "$(mib 2)"
	check_err $? "transfer afterwards failed"
}

cpu_hotplug()
{
	local file=/sys/devices/system/cpu/cpu1/online i

	if [ ! -w $file ]; then
		skip_case "no CPU that can go offline"
		return
	fi
	flow_start
	for i in 1 2; do
		echo 0 > $file
		check_err $? "CPU 1 offline"
		flow_goes_on "with a CPU gone, round $i"
		echo 1 > $file
		flow_goes_on "with the CPU back, round $i"
	done
	flow_end
}

# The device's rings go, and the data in them, with the driver still bound
suspend_resume()
{
	local power=/sys/power delay=/sys/module/suspend/parameters i

	if [ ! -w $power/pm_test ]; then
		skip_case "no test of suspending (CONFIG_PM_DEBUG)"
		return
	fi
	flow_start
	echo 1 > $delay/pm_test_delay
	echo devices > $power/pm_test
	for i in 1 2; do
		echo freeze > $power/state
		check_err $? "suspend"
		flow_uses_pool "after suspend and resume, round $i"
	done
	echo none > $power/pm_test
	flow_end
}

udp_received()
{
	in_ns "$RXNS" nstat -asz UdpNoPorts | awk '/UdpNoPorts/ { print $2 }'
}

netconsole_end()
{
	echo 0 > "$1/enabled"
	rmdir "$1"
}

# netpoll transmits with interrupts off, whoever sends beside it
netpoll()
{
	local dir=/sys/kernel/config/netconsole/pfrag_pool before i

	modprobe -q netconsole
	mountpoint -q /sys/kernel/config ||
		mount -t configfs none /sys/kernel/config
	if [ ! -d /sys/kernel/config/netconsole ]; then
		skip_case "no netconsole (CONFIG_NETCONSOLE_DYNAMIC)"
		return
	fi
	flow_start
	mkdir $dir
	defer netconsole_end $dir
	echo pftx > $dir/dev_name
	echo $TX4 > $dir/local_ip
	echo $RX4 > $dir/remote_ip
	ip -n "$RXNS" -j link show dev pfrx | jq -r '.[0].address' \
		> $dir/remote_mac
	# in the namespace of who enables it
	TX tee $dir/enabled <<< 1 > /dev/null
	must $? "netconsole" || return
	before=$(udp_received)
	for ((i = 0; i < 200; i++)); do
		echo "<1>pfrag_pool: message $i by netconsole" > /dev/kmsg
	done
	flow_goes_on "beside netconsole"
	(($(udp_received) - before >= 150))
	check_err $? "few messages got through: $(udp_received) - $before"
	flow_end
}

all_empty()
{
	expect_pools_empty
	wait_for 10 no_detached_pool ||
		check_err 1 "a pool does not end: $(pools_text)"
}

churn_cases()
{
	run_case "IPv4: link down and up" link_down_up $RX4 "$TXNS" pftx
	run_case "IPv6: link down and up" link_down_up $RX6 "$TXNS" pftx
	run_case "peer's link down and up" link_down_up $RX4 "$RXNS" pfrx
	run_case "ethtool -L" channels
	run_case "ethtool -G" rings
	if [ "$LINK" = nsim ]; then
		run_case "queue reset" nsim_queue_reset
		run_case "one of two ports goes" nsim_ports
	fi
	run_case "XDP in the driver" xdp drv
	run_case "generic XDP" xdp generic
	run_case "AF_XDP" xdp xsk
	run_case "CPU offline and online" cpu_hotplug
	run_case "suspend and resume" suspend_resume
	run_case "netconsole" netpoll
	run_case "device moved to a namespace and back" netns_move
	run_case "IPv4: unbind, bind with stuck fragments" rebind $RX4
	run_case "IPv6: unbind, bind with stuck fragments" rebind $RX6
	if [ "$LINK" = virtio_net ]; then
		run_case "IPv4: unbind, bind of its PCI device" \
			rebind_dma_dev $RX4
		run_case "IPv6: unbind, bind of its PCI device" \
			rebind_dma_dev $RX6
	fi
	run_case "unbind, bind in full flow" rebind_in_full_flow
	run_case "peer's unbind, bind" rebind_peer
	run_case "IPv4: namespace deleted" netns_gone $RX4
	run_case "IPv6: namespace deleted" netns_gone $RX6
	run_case "unbound for a minute, frags stuck" unbind_and_wait
	[ "$LINK" = nsim ] &&
		run_case "netdevsim unloaded, frags stuck" nsim_module_gone
	run_case "pools are empty afterwards" all_empty
}

require
run_links churn_cases

exit "$EXIT_STATUS"
