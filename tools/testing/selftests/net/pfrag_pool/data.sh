#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Every byte arrives as it was sent, whatever the path and whatever else the
# socket sends beside pool fragments.

# shellcheck source=/dev/null
source "$(dirname "$0")/pfrag_lib.sh"

MIX=write,more,splice,sendfile,zerocopy,fault

# Run a transfer with the setting on, and see that the pool had part in it.
# address, options of the receiver as one word, options of the sender
pooled()
{
	local before

	before=$(hits)
	transfer "$@"
	check_err $? "transfer failed"
	expect_hits "$before"
}

# The same where no pool needs to be found: another kind of device in between
unpooled()
{
	transfer "$@"
	check_err $? "transfer failed"
}

mixed()
{
	pooled "$1" "" -b "$(mib 24)" -w 1:1M -m $MIX
}

# Fragments reach the receiver as they are: netdevsim copies them otherwise
frags_to_receiver()
{
	local addr=$1 rxopts=$2; shift 2

	if [ "$LINK" = nsim ]; then
		in_ns "$RXNS" ./pfrag_hds pfrx on
		must $? "tcp-data-split of netdevsim" || return
		defer in_ns "$RXNS" ./pfrag_hds pfrx off
	fi
	pooled "$addr" "$rxopts" "$@"
}

qdisc()
{
	local addr=$1; shift

	modprobe -q sch_netem
	if ! tc -n "$TXNS" qdisc replace dev pftx root netem "$@" limit 2000
	then
		skip_case "no netem (CONFIG_NET_SCH_NETEM)"
		return
	fi
	defer tc -n "$TXNS" qdisc del dev pftx root
	FLOWS=2 pooled "$addr" "" -b "$(mib 3)" -w 1:64K -m $MIX
}

feature_on()
{
	in_ns "$TXNS" ethtool -K pftx "$1" on > /dev/null
}

feature_off()
{
	local addr=$1; shift
	local f

	for f in "$@"; do
		in_ns "$TXNS" ethtool -K pftx "$f" off > /dev/null
		check_err $? "ethtool -K $f off"
		defer feature_on "$f"
	done
	pooled "$addr" "" -b "$(mib 6)" -w 1:256K -m $MIX
}

set_mtu()
{
	local mtu=$1

	ip -n "$TXNS" link set pftx mtu "$mtu" &&
		ip -n "$RXNS" link set pfrx mtu "$mtu"
}

mtu()
{
	local addr=$1 mtu=$2

	defer set_mtu 1500
	if ! set_mtu "$mtu" 2> /dev/null; then
		skip_case "the device refuses MTU $mtu"
		return
	fi
	pooled "$addr" "" -b "$(mib 6)" -w 1:256K -m $MIX
}

# Probes are cut from the queue by tcp_clone_payload()
mtu_probing()
{
	local ns before

	set_mtu 9000 2> /dev/null
	defer set_mtu 1500
	for ns in "$TXNS" "$RXNS"; do
		in_ns "$ns" sysctl -qw net.ipv4.tcp_mtu_probing=2 \
			net.ipv4.tcp_base_mss=600
		defer in_ns "$ns" sysctl -qw \
			net.ipv4.tcp_mtu_probing=0 net.ipv4.tcp_base_mss=1024
	done
	before=$(counter "$TXNS" TCPMTUPSuccess)
	pooled $RX4 "" -b "$(mib 16)" -w 1:64K
	(($(counter "$TXNS" TCPMTUPSuccess) > before))
	check_err $? "no probe was acknowledged, so none was tested"
}

fastopen()
{
	local ns before

	for ns in "$TXNS" "$RXNS"; do
		in_ns "$ns" sysctl -qw net.ipv4.tcp_fastopen=0x607
		defer in_ns "$ns" sysctl -qw net.ipv4.tcp_fastopen=1
	done
	before=$(counter "$TXNS" TCPFastOpenActive)
	pooled "$1" -F -F -b "$(mib 4)" -w 1:64K -m $MIX
	(($(counter "$TXNS" TCPFastOpenActive) > before))
	check_err $? "the SYN carried no data"
}

repair()
{
	pooled "$1" "" -b "$(mib 2)" -w 1:64K -m write,more,repair
}

vlan()
{
	local ns

	modprobe -q 8021q
	if ! ip -n "$TXNS" link add link pftx name pfv type vlan id 7; then
		skip_case "no VLAN (CONFIG_VLAN_8021Q)"
		return
	fi
	ip -n "$RXNS" link add link pfrx name pfv type vlan id 7
	check_err $? "no VLAN device for the peer"
	defer ip -n "$TXNS" link del pfv
	defer ip -n "$RXNS" link del pfv
	ip -n "$TXNS" addr add 198.51.100.1/24 dev pfv
	ip -n "$RXNS" addr add 198.51.100.2/24 dev pfv
	ip -n "$TXNS" addr add 2001:db8:7::1/64 dev pfv nodad
	ip -n "$RXNS" addr add 2001:db8:7::2/64 dev pfv nodad
	for ns in "$TXNS" "$RXNS"; do
		ip -n "$ns" link set pfv up
	done
	pooled 198.51.100.2 "" -b "$(mib 8)" -w 1:256K -m $MIX
	pooled 2001:db8:7::2 "" -b "$(mib 8)" -w 1:256K -m $MIX
}

unbond()
{
	ip -n "$TXNS" link del pfb
	ip -n "$TXNS" addr replace $TX4/24 dev pftx
	ip -n "$TXNS" link set pftx up
	ip -n "$TXNS" addr replace $TX6/64 dev pftx nodad
}

bond()
{
	modprobe -q bonding
	if ! ip -n "$TXNS" link add pfb type bond mode active-backup \
	   miimon 100; then
		skip_case "no bonding (CONFIG_BONDING)"
		return
	fi
	defer unbond
	ip -n "$TXNS" link set pftx down
	ip -n "$TXNS" addr flush dev pftx
	ip -n "$TXNS" link set pftx master pfb
	check_err $? "cannot add the device to a bond"
	ip -n "$TXNS" addr add $TX4/24 dev pfb
	ip -n "$TXNS" link set pfb up
	ip -n "$TXNS" addr add $TX6/64 dev pfb nodad
	wait_for 20 link_joined
	must $? "no connection through the bond" || return
	pooled $RX4 "" -b "$(mib 8)" -w 1:256K -m $MIX
	pooled $RX6 "" -b "$(mib 8)" -w 1:256K -m $MIX
}

unbridge()
{
	ip -n "$TXNS" link del pfbr
	cleanup_ns "$CTNS"
	ip -n "$TXNS" addr replace $TX4/24 dev pftx
	ip -n "$TXNS" addr replace $TX6/64 dev pftx nodad
}

# A container's veth, bridged onto the device
container()
{
	local addr

	modprobe -q bridge
	if ! ip -n "$TXNS" link add pfbr type bridge; then
		skip_case "no bridge (CONFIG_BRIDGE)"
		return
	fi
	CTNS=
	defer unbridge
	setup_ns CTNS
	ip -n "$TXNS" link add pfve type veth peer name eth0 netns "$CTNS"
	ip -n "$TXNS" addr flush dev pftx
	ip -n "$TXNS" link set pftx master pfbr
	ip -n "$TXNS" link set pfve master pfbr
	ip -n "$TXNS" link set pfve up
	ip -n "$TXNS" link set pfbr up
	ip -n "$CTNS" addr add $TX4/24 dev eth0
	ip -n "$CTNS" link set eth0 up
	ip -n "$CTNS" addr add $TX6/64 dev eth0 nodad
	ns_set "$CTNS" 1
	wait_for 20 in_ns "$CTNS" ping -c 1 -W 1 -q $RX4 > /dev/null
	must $? "no connection through the bridge" || return
	for addr in $RX4 $RX6; do
		SENDER_NS=$CTNS unpooled $addr "" -b "$(mib 8)" -w 1:256K \
			-m $MIX
	done
	# and back: fragments of the peer's pool go through bridge and veth
	if [ "$LINK" = nsim ]; then
		in_ns "$TXNS" ./pfrag_hds pftx on
		check_err $? "tcp-data-split of netdevsim"
		defer in_ns "$TXNS" ./pfrag_hds pftx off
	fi
	SENDER_NS=$RXNS RECEIVER_NS=$CTNS pooled $TX4 -s -b "$(mib 8)" \
		-w 1:256K -m $MIX
}

# local address, remote address, SPI out, SPI in, algorithm...
esp_one_way()
{
	local ns=$1 src=$2 dst=$3 dir=$4 spi=$5; shift 5

	ip -n "$ns" xfrm state add src "$src" dst "$dst" proto esp \
		spi "$spi" reqid 1 mode transport "$@" &&
	ip -n "$ns" xfrm policy add src "$src" dst "$dst" dir "$dir" \
		tmpl src "$src" dst "$dst" proto esp reqid 1 mode transport
}

esp_flush()
{
	local ns

	for ns in "$TXNS" "$RXNS"; do
		ip -n "$ns" xfrm policy flush
		ip -n "$ns" xfrm state flush
	done
}

esp_packets()
{
	ip -n "$TXNS" -s xfrm state get src "$1" dst "$2" proto esp spi 0x10 |
		awk '/lifetime current:/ {
			getline; sub(/\(.*/, "", $2); print $2 }'
}

esp_used()
{
	(($(esp_packets "$1" "$2") > 20))
}

esp_start()
{
	local tx=$1 rx=$2; shift 2

	esp_one_way "$RXNS" "$tx" "$rx" in 0x10 "$@" &&
		esp_one_way "$RXNS" "$rx" "$tx" out 0x11 "$@" &&
		esp_one_way "$TXNS" "$rx" "$tx" in 0x11 "$@" &&
		esp_one_way "$TXNS" "$tx" "$rx" out 0x10 "$@"
}

# The CPU encrypts: no pool, for the device is not to see the plain text
esp()
{
	local tx=$1 rx=$2 before

	defer esp_flush
	if ! esp_start "$@"; then
		skip_case "no IPsec (CONFIG_INET_ESP)"
		return
	fi
	before=$(hits)
	unpooled "$rx" "" -b "$(mib 4)" -w 1:64K -m $MIX
	unpooled "$rx" -s -b "$(mib 4)" -w 1:64K
	expect_no_hits "$before"
	esp_used "$tx" "$rx"
	check_err $? "the flow did not go through ESP"
}

# Encryption begins with fragments of the pool in the queue: they, and what is
# retransmitted, go through ESP
esp_begins()
{
	local tx=$1 rx=$2 before

	defer esp_flush
	before=$(hits)
	rx_start -r 1M -B 64K
	tx_start "$rx" -d 1000 -w 1:64K
	wait_for $PATIENCE progress_beyond rx 200000
	check_err $? "the flow did not start"
	expect_hits "$before"
	if esp_start "$@"; then
		wait_for $PATIENCE esp_used "$tx" "$rx"
		check_err $? "the flow did not go through ESP"
	else
		skip_case "no IPsec (CONFIG_INET_ESP)"
	fi
	kill -USR1 "$TX_PID"
	tx_wait
	check_err $? "the flow did not end well"
}

# function, local address, remote address
gcm()
{
	"$@" aead 'rfc4106(gcm(aes))' \
		0x0102030405060708090a0b0c0d0e0f1011121314 128
}

cbc()
{
	"$@" enc 'cbc(aes)' 0x0102030405060708090a0b0c0d0e0f10 \
		auth 'hmac(sha256)' "0x$(printf '%064d' 1234567890)"
}

many_flows()
{
	FLOWS=12 pooled "$1" "" -b "$(mib 2)" -w 1:64K -m $MIX
}

slow_receiver()
{
	FLOWS=2 pooled "$1" "-r 1M -B 16K" -b "$(mib 4)" -w 1:4K
}

data_cases()
{
	local v rx

	pool_set 1
	for v in 4 6; do
		[ $v = 4 ] && rx=$RX4 tx=$TX4 || rx=$RX6 tx=$TX6
		run_case "IPv$v: 1 B to 1 MiB, all ways mixed" mixed $rx
		run_case "IPv$v: writes of 1 to 200 bytes" pooled $rx "" \
			-b "$(mib 1)" -w 1:200 -m write,more
		run_case "IPv$v: 12 flows" many_flows $rx
		run_case "IPv$v: slow receiver" slow_receiver $rx
		run_case "IPv$v: receiver splices" frags_to_receiver $rx -s \
			-b "$(mib 8)" -w 1:256K -m $MIX
		run_case "IPv$v: a packet socket holds clones" \
			frags_to_receiver $rx "" -K -b "$(mib 4)" -w 1:256K
		run_case "IPv$v: loss, reordering, duplication" qdisc $rx \
			delay 2ms 1ms reorder 10% 50% duplicate 3% loss 1%
		run_case "IPv$v: TSO and GSO off" feature_off $rx tso gso
		run_case "IPv$v: SG off" feature_off $rx sg
		run_case "IPv$v: MTU 1280" mtu $rx 1280
		run_case "IPv$v: MTU 9000" mtu $rx 9000
		run_case "IPv$v: TCP Fast Open" fastopen $rx
		run_case "IPv$v: TCP repair" repair $rx
		run_case "IPv$v: IPsec transport, AES-GCM" gcm esp $tx $rx
		run_case "IPv$v: IPsec transport, AES-CBC" cbc esp $tx $rx
		run_case "IPv$v: IPsec begins, AES-GCM" gcm esp_begins $tx $rx
		run_case "IPv$v: IPsec begins, AES-CBC" cbc esp_begins $tx $rx
	done
	run_case "MTU probing" mtu_probing
	run_case "VLAN" vlan
	run_case "bond" bond
	run_case "container behind veth and bridge" container
	run_case "pools are empty afterwards" expect_pools_empty
}

require
run_links data_cases

exit "$EXIT_STATUS"
