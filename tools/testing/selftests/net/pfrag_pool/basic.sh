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
	check_err $? "the wrong byte was not reported: $(cat "$TMP/rx.log")"
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
	((got >= bytes / 32768 - 8))
	check_err $? "$got fragments for $bytes bytes, $missed fallbacks:
		$(fallback_reasons)"
	((missed * 20 <= got))
	check_err $? "$missed fallbacks, $(fallback_reasons)"
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
	kill -USR1 "$RX_PID"
	tx_wait
	check_err $? "transfer failed"
	expect_pools_empty
}

# A pool that is out of use must not keep memory that others need
memory_pressure()
{
	pool_set 1
	FLOWS=8 transfer $RX4 "" -b "$(mib 4)" -w 1:64K
	check_err $? "transfer failed"
	echo 2 > /proc/sys/vm/drop_caches
	transfer $RX4 "" -b "$(mib 4)"
	check_err $? "transfer after shrinking failed"
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
	run_case "reclaim during use" memory_pressure
}

require
run_links basic_cases

exit "$EXIT_STATUS"
