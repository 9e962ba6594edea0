#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What only hns3 has: ways to transmit that are to step back behind premapped
# fragments, and a software model of its hardware, hns3_sim, which sees each
# access of the device to memory that it must not make. First that it does see.

# shellcheck source=/dev/null
source "$(dirname "$0")/pfrag_lib.sh"

MIX=write,more,splice,sendfile,zerocopy
SIM=/sys/kernel/debug/hns3_sim
PARAMS=/sys/module/hns3_sim/parameters

sim()
{
	echo "$SIM/${DMA_TX##*/}"
}

# Sum of what both ports counted
sim_stat()
{
	awk -v re="$1" '$1 ~ re { sum += $2 } END { print sum + 0 }' \
		"$SIM"/*/stats
}

sim_stat_beyond()
{
	(($(sim_stat "$1") > $2))
}

# Sum over the transmit queues
txq_stat()
{
	in_ns "$TXNS" ethtool -S pftx | awk -v re="^txq.*_$1:" '
		$1 ~ re { sum += $2 }
		END { print sum + 0 }'
}

hw_version()
{
	cat $PARAMS/hw_version
}

behind_iommu()
{
	local type

	type=$(cat "$DMA_TX/iommu_group/type" 2> /dev/null)
	[ "${type#DMA}" != "$type" ]
}

# What follows is not to stumble over what was told to happen
faults_were_meant()
{
	((EXPECTED_FAULTS += $1))
	log_mark "the faults above were meant"
}

inject_end()
{
	local name

	for name in drop duplicate reorder delay_us stall_tx write_tx; do
		echo 0 > "$(sim)/$name"
	done 2> /dev/null
}

flow_start()
{
	rx_start
	tx_start "${1:-$RX4}" -d 1000 -w 1:256K -m $MIX
	flow_goes_on "at its start"
}

flow_end()
{
	kill -USR1 "$TX_PID"
	tx_wait
	check_err $? "the flow did not end well"
}

# The device reads what the driver has taken back, and unmapped
sees_late_reads()
{
	local before

	if ! behind_iommu; then
		skip_case "the device is not behind an IOMMU that translates"
		return
	fi
	if [ "$(hw_version)" = 3 ]; then
		skip_case "all is copied to a buffer that stays mapped"
		return
	fi
	pool_set 0
	before=$(sim_stat '^fault_read_unmapped$')
	flow_start
	defer inject_end
	echo 1 > "$(sim)/hold"
	echo 1 > "$(sim)/stall_tx"
	sleep 1
	ip -n "$TXNS" link set pftx down
	sim_stat_beyond '^held$' 0
	check_err $? "nothing was in the ring"
	echo 0 > "$(sim)/hold"
	inject_end
	faults_were_meant $(($(sim_stat '^fault_read_unmapped$') - before))
	sim_stat_beyond '^fault_read_unmapped$' "$before"
	check_err $? "reads of unmapped addresses went unnoticed"
	ip -n "$TXNS" link set pftx up
	flow_goes_on "after the link was down"
	flow_end
}

# The device writes to what it may only read: not one byte changes, since the
# IOMMU would not let it through
sees_writes()
{
	local before

	if [ "$(cat $PARAMS/track)$(cat $PARAMS/non_coherent)" = NN ]; then
		skip_case "hns3_sim was loaded without track=1"
		return
	fi
	pool_set 1
	before=$(sim_stat '^fault_write_read_only$')
	flow_start
	defer inject_end
	echo 1 > "$(sim)/write_tx"
	flow_goes_on "while the device writes"
	inject_end
	faults_were_meant $(($(sim_stat '^fault_write_read_only$') - before))
	sim_stat_beyond '^fault_write_read_only$' "$before"
	check_err $? "writes to read-only pages went unnoticed"
	flow_end
}

both_ways()
{
	local rx=$1 tx=$2 flows=$3 before

	pool_set 1
	before=$(hits)
	FLOWS=$flows transfer "$rx" "" -b $(($(mib 32) / flows)) -w 1:256K \
		-m $MIX
	check_err $? "transfer failed"
	expect_hits "$before"
	SENDER_NS=$RXNS RECEIVER_NS=$TXNS FLOWS=$flows \
		transfer "$tx" "" -b $(($(mib 32) / flows)) -w 1:256K -m $MIX
	check_err $? "transfer to the other side failed"
}

tunable()
{
	in_ns "$TXNS" ethtool --set-tunable pftx "$1" "$2"
	check_err $? "ethtool --set-tunable $1 $2"
}

# name of the statistic that is to move, names of those that are not
only_moves()
{
	local want=$1 name before=(); shift

	before=("$(txq_stat "$want")")
	for name; do
		before+=("$(txq_stat "$name")")
	done
	transfer $RX4 "" -b "$(mib 4)" -w 64K
	check_err $? "transfer failed"
	(($(txq_stat "$want") > before[0] + 8))
	check_err $? "$want: $(($(txq_stat "$want") - before[0]))"
	before=("${before[@]:1}")
	for name; do
		(($(txq_stat "$name") <= before[0] + 1))
		check_err $? "$name: $(($(txq_stat "$name") - before[0]))"
		before=("${before[@]:1}")
	done
}

# Each way by its statistics; premapped fragments win over all
ways()
{
	pool_set 0
	# version 3 copies whole packets, in any case
	if [ "$(hw_version)" = 2 ]; then
		only_moves frag_mapped frag_premapped frag_bounced frag_sgl
		tunable tx-buf-size 2097152
		only_moves frag_sgl frag_premapped frag_mapped frag_bounced
		pool_set 1
		only_moves frag_premapped frag_mapped frag_bounced frag_sgl
		pool_set 0
	fi
	tunable tx-copybreak 65536
	only_moves frag_bounced frag_premapped frag_mapped
	pool_set 1
	only_moves frag_premapped frag_mapped frag_bounced frag_sgl
}

tunables_change()
{
	local i

	pool_set 1
	flow_start
	for i in 1 2; do
		tunable tx-buf-size 2097152
		flow_goes_on "with a spare buffer, round $i"
		tunable tx-copybreak 65536
		flow_goes_on "with copybreak, round $i"
		tunable tx-copybreak 65536
		tunable tx-buf-size 4194304
		flow_goes_on "with a larger spare buffer, round $i"
	done
	flow_end
}

function_reset()
{
	local i

	pool_set 1
	flow_start
	for i in 1 2 3; do
		in_ns "$TXNS" ethtool --reset pftx dedicated > /dev/null
		check_err $? "ethtool --reset"
		flow_goes_on "after a reset, round $i"
	done
	flow_end
}

stalled()
{
	local i

	pool_set 1
	flow_start
	defer inject_end
	for i in 1 2; do
		echo 1 > "$(sim)/stall_tx"
		sleep 1
		ip -n "$TXNS" link set pftx down
		inject_end
		ip -n "$TXNS" link set pftx up
		flow_goes_on "after a stall and the link down, round $i"
	done
	# a ring that does not move is reset by the watchdog
	echo 1 > "$(sim)/stall_tx"
	sleep 8
	inject_end
	flow_goes_on "after a stall"
	flow_end
}

bad_wire()
{
	defer inject_end
	echo 211 > "$(sim)/drop"
	echo 97 > "$(sim)/duplicate"
	echo 53 > "$(sim)/reorder"
	echo 300 > "$(sim)/delay_us"
	pool_set 1
	FLOWS=4 transfer "$1" "" -b "$(mib 4)" -w 1:256K -m $MIX
	check_err $? "transfer failed"
	sim_stat_beyond '^(dropped|duplicated|reordered)$' 0
	check_err $? "nothing was lost, doubled or swapped"
}

sim_options()
{
	local name

	for name in hw_version queues track non_coherent; do
		echo "$name=$(cat $PARAMS/$name)"
	done
}

# Received skbs that wait for another CPU to free them do so until its next
# receive softirq. Now that there is no NIC that could be never, and page_pool
# complains about RX pools that do not end.
receive_on_each_cpu()
{
	local cpu

	for cpu in /sys/devices/system/cpu/cpu[0-9]*; do
		taskset -c "${cpu##*cpu}" ping -c 1 -q 127.0.0.1
	done > /dev/null 2>&1
}

# The NIC goes under flows, and its counters with it
module_gone()
{
	local options

	if [ ! -e /sys/module/hns3_sim/refcnt ]; then
		skip_case "hns3_sim is built in"
		return
	fi
	mapfile -t options < <(sim_options)
	pool_set 1
	flow_start
	expect_no_faults
	modprobe -r hns3_sim
	must $? "hns3_sim cannot be unloaded" || return
	EXPECTED_FAULTS=0
	sleep 1
	{ kill -KILL "$TX_PID" && wait "$TX_PID"; } 2> /dev/null
	stop_process "$RX_PID"
	cleanup_ns "$TXNS" "$RXNS"
	TXNS="" RXNS=""
	receive_on_each_cpu
	wait_for 60 no_detached_pool ||
		check_err 1 "a pool does not end: $(pools_text)"
	modprobe hns3_sim "${options[@]}"
	check_err $? "hns3_sim does not come back"
	wait_for 20 dev_there tx && link_adopt
	check_err $? "the link did not come back"
	transfer $RX4 "" -b "$(mib 2)"
	check_err $? "transfer afterwards failed"
}

expect_no_faults()
{
	local n

	n=$(($(sim_stat '^fault_') - EXPECTED_FAULTS))
	((n == 0)) ||
		check_err 1 "the hardware saw $n faults: $(grep -h \
			'^fault_.* [1-9]' "$SIM"/*/stats | tr '\n' ' ')"
}

clean_end()
{
	expect_no_faults
	expect_pools_empty
}

hns3_cases()
{
	if [ "$LINK" != hns3 ] || [ ! -e "$(sim)/stats" ]; then
		retmsg="needs two ports of hns3_sim"
		RET=$ksft_skip log_test "$(basename "$0")" "$LINK"
		return
	fi
	EXPECTED_FAULTS=$(sim_stat '^fault_')
	run_case "late reads are noticed" sees_late_reads
	run_case "writes to read-only pages are noticed" sees_writes
	for flows in 1 20 200; do
		run_case "IPv4: $flows flows, both ways" both_ways $RX4 $TX4 \
			$flows
		run_case "IPv6: $flows flows, both ways" both_ways $RX6 $TX6 \
			$flows
	done
	run_case "premapped fragments win" ways
	run_case "spare buffer and copybreak change" tunables_change
	run_case "reset" function_reset
	run_case "transmission stalls" stalled
	run_case "IPv4: a bad wire" bad_wire $RX4
	run_case "IPv6: a bad wire" bad_wire $RX6
	run_case "hns3_sim unloaded in full flow" module_gone
	run_case "no fault, and pools are empty" clean_end
}

require
run_links hns3_cases

exit "$EXIT_STATUS"
