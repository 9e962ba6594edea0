#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# net.ipv4.tcp_use_pfrag_pool: its values, and who may turn on what.

# shellcheck source=/dev/null
source "$(dirname "$0")/pfrag_lib.sh"

read_setting()
{
	if [ "$1" = init ]; then
		cat "/proc/sys/$SYSCTL"
	else
		in_ns "$1" cat "/proc/sys/$SYSCTL"
	fi
}

# write a value to the first namespace's, print the error
write_setting()
{
	{ printf '%s\n' "$1" > "/proc/sys/$SYSCTL"; } 2>&1
}

default_is_zero()
{
	setup_ns NS
	defer cleanup_ns "$NS"

	[ "$(read_setting "$NS")" = 0 ]
	check_err $? "a new namespace has $(read_setting "$NS")"

	# even when the first namespace's is on
	pool_set 1
	setup_ns NS2
	defer cleanup_ns "$NS2"
	[ "$(read_setting "$NS2")" = 0 ]
	check_err $? "a new namespace inherits 1"
}

accepts_0_and_1()
{
	local v

	for v in 1 0 1 1 0; do
		write_setting $v > /dev/null
		check_err $? "writing $v failed"
		[ "$(read_setting init)" = $v ]
		check_err $? "wrote $v, read $(read_setting init)"
	done
}

refuses_the_rest()
{
	local v err keep now

	for keep in 0 1; do
		write_setting $keep
		for v in 2 -1 256 4294967296 99999999999999999999 yes 1x; do
			err=$(write_setting "$v")
			check_fail $? "'$v' was accepted"
			[[ $err == *"Invalid argument"* ]]
			check_err $? "'$v': '$err', not EINVAL"
			read -r now < "/proc/sys/$SYSCTL"
			[ "$now" = $keep ]
			check_err $? "'$v' changed it to $now"
		done
	done
	write_setting 0
}

is_per_namespace()
{
	setup_ns NS NS2
	defer cleanup_ns "$NS" "$NS2"

	pool_set 0
	ns_set "$NS" 1
	check_err $? "cannot be set in a namespace"
	[ "$(read_setting "$NS") $(read_setting "$NS2") \
$(read_setting init)" = "1 0 0" ]
	check_err $? "one namespace's value shows in another"
	err=$(ns_set "$NS" 2 2>&1)
	check_fail $? "2 was accepted in a namespace"
}

mode_is_0644()
{
	local mode

	mode=$(stat -c %a "/proc/sys/$SYSCTL")
	[ "$mode" = 644 ]
	check_err $? "mode $mode"
}

# What the values of the first and of the sender's namespace come to
effective()
{
	local init=$1 child=$2
	local before

	pool_set 0
	expect_pools_empty
	ns_set "$TXNS" "$child"
	echo "$init" > "/proc/sys/$SYSCTL"
	# the pool, if there is to be one, is made by a work item
	if ((init)); then
		wait_for 30 pool_is_there
	else
		sleep 1
	fi
	before=$(hits)
	transfer $RX4 "" -b "$(mib 4)"
	check_err $? "transfer failed"
	if ((init && child)); then
		expect_hits "$before"
	else
		expect_no_hits "$before"
	fi
}

effective_cases()
{
	run_case "init 0, namespace 0: off" effective 0 0
	run_case "init 0, namespace 1: off" effective 0 1
	run_case "init 1, namespace 0: off" effective 1 0
	run_case "init 1, namespace 1: on" effective 1 1
}

require
have_pool || skip_all "there is no setting to test"
LINK=
run_case "default is 0" default_is_zero
run_case "0 and 1 are accepted" accepts_0_and_1
run_case "anything else is EINVAL" refuses_the_rest
run_case "each namespace has its own" is_per_namespace
run_case "mode 0644" mode_is_0644
run_links effective_cases

exit "$EXIT_STATUS"
