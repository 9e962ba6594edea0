#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The setting changes every 10 ms while flows run.

# shellcheck source=/dev/null
source "$(dirname "$0")/pfrag_lib.sh"

# namespace or "init", seconds between changes
flipper()
{
	local in=()

	have_pool || exec sleep inf
	[ "$1" = init ] || in=(nsenter "--net=/run/netns/$1")
	exec "${in[@]}" bash -c '
		exec 9<> <(:)
		while :; do
			for v in 0 1; do
				echo $v > "$0" || exit
				read -rt "$1" -u 9
			done
		done' "/proc/sys/$SYSCTL" "$2"
}

flip()
{
	local addr=$1 rxopts=$2
	local before

	pool_set 1
	before=$(hits)
	flipper "$TXNS" 0.01 &
	defer stop_process $!
	flipper init 0.05 &
	defer stop_process $!
	FLOWS=3 transfer "$addr" "$rxopts" -d 6 -w 1:256K \
		-m write,more,splice,sendfile,zerocopy
	check_err $? "transfer failed"
	expect_hits "$before"
}

flip_then_empty()
{
	pool_set 0
	expect_pools_empty
}

flip_cases()
{
	run_case "IPv4: flipped every 10 ms" flip $RX4 ""
	run_case "IPv6: flipped every 10 ms" flip $RX6 ""
	run_case "IPv4: flipped, slow receiver" flip $RX4 "-r 2M -B 64K"
	run_case "flipped, then off: pools are empty" flip_then_empty
}

require
run_links flip_cases

exit "$EXIT_STATUS"
