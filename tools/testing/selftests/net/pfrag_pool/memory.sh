#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What sockets cost: idle ones nothing, and those that a peer stalls not more
# than they do without the pool.

# shellcheck source=/dev/null
source "$(dirname "$0")/pfrag_lib.sh"

SOCKETS=1000
STALLED=150
if [ "$KSFT_MACHINE_SLOW" = yes ]; then
	SOCKETS=400
	STALLED=50
fi

# KiB available. Slabs that are empty, and pages on the CPUs' lists, are free,
# too, but MemAvailable does not say so: several MiB either way. Shrinking also
# empties KASAN's quarantine.
mem_available()
{
	local cache

	sync
	echo 3 > /proc/sys/vm/drop_caches
	sleep 1
	for cache in /sys/kernel/slab/*/shrink; do
		echo 1 > "$cache"
	done
	awk -v kib_per_page=$(($(getconf PAGESIZE) / 1024)) '
		/^MemAvailable:/ { kib += $2 }
		$1 == "count:" { kib += $2 * kib_per_page }
		END { print kib }' /proc/meminfo /proc/zoneinfo
}

sockets_held()
{
	grep -q holding "$TMP/tx.log"
}

end_held()
{
	stop_process "$TX_PID"
	stop_process "$RX_PID"
	[ -n "$STALL_PID" ] && stop_process "$STALL_PID"
	STALL_PID=
}

# KiB that SOCKETS idle sockets take, in USED
idle_sockets()
{
	local before

	pool_set "$1"
	before=$(mem_available)
	FLOWS=$SOCKETS rx_start
	FLOWS=$SOCKETS tx_start $RX4 -H -b 1000 -w 1000
	wait_for $PATIENCE sockets_held
	check_err $? "$SOCKETS sockets: $(< "$TMP/tx.log")"
	wait_for $PATIENCE progress_beyond rx $((SOCKETS * 1000 - 1))
	check_err $? "not every byte arrived"
	if [ "$1" = 1 ]; then
		wait_for 60 tx_pools_idle "$(driver_pages)" ||
			check_err 1 "idle sockets hold pages, $(pools_text)"
	fi
	USED=$((before - $(mem_available)))
	end_held
}

# function, bound in KiB: with the pool it takes less than that more. Whatever
# else takes memory meanwhile adds to one figure or the other, so the least of
# up to three of each counts. Sets OFF and ON.
costs_less_than()
{
	local fn=$1 bound=$2 i

	# once for what the first use leaves behind for good
	"$fn" 0
	OFF='' ON=''
	for i in 1 2 3; do
		"$fn" 0
		[ -z "$OFF" ] || ((USED < OFF)) && OFF=$USED
		"$fn" 1
		[ -z "$ON" ] || ((USED < ON)) && ON=$USED
		((ON - OFF < bound)) && return
	done
	return 1
}

idle_is_free()
{
	# above the noise, and well below a page for each of them
	costs_less_than idle_sockets "$SOCKETS"
	check_err $? "idle sockets take $((ON - OFF)) KiB more with the pool"
	log_info "$SOCKETS idle sockets: off $OFF KiB, on $ON KiB"
}

stalled_sockets()
{
	local before

	pool_set "$1"
	before=$(mem_available)
	rx_start
	nsenter "--net=/run/netns/$RXNS" ./pfrag_io -l -p $((PORT + 1)) \
		-n $STALLED -B 2304 -q 0 > "$TMP/stall.log" 2>&1 &
	STALL_PID=$!
	wait_local_port_listen "$RXNS" $((PORT + 1)) tcp
	tx_start $RX4 -H -A $STALLED -b 65536
	# a page for each CPU on which a socket writes: compare on one
	taskset -p -c 0 "$TX_PID" > /dev/null
	wait_for 300 sockets_held
	check_err $? "stalled sockets: $(< "$TMP/tx.log")"
	# what is only cached goes within a few seconds
	[ "$1" = 1 ] && sleep 8
	USED=$((before - $(mem_available)))
	POOL=$(tx_pool_bytes)
	end_held
}

stalled_is_bounded()
{
	local pool

	# a page of 32 KiB each, or two where what was sent and what was not
	# are on both sides of a page's end: so it is with page fragments
	costs_less_than stalled_sockets $((STALLED * 64 + 1024))
	check_err $? "stalled sockets take $((ON - OFF)) KiB more with the pool"
	pool=$((POOL / 1024))
	((pool <= STALLED * 64 + 512))
	check_err $? "stalled sockets hold $pool KiB of pool pages"
	log_info "$STALLED stalled sockets: off $OFF, on $ON, pool $pool KiB"
	expect_pools_empty
}

memory_cases()
{
	run_case "$SOCKETS idle sockets" idle_is_free
	run_case "$STALLED stalled sockets" stalled_is_bounded
}

require
run_links memory_cases

exit "$EXIT_STATUS"
