#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Fragments come from the pool when the setting is on and only then, the bytes
# are right, and the pages come back.

# shellcheck source=/dev/null
source "$(dirname "$0")/pfrag_lib.sh"

# A test that cannot fail tests nothing
wrong_byte_is_seen()
{
	rx_start
	tx_start $RX4 -b 300000 -X 123456
	tx_wait > /dev/null
	check_fail $? "a wrong byte went unnoticed"
	grep -q "1 wrong bytes from byte 123456" "$TMP/rx.log"
	check_err $? "the wrong byte was not reported: $(< "$TMP/rx.log")"
}

off_takes_nothing()
{
	local addr=$1
	local before

	pool_set 0
	before=$(hits)
	transfer "$addr" "" -b "$(mib 8)" -w 1:256K -m write,more
	check_err $? "transfer failed"
	expect_no_hits "$before"
}

on_takes_from_pool()
{
	local addr=$1
	local before bytes got missed

	bytes=$(mib 16)
	pool_set 1
	before=$(hits)
	missed=$(fallbacks)
	transfer "$addr" "" -b "$bytes"
	check_err $? "transfer failed"
	have_pool || return
	if pool_refused; then
		expect_no_hits "$before"
		return
	fi
	got=$(($(hits) - before))
	missed=$(($(fallbacks) - missed))
	log_info "$got fragments from the pool, $missed fallbacks"
	# a fragment has at most 32 KiB: all but what opens the flow
	((got + missed >= bytes / 32768 - 8))
	check_err $? "$got fragments for $bytes bytes, $missed fallbacks"
	# there need not always be a page without waiting
	((missed * 8 <= got))
	check_err $? "$got fragments, $missed fallbacks"
}

pages_come_back()
{
	pool_set 1
	FLOWS=4 transfer $RX4 "" -b "$(mib 8)" -w 1:256K -m write,more
	check_err $? "transfer failed"
	log_info "after the flows: $(tx_pool_pages) pages in TX pools"
	expect_pools_empty
}

# The setting is off again while fragments wait for their acknowledgment
off_with_frags_in_flight()
{
	pool_set 1
	rx_start -q 65536 -B 65536
	tx_start $RX4 -b "$(mib 8)" -w 1:64K
	wait_for 20 progress_beyond rx 65535
	check_err $? "the flow did not start"
	sleep 0.5
	pool_set 0
	# until whatever runs now and then has run for the last time
	sleep 5
	kill -USR1 "$RX_PID"
	tx_wait
	check_err $? "transfer failed"
	expect_pools_empty
}

shrink_during_flow()
{
	rx_start
	tx_start $RX4 -b "$(mib 4)" -w 1:64K
	while kill -0 "$TX_PID" 2> /dev/null; do
		echo "0 0 100000" > "$1"
		snooze 0.1
	done
	tx_wait
}

shrinker_count()
{
	awk '{ sum += $2 } END { print sum + 0 }' "$1/count"
}

# What the shrinker counts and frees, asked directly
reclaim()
{
	local dir=/sys/kernel/debug/shrinker count left i

	dir=$(echo $dir/net-tx-page-pool-*)
	if [ ! -d "$dir" ]; then
		skip_case "no debugfs of shrinkers (CONFIG_SHRINKER_DEBUG)"
		return
	fi
	pool_set 1
	for ((i = 0; i < 5; i++)); do
		FLOWS=8 transfer $RX4 "" -b "$(mib 4)" -w 1:64K
		check_err $? "transfer failed"
		count=$(shrinker_count "$dir")
		((count > 64)) && break
	done
	if ! have_pool || pool_refused; then
		return
	fi
	((count > 64))
	must $? "nothing to shrink after a transfer, in 5 tries" || return
	# a page of the pool's is more than one of these
	echo "0 0 1" > "$dir/scan"
	left=$(shrinker_count "$dir")
	log_info "the shrinker counted $count, and $left when asked for one"
	((left < count))
	check_err $? "it freed nothing: $count before, $left after"
	FLOWS=8 shrink_during_flow "$dir/scan"
	check_err $? "transfer while shrinking failed"
}

# DMA mappings to the device since map_count_start, but for those of pages that
# enter a pool: page_pool maps without syncing (attribute 32)
map_count()
{
	awk '/^(entries|overrun):/ { sum += $2 } END { print sum + 0 }' \
		"$TRACE"/per_cpu/cpu*/stats
}

map_count_end()
{
	rmdir "$TRACE"
}

map_count_start()
{
	local device event

	TRACE=/sys/kernel/tracing
	[ -d $TRACE/instances ] || mount -t tracefs none $TRACE 2> /dev/null
	[ -d $TRACE/events/dma/dma_map_phys ] || return
	TRACE+=/instances/pfrag_pool.$$
	mkdir "$TRACE" || return
	defer map_count_end
	device=$(basename "$(readlink -e "$DMA_TX")")
	for event in dma_map_phys dma_map_sg; do
		echo "device == \"$device\" && dir == 1 && !(attrs & 32)" \
			> "$TRACE/events/dma/$event/filter" &&
			echo 1 > "$TRACE/events/dma/$event/enable" || return
	done
}

spare_buffer()
{
	in_ns "$TXNS" ethtool --set-tunable pftx tx-buf-size "$1"
	check_err $? "no spare buffer"
	wait_for 20 link_joined
	check_err $? "the link did not come back"
}

# What all this is for: mappings per 16 MiB of a flow that has run for a while
maps_nothing()
{
	local setting before from warm=16 per_16m=()

	# more in flight, so the pool grows for longer
	[ "$LINK" = hns3 ] && warm=64
	if [ "$LINK" = hns3 ] &&
	   [ "$(cat /sys/module/hns3_sim/parameters/hw_version)" = 3 ]; then
		skip_case "the driver maps nothing anyway, it copies all"
		return
	fi
	if ! map_count_start; then
		skip_case "no dma:dma_map_phys (CONFIG_TRACING)"
		return
	fi
	for setting in 0 1; do
		pool_set $setting
		# room for heads, which hns3 does not have of its own accord
		[ "$LINK" = hns3 ] && [ $setting = 1 ] && spare_buffer 131072
		rx_start
		tx_start $RX4 -d 1000
		wait_for $PATIENCE progress_beyond tx "$(mib $warm)"
		check_err $? "the flow did not start"
		# bytes inside of maps, so that the figure errs to the high
		before=$(map_count)
		progress tx
		from=$PROGRESS
		wait_for $PATIENCE progress_beyond tx $((from + $(mib 32)))
		check_err $? "the flow did not go on"
		progress tx
		per_16m[setting]=$(((($(map_count) - before) << 24) /
				    (PROGRESS - from)))
		kill -USR1 "$TX_PID"
		tx_wait
		check_err $? "the flow did not end well"
	done
	# as it was, so that hns3 does not use dma_map_sg() from now on
	[ "$LINK" = hns3 ] && spare_buffer 0
	log_info "mappings per 16 MiB: off ${per_16m[0]}, on ${per_16m[1]}"
	if ! have_pool || pool_refused; then
		return
	fi
	((per_16m[0] > 500 && per_16m[1] < per_16m[0] / 20))
	check_err $? "mappings per 16 MiB: off ${per_16m[0]}, on ${per_16m[1]}"
}

basic_cases()
{
	run_case "a wrong byte is noticed" wrong_byte_is_seen
	run_case "IPv4: off, nothing from the pool" off_takes_nothing $RX4
	run_case "IPv6: off, nothing from the pool" off_takes_nothing $RX6
	run_case "IPv4: on, fragments from the pool" on_takes_from_pool $RX4
	run_case "IPv6: on, fragments from the pool" on_takes_from_pool $RX6
	run_case "idle pools empty themselves" pages_come_back
	run_case "turned off with frags in flight" off_with_frags_in_flight
	run_case "reclaim" reclaim
	[ "$LINK" != nsim ] &&
		run_case "a warm flow maps nothing" maps_nothing
}

require
run_links basic_cases

exit "$EXIT_STATUS"
