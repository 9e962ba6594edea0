// SPDX-License-Identifier: GPL-2.0
/*
 * The modelled hardware: transmit and receive engines of two ports, and the
 * wire between them. One thread per link runs it all, under link->lock with
 * interrupts off, so that what it does is never mixed with the kernel's work.
 *
 * Transmit: a doorbell has the engine fetch descriptors up to the last that is
 * valid and ends a frame. In a second step the buffers are read, the frame put
 * on the wire and the descriptors given back, the first of a frame last. A
 * stalled engine fetches, but does not go on.
 *
 * Receive: a frame is checksummed, segmented unless the port does GRO in
 * hardware, and written to the ring that its flow hash names. When that ring
 * has no room the frame waits, and finally the sender's engine, too, as with
 * pause frames: nothing is lost but what is told to be.
 */
#include <linux/delay.h>
#include <linux/if_vlan.h>
#include <linux/interrupt.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/irq.h>
#include <linux/jhash.h>
#include <linux/kthread.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <linux/vmalloc.h>
#include <net/checksum.h>
#include <net/ip6_checksum.h>

#include "hns3_sim.h"

#define HNS3_SIM_BATCH	4	/* frames before interrupts are let in */

/* An instruction counter of the emulator that runs this kernel may leave out
 * what is between the two, since no CPU would do it. To all others these are
 * NOPs.
 */
static __always_inline void hns3_sim_pause_counting(void)
{
#ifdef CONFIG_X86_64
	asm volatile(".byte 0x0f, 0x1f, 0x80; .long 0x50464000" ::: "memory");
#endif
}

static __always_inline void hns3_sim_resume_counting(void)
{
#ifdef CONFIG_X86_64
	asm volatile(".byte 0x0f, 0x1f, 0x80; .long 0x50462000" ::: "memory");
#endif
}

/**
 * hns3_sim_wire_init() - make a wire's frames
 * @wire:	wire
 *
 * Context: Process context.
 * Return: 0 or -ENOMEM.
 */
int hns3_sim_wire_init(struct hns3_sim_wire *wire)
{
	int i;

	INIT_LIST_HEAD(&wire->queue);
	INIT_LIST_HEAD(&wire->free);
	wire->frames = vzalloc(array_size(HNS3_SIM_FRAMES,
					  sizeof(*wire->frames)));
	if (!wire->frames)
		return -ENOMEM;
	for (i = 0; i < HNS3_SIM_FRAMES; i++)
		list_add_tail(&wire->frames[i].list, &wire->free);

	return 0;
}

/**
 * hns3_sim_wire_flush() - lose what is on a wire
 * @wire:	wire
 *
 * Context: link->lock.
 */
void hns3_sim_wire_flush(struct hns3_sim_wire *wire)
{
	list_splice_init(&wire->queue, &wire->free);
}

static void hns3_sim_event(struct hns3_sim_ring *ring)
{
	if (ring->vector)
		ring->vector->event = true;
}

/* Vectors fire when the driver has unmasked them, and are masked by that. */
static void hns3_sim_fire(struct hns3_sim_port *port)
{
	int i;

	for (i = 0; i < HNS3_SIM_MAX_QUEUES; i++) {
		struct hns3_sim_vector *vector = &port->vector[i];

		if (!vector->event || !READ_ONCE(vector->regs[0]))
			continue;
		vector->event = false;
		WRITE_ONCE(vector->regs[0], 0);
		port->stats.interrupts++;
		irq_set_irqchip_state(vector->irq, IRQCHIP_STATE_PENDING, true);
	}
}

/* Headers */

static bool hns3_sim_parse(struct hns3_sim_frame *frame, u16 *proto, u8 *l4)
{
	struct ethhdr *eth = (struct ethhdr *)frame->data;
	u16 off = ETH_HLEN;
	__be16 type = eth->h_proto;
	int left;

	while (eth_type_vlan(type) && off + VLAN_HLEN <= frame->len) {
		type = *(__be16 *)(frame->data + off + 2);
		off += VLAN_HLEN;
	}

	frame->l2 = off;
	*proto = ntohs(type);
	*l4 = 0;
	if (*proto == ETH_P_IP && off + sizeof(struct iphdr) <= frame->len) {
		struct iphdr *ip = (struct iphdr *)(frame->data + off);

		frame->l3 = ip->ihl * 4;
		if (!ip_is_fragment(ip))
			*l4 = ip->protocol;
	} else if (*proto == ETH_P_IPV6 &&
		   off + sizeof(struct ipv6hdr) <= frame->len) {
		struct ipv6hdr *ip6 = (struct ipv6hdr *)(frame->data + off);

		frame->l3 = sizeof(*ip6);
		*l4 = ip6->nexthdr;
	} else {
		return false;
	}

	off += frame->l3;
	left = frame->len - off;
	if (*l4 == IPPROTO_TCP && left >= (int)sizeof(struct tcphdr))
		frame->l4 = ((struct tcphdr *)(frame->data + off))->doff * 4;
	else if (*l4 == IPPROTO_UDP && left >= (int)sizeof(struct udphdr))
		frame->l4 = sizeof(struct udphdr);
	else
		*l4 = 0;

	return off + frame->l4 <= frame->len;
}

/* The sum of the transport layer of @len bytes at @data, its own included */
static __sum16 hns3_sim_csum(const u8 *data, const struct hns3_sim_frame *frame,
			     u32 len, u16 proto, u8 l4)
{
	const u8 *th = data + frame->l2 + frame->l3;
	u32 size = len - frame->l2 - frame->l3;
	const struct ipv6hdr *ip6 = (void *)(data + frame->l2);
	const struct iphdr *ip = (void *)(data + frame->l2);
	__wsum sum = csum_partial(th, size, 0);

	if (proto == ETH_P_IPV6)
		return csum_ipv6_magic(&ip6->saddr, &ip6->daddr, size, l4, sum);

	return csum_tcpudp_magic(ip->saddr, ip->daddr, size, l4, sum);
}

/* Whether it is right. A short frame may be padded: go by the IP length. */
static bool hns3_sim_csum_right(const struct hns3_sim_frame *frame, u16 proto,
				u8 l4)
{
	const u8 *data = frame->data + frame->l2;
	const struct udphdr *udp = (void *)(data + frame->l3);
	u32 len;

	if (l4 == IPPROTO_UDP && !udp->check)
		return true;

	if (proto == ETH_P_IP)
		len = ntohs(((struct iphdr *)data)->tot_len);
	else
		len = ntohs(((struct ipv6hdr *)data)->payload_len) +
		      sizeof(struct ipv6hdr);
	if (len < frame->l3 + frame->l4 || frame->l2 + len > frame->len)
		return false;

	return !hns3_sim_csum(frame->data, frame, frame->l2 + len, proto, l4);
}

static void hns3_sim_fill_csum(u8 *data, const struct hns3_sim_frame *frame,
			       u32 len, u16 proto, u8 l4)
{
	u8 *th = data + frame->l2 + frame->l3;

	if (l4 == IPPROTO_TCP) {
		struct tcphdr *tcp = (struct tcphdr *)th;

		tcp->check = 0;
		tcp->check = hns3_sim_csum(data, frame, len, proto, l4);
	} else if (l4 == IPPROTO_UDP) {
		struct udphdr *udp = (struct udphdr *)th;

		udp->check = 0;
		udp->check = hns3_sim_csum(data, frame, len, proto, l4);
		if (!udp->check)
			udp->check = CSUM_MANGLED_0;
	}
}

static void hns3_sim_ip_len(u8 *data, const struct hns3_sim_frame *frame,
			    u32 len, u16 proto, u16 id)
{
	if (proto == ETH_P_IP) {
		struct iphdr *ip = (struct iphdr *)(data + frame->l2);

		ip->tot_len = htons(len - frame->l2);
		ip->id = htons(ntohs(ip->id) + id);
		ip->check = 0;
		ip->check = ip_fast_csum(ip, ip->ihl);
	} else {
		struct ipv6hdr *ip6 = (struct ipv6hdr *)(data + frame->l2);

		ip6->payload_len = htons(len - frame->l2 - sizeof(*ip6));
	}
}

/* Both directions of a flow get the same. */
static u32 hns3_sim_hash(const struct hns3_sim_frame *frame, u16 proto, u8 l4)
{
	const u8 *ip = frame->data + frame->l2;
	u32 a = 0, b = 0, ports = 0;

	if (proto == ETH_P_IP) {
		a = (__force u32)((struct iphdr *)ip)->saddr;
		b = (__force u32)((struct iphdr *)ip)->daddr;
	} else {
		a = jhash(&((struct ipv6hdr *)ip)->saddr, 16, 0);
		b = jhash(&((struct ipv6hdr *)ip)->daddr, 16, 0);
	}
	if (l4) {
		const __be16 *port = (void *)(ip + frame->l3);

		ports = ntohs(port[0]) ^ ntohs(port[1]);
	}

	return jhash_2words(a ^ b, ports, 0);
}

/* Receive */

static u32 hns3_sim_l234(u16 proto, u8 l4, const u8 *dest)
{
	u32 info = 0;

	if (is_broadcast_ether_addr(dest))
		info |= HNS3_L2_TYPE_BROADCAST << HNS3_RXD_DMAC_S;
	else if (is_multicast_ether_addr(dest))
		info |= HNS3_L2_TYPE_MULTICAST << HNS3_RXD_DMAC_S;

	if (proto == ETH_P_IP)
		info |= HNS3_L3_TYPE_IPV4 << HNS3_RXD_L3ID_S;
	else if (proto == ETH_P_IPV6)
		info |= HNS3_L3_TYPE_IPV6 << HNS3_RXD_L3ID_S;
	else
		info |= HNS3_L3_TYPE_PARSE_FAIL << HNS3_RXD_L3ID_S;

	if (l4 == IPPROTO_TCP)
		info |= HNS3_L4_TYPE_TCP << HNS3_RXD_L4ID_S;
	else if (l4 == IPPROTO_UDP)
		info |= HNS3_L4_TYPE_UDP << HNS3_RXD_L4ID_S;
	else
		info |= HNS3_L4_TYPE_PARSE_FAIL << HNS3_RXD_L4ID_S;

	return info;
}

/* What a receive descriptor says, next to the bytes */
struct hns3_sim_rx_info {
	u32 l234, base, hash;
	u16 vlan;
};

/* A descriptor belongs to the hardware while its last word is zero. The driver
 * only clears the valid bit when it takes one, hence HNS3_RXD_LUM_B is always
 * set in those that were written.
 */
static bool hns3_sim_rx_room(struct hns3_sim_port *port, u32 queue, u32 num)
{
	struct hns3_sim_ring *ring = &port->queue[queue].rx;
	u32 i;

	if (num > ring->num)
		return false;

	for (i = 0; i < num; i++) {
		struct hns3_desc *desc;

		desc = hns3_sim_desc(port, ring, (ring->head + i) % ring->num);
		if (!desc) {
			hns3_sim_fault(port, HNS3_SIM_WRITE_UNMAPPED, queue,
				       ring->head, ring->base, 0);
			return false;
		}
		if (READ_ONCE(desc->rx.bd_base_info) || !desc->addr)
			return false;
	}
	/* What the driver wrote before it gave them */
	dma_rmb();

	return true;
}

/* The caller has seen that there is room. */
static void hns3_sim_rx(struct hns3_sim_port *port, u32 queue, const u8 *data,
			u32 len, const struct hns3_sim_rx_info *info)
{
	u32 buf_size = port->queue[queue].hq.buf_size;
	struct hns3_sim_ring *ring = &port->queue[queue].rx;
	u32 num = DIV_ROUND_UP(len, buf_size);
	u32 i = num;

	/* The first becomes valid last. */
	while (i--) {
		u32 at = (ring->head + i) % ring->num;
		struct hns3_desc *desc = hns3_sim_desc(port, ring, at);
		u32 off = i * buf_size;
		u32 n = min(len - off, buf_size);
		u32 base = info->base | BIT(HNS3_RXD_VLD_B) |
			   BIT(HNS3_RXD_LUM_B);

		if (!desc)
			return;
		hns3_sim_write(port, le64_to_cpu(desc->addr), data + off, n,
			       queue, at);
		desc->rx.l234_info = cpu_to_le32(info->l234);
		desc->rx.pkt_len = cpu_to_le16(len);
		desc->rx.size = cpu_to_le16(n);
		desc->rx.rss_hash = cpu_to_le32(info->hash);
		desc->rx.fd_id = 0;
		desc->rx.vlan_tag = cpu_to_le16(info->vlan);
		desc->rx.ol_info = 0;
		if (i == num - 1)
			base |= BIT(HNS3_RXD_FE_B);
		dma_wmb();
		WRITE_ONCE(desc->rx.bd_base_info, cpu_to_le32(base));
	}

	ring->head = (ring->head + num) % ring->num;
	port->stats.rx_packets++;
	port->stats.rx_bytes += len;
	hns3_sim_event(ring);
}

/* The tag comes out of the frame, and into the descriptor. */
static void hns3_sim_strip_vlan(struct hns3_sim_frame *frame,
				struct hns3_sim_rx_info *info)
{
	struct vlan_ethhdr *veth = (struct vlan_ethhdr *)frame->data;

	if (veth->h_vlan_proto != htons(ETH_P_8021Q) ||
	    frame->len < VLAN_ETH_HLEN)
		return;

	info->vlan = ntohs(veth->h_vlan_TCI);
	info->l234 |= 2 << HNS3_RXD_STRP_TAGP_S;	/* the inner one */
	memmove(frame->data + 2 * ETH_ALEN,
		frame->data + 2 * ETH_ALEN + VLAN_HLEN,
		frame->len - 2 * ETH_ALEN - VLAN_HLEN);
	frame->len -= VLAN_HLEN;
}

static u32 hns3_sim_bds(struct hns3_sim_port *port, u32 queue, u32 len)
{
	return DIV_ROUND_UP(len, port->queue[queue].hq.buf_size);
}

/* A segment of a frame, from byte @off of its payload on */
static u32 hns3_sim_make_segment(struct hns3_sim_port *port,
				 const struct hns3_sim_frame *frame, u32 header,
				 u32 off, u32 n, u32 index, u16 proto)
{
	u32 len = header + n;
	struct tcphdr *tcp;
	u8 *to = port->segment;

	memcpy(to, frame->data, header);
	memcpy(to + header, frame->data + header + off, n);
	hns3_sim_ip_len(to, frame, len, proto, index);
	tcp = (struct tcphdr *)(to + frame->l2 + frame->l3);
	tcp->seq = htonl(ntohl(tcp->seq) + off);
	if (header + off + n < frame->len) {
		tcp->fin = 0;
		tcp->psh = 0;
	}
	if (index)
		tcp->cwr = 0;
	hns3_sim_fill_csum(to, frame, len, proto, IPPROTO_TCP);

	return len;
}

/* Return false if there is no room: try again later. */
static bool hns3_sim_receive(struct hns3_sim_port *port,
			     struct hns3_sim_frame *frame)
{
	struct hns3_sim_rx_info info = {};
	u32 queue = 0, header, payload, segs, need;
	bool ip, merge;
	u16 proto;
	u8 l4;

	ip = hns3_sim_parse(frame, &proto, &l4);
	if (ip) {
		info.hash = hns3_sim_hash(frame, proto, l4);
		queue = port->rss_table[info.hash % HNS3_SIM_RSS_TABLE];
	}
	if (queue >= port->nic.kinfo.num_tqps)
		queue = 0;

	header = frame->l2 + frame->l3 + frame->l4;
	payload = frame->len - header;
	segs = frame->mss ? DIV_ROUND_UP(payload, frame->mss) : 1;
	merge = segs > 1 && port->gro && segs <= HNS3_RXD_GRO_COUNT_M >>
						 HNS3_RXD_GRO_COUNT_S;
	if (segs == 1 || merge)
		need = hns3_sim_bds(port, queue, max(frame->len, ETH_ZLEN));
	else
		need = segs * hns3_sim_bds(port, queue, header + frame->mss);
	if (!hns3_sim_rx_room(port, queue, need))
		return false;

	info.l234 = hns3_sim_l234(ip ? proto : 0, ip ? l4 : 0, frame->data);
	if (port->strip_vlan) {
		hns3_sim_strip_vlan(frame, &info);
		if (ip)
			hns3_sim_parse(frame, &proto, &l4);
		header = frame->l2 + frame->l3 + frame->l4;
	}

	if (segs > 1 && !merge) {
		u32 i, n, len;

		info.base = BIT(HNS3_RXD_L3L4P_B);
		for (i = 0; i < segs; i++) {
			n = min(payload - i * frame->mss, frame->mss);
			len = hns3_sim_make_segment(port, frame, header,
						    i * frame->mss, n, i,
						    proto);
			hns3_sim_rx(port, queue, port->segment, len, &info);
		}
		return true;
	}

	if (frame->mss) {
		hns3_sim_ip_len(frame->data, frame, frame->len, proto, 0);
		if (!merge)
			hns3_sim_fill_csum(frame->data, frame, frame->len,
					   proto, l4);
	}
	if (merge) {
		info.l234 |= segs << HNS3_RXD_GRO_COUNT_S;
		info.base |= frame->mss << HNS3_RXD_GRO_SIZE_S |
			     BIT(HNS3_RXD_L3L4P_B);
	} else if (ip && l4) {
		info.base = BIT(HNS3_RXD_L3L4P_B);
		if (!hns3_sim_csum_right(frame, proto, l4)) {
			info.l234 |= BIT(HNS3_RXD_L4E_B);
			port->stats.rx_csum_err++;
		}
	}
	if (frame->len < ETH_ZLEN) {
		memset(frame->data + frame->len, 0, ETH_ZLEN - frame->len);
		frame->len = ETH_ZLEN;
	}
	hns3_sim_rx(port, queue, frame->data, frame->len, &info);

	return true;
}

static bool hns3_sim_deliver(struct hns3_sim_port *port)
{
	struct hns3_sim_wire *wire = &port->wire;
	struct hns3_sim_frame *frame;
	int n = 0;

	while (n < HNS3_SIM_BATCH) {
		frame = list_first_entry_or_null(&wire->queue,
						 struct hns3_sim_frame, list);
		if (!frame || (frame->due && frame->due > ktime_get_ns()))
			break;
		if (port->running && !hns3_sim_receive(port, frame))
			break;
		list_move(&frame->list, &wire->free);
		n++;
	}

	return n;
}

/* Transmit */

static bool hns3_sim_nth(struct hns3_sim_wire *wire, u32 n)
{
	return n && wire->seen % n == 0;
}

static void hns3_sim_send(struct hns3_sim_port *port,
			  struct hns3_sim_frame *frame)
{
	struct hns3_sim_inject *inject = &port->inject;
	struct hns3_sim_wire *wire = &port->peer->wire;
	struct hns3_sim_frame *copy;

	wire->seen++;
	if (!port->peer->running || hns3_sim_nth(wire, inject->drop)) {
		port->stats.dropped += port->peer->running;
		return;
	}

	frame->due = inject->delay_us ? ktime_get_ns() +
					inject->delay_us * NSEC_PER_USEC : 0;
	list_del(&frame->list);
	if (hns3_sim_nth(wire, inject->reorder) && !list_empty(&wire->queue)) {
		/* In front of the one that came before it */
		list_add_tail(&frame->list, wire->queue.prev);
		port->stats.reordered++;
	} else {
		list_add_tail(&frame->list, &wire->queue);
	}

	if (!hns3_sim_nth(wire, inject->duplicate) || list_empty(&wire->free))
		return;
	copy = list_first_entry(&wire->free, struct hns3_sim_frame, list);
	copy->due = frame->due;
	copy->len = frame->len;
	copy->mss = frame->mss;
	memcpy(copy->data, frame->data, frame->len);
	list_move_tail(&copy->list, &wire->queue);
	port->stats.duplicated++;
}

/* Do what the first descriptor asks for, as far as it is done here. */
static bool hns3_sim_offload(struct hns3_sim_port *port,
			     struct hns3_sim_frame *frame,
			     const struct hns3_desc *desc)
{
	u32 type = le32_to_cpu(desc->tx.type_cs_vlan_tso_len);
	u32 outer = le32_to_cpu(desc->tx.ol_type_vlan_len_msec);
	u16 mss = le16_to_cpu(desc->tx.mss_hw_csum);
	u16 proto, tag = 0;
	u8 l4;

	frame->mss = 0;
	if (mss & BIT(HNS3_TXD_HW_CS_B)) {
		u32 start = (type & HNS3_TXD_CSUM_START_M) >>
			    HNS3_TXD_CSUM_START_S;
		u32 at = start * 2 + ((outer & HNS3_TXD_CSUM_OFFSET_M) >>
				      HNS3_TXD_CSUM_OFFSET_S) * 2;

		if (at + 2 > frame->len)
			return false;
		*(__sum16 *)(frame->data + at) =
			csum_fold(csum_partial(frame->data + start * 2,
					       frame->len - start * 2, 0)) ?:
			CSUM_MANGLED_0;
		outer &= ~HNS3_TXD_CSUM_OFFSET_M;
	} else if (type & BIT(HNS3_TXD_L4CS_B)) {
		/* No tunnels here */
		if (outer & HNS3_TXD_TUNTYPE_M ||
		    !hns3_sim_parse(frame, &proto, &l4) || !l4)
			return false;
		if (type & BIT(HNS3_TXD_TSO_B)) {
			frame->mss = mss & (HNS3_TXD_MSS_M >> HNS3_TXD_MSS_S);
			if (!frame->mss || l4 != IPPROTO_TCP ||
			    frame->l2 + frame->l3 + frame->l4 + frame->mss >
			    sizeof(port->segment))
				return false;
		} else {
			hns3_sim_fill_csum(frame->data, frame, frame->len,
					   proto, l4);
		}
	}

	if (type & BIT(HNS3_TXD_VLAN_B))
		tag = le16_to_cpu(desc->tx.vlan_tag);
	else if (outer & BIT(HNS3_TXD_OVLAN_B))
		tag = le16_to_cpu(desc->tx.outer_vlan_tag);
	else
		return true;

	memmove(frame->data + 2 * ETH_ALEN + VLAN_HLEN,
		frame->data + 2 * ETH_ALEN, frame->len - 2 * ETH_ALEN);
	frame->len += VLAN_HLEN;
	((struct vlan_ethhdr *)frame->data)->h_vlan_proto = htons(ETH_P_8021Q);
	((struct vlan_ethhdr *)frame->data)->h_vlan_TCI = htons(tag);

	return true;
}

static u32 hns3_sim_next(const struct hns3_sim_ring *ring, u32 i)
{
	return i + 1 == ring->num ? 0 : i + 1;
}

/* Fetch a frame's descriptors: all, or none if it is not complete. */
static bool hns3_sim_fetch(struct hns3_sim_port *port, u32 queue)
{
	struct hns3_sim_ring *ring = &port->queue[queue].tx;
	u32 i = ring->head;
	u16 flags;

	do {
		struct hns3_desc *desc = hns3_sim_desc(port, ring, i);

		if (!desc) {
			hns3_sim_fault(port, HNS3_SIM_READ_UNMAPPED, queue, i,
				       ring->base, 0);
			return false;
		}
		flags = le16_to_cpu(READ_ONCE(desc->tx.bdtp_fe_sc_vld_ra_ri));
		if (!(flags & BIT(HNS3_TXD_VLD_B)))
			return false;
		dma_rmb();
		ring->bd[i].desc = *desc;
		i = hns3_sim_next(ring, i);
		/* Full, and no frame ends in it? It is not complete yet. */
		if (i == ring->done && !(flags & BIT(HNS3_TXD_FE_B)))
			return false;
	} while (!(flags & BIT(HNS3_TXD_FE_B)));

	while (ring->head != i) {
		hns3_sim_identify(port, &ring->bd[ring->head]);
		ring->head = hns3_sim_next(ring, ring->head);
		port->stats.tx_bds++;
	}

	return true;
}

/* Give a frame's descriptors back, from @first to before @end. */
static void hns3_sim_complete(struct hns3_sim_port *port, u32 queue, u32 first,
			      u32 end)
{
	struct hns3_sim_ring *ring = &port->queue[queue].tx;
	u32 i = end;

	/* The driver frees the skb when it finds the first one back. */
	do {
		struct hns3_desc *desc, *was;

		i = (i ?: ring->num) - 1;
		was = &ring->bd[i].desc;
		desc = hns3_sim_desc(port, ring, i);
		if (!desc || desc->addr != was->addr ||
		    desc->tx.send_size != was->tx.send_size ||
		    !(desc->tx.bdtp_fe_sc_vld_ra_ri &
		      cpu_to_le16(BIT(HNS3_TXD_VLD_B)))) {
			hns3_sim_fault(port, HNS3_SIM_DESC_TAKEN, queue, i,
				       le64_to_cpu(was->addr),
				       le16_to_cpu(was->tx.send_size));
			continue;
		}
		dma_wmb();
		WRITE_ONCE(desc->tx.bdtp_fe_sc_vld_ra_ri,
			   desc->tx.bdtp_fe_sc_vld_ra_ri &
			   cpu_to_le16(~BIT(HNS3_TXD_VLD_B)));
	} while (i != first);

	hns3_sim_event(ring);
}

/* Send what was fetched first. Return false if the wire is full. */
static bool hns3_sim_transmit(struct hns3_sim_port *port, u32 queue)
{
	struct hns3_sim_ring *ring = &port->queue[queue].tx;
	struct hns3_sim_wire *wire = &port->peer->wire;
	struct hns3_sim_frame *frame;
	u32 first = ring->done, i = first;
	bool good = true, last;

	frame = list_first_entry_or_null(&wire->free, struct hns3_sim_frame,
					 list);
	if (!frame)
		return false;

	frame->len = 0;
	do {
		struct hns3_sim_bd *bd = &ring->bd[i];
		u32 n = le16_to_cpu(bd->desc.tx.send_size);

		if (!n || frame->len + n > HNS3_SIM_MAX_FRAME - VLAN_HLEN) {
			hns3_sim_fault(port, HNS3_SIM_DESC_BAD, queue, i,
				       le64_to_cpu(bd->desc.addr), n);
			good = false;
		} else if (good) {
			if (port->inject.write_tx)
				hns3_sim_write(port, le64_to_cpu(bd->desc.addr),
					       "x", 1, queue, i);
			good = hns3_sim_read_bd(port, bd, queue, i,
						frame->data + frame->len);
			frame->len += n;
		}
		last = le16_to_cpu(bd->desc.tx.bdtp_fe_sc_vld_ra_ri) &
		       BIT(HNS3_TXD_FE_B);
		i = hns3_sim_next(ring, i);
	} while (!last);

	if (good && frame->len < ETH_HLEN)
		good = false;
	if (good && hns3_sim_offload(port, frame, &ring->bd[first].desc)) {
		port->stats.tx_packets++;
		port->stats.tx_bytes += frame->len;
		hns3_sim_send(port, frame);
	} else {
		port->stats.tx_dropped++;
	}

	hns3_sim_complete(port, queue, first, i);
	ring->done = i;

	return true;
}

/* Doorbells: a register, or memory that descriptors may be pushed to as well.
 * Both are plain memory here, so two that are rung before anyone looks count
 * as one, and what they add up to is of no use.
 */
static bool hns3_sim_doorbell(struct hns3_sim_queue *q)
{
	u32 *tail = &q->regs[HNS3_RING_TX_RING_TAIL_REG / sizeof(u32)];
	bool rung = false;
	int i;

	if (READ_ONCE(*tail)) {
		WRITE_ONCE(*tail, 0);
		rung = true;
	}
	for (i = 0; i < ARRAY_SIZE(q->push); i++) {
		if (READ_ONCE(q->push[i])) {
			WRITE_ONCE(q->push[i], 0);
			rung = true;
		}
	}

	return rung;
}

static bool hns3_sim_poll_port(struct hns3_sim_port *port)
{
	u32 num = port->nic.kinfo.num_tqps;
	bool worked = hns3_sim_deliver(port);
	u32 k;

	if (!port->running)
		return worked;

	/* Another queue is the first each time: on a full wire there is room
	 * for one queue's frames only.
	 */
	port->turn++;
	for (k = 0; k < num; k++) {
		u32 i = (port->turn + k) % num;
		struct hns3_sim_queue *q = &port->queue[i];
		int n = 0;

		if (!(hns3_sim_reg(q->regs, HNS3_RING_EN_REG) &
		      BIT(HNS3_RING_EN_B)))
			continue;
		if (hns3_sim_doorbell(q)) {
			port->stats.doorbells++;
			q->kicked = true;
			/* Descriptors were written before it was rung. */
			dma_rmb();
		}
		while (q->kicked && n < HNS3_SIM_BATCH &&
		       hns3_sim_fetch(port, i))
			n++;
		/* Frames of this doorbell may have been found by the one
		 * before, and be done. The driver takes them back only when
		 * it is told after having rung.
		 */
		if (q->kicked && !n)
			hns3_sim_event(&q->tx);
		/* Later frames have doorbells of their own. */
		if (n < HNS3_SIM_BATCH)
			q->kicked = false;
		worked |= n;
		for (n = 0; n < HNS3_SIM_BATCH && q->tx.done != q->tx.head &&
		     !port->inject.stall_tx; n++) {
			if (!hns3_sim_transmit(port, i))
				break;
			worked = true;
		}
	}

	return worked;
}

/**
 * hns3_sim_hw() - the hardware of a link, a thread
 * @data:	link
 *
 * Context: Thread of its own.
 * Return: 0 when it is to end.
 */
int hns3_sim_hw(void *data)
{
	struct hns3_sim_link *link = data;
	unsigned int wait = 20;
	unsigned long flags;
	bool worked;
	int i;

	while (!kthread_should_stop()) {
		spin_lock_irqsave(&link->lock, flags);
		hns3_sim_pause_counting();
		worked = false;
		for (i = 0; i < ARRAY_SIZE(link->port); i++) {
			if (link->port[i])
				worked |= hns3_sim_poll_port(link->port[i]);
		}
		hns3_sim_resume_counting();
		for (i = 0; i < ARRAY_SIZE(link->port); i++) {
			if (link->port[i])
				hns3_sim_fire(link->port[i]);
		}
		spin_unlock_irqrestore(&link->lock, flags);

		if (worked) {
			wait = 20;
			cond_resched();
			continue;
		}
		usleep_range(wait, wait + wait / 2);
		wait = min(wait * 2, 1000U);
	}

	return 0;
}

static u32 hns3_sim_num(const u32 *regs, u32 reg)
{
	return (hns3_sim_reg(regs, reg) + 1) * 8;
}

/* The address in a register, and in the one behind it */
static dma_addr_t hns3_sim_base(const u32 *regs, u32 reg)
{
	return hns3_sim_reg(regs, reg) |
	       (u64)hns3_sim_reg(regs, reg + sizeof(u32)) << 32;
}

/**
 * hns3_sim_hw_start() - let a port's hardware run
 * @port:	port, whose driver has set up its rings
 *
 * Context: Process context.
 * Return: 0 or -ENOMEM.
 */
int hns3_sim_hw_start(struct hns3_sim_port *port)
{
	struct hnae3_knic_private_info *kinfo = &port->nic.kinfo;
	struct hns3_sim_bd *bd[HNS3_SIM_MAX_QUEUES] = {};
	int i;

	for (i = 0; i < kinfo->num_tqps; i++) {
		u32 num = hns3_sim_num(port->queue[i].regs,
				       HNS3_RING_TX_RING_BD_NUM_REG);

		bd[i] = kvcalloc(num, sizeof(*bd[i]), GFP_KERNEL);
		if (!bd[i])
			goto err_free;
	}

	spin_lock_irq(&port->link->lock);
	for (i = 0; i < kinfo->num_tqps; i++) {
		struct hns3_sim_queue *q = &port->queue[i];

		q->tx.base = hns3_sim_base(q->regs,
					   HNS3_RING_TX_RING_BASEADDR_L_REG);
		q->tx.num = hns3_sim_num(q->regs,
					 HNS3_RING_TX_RING_BD_NUM_REG);
		q->rx.base = hns3_sim_base(q->regs,
					   HNS3_RING_RX_RING_BASEADDR_L_REG);
		q->rx.num = hns3_sim_num(q->regs,
					 HNS3_RING_RX_RING_BD_NUM_REG);
		q->tx.head = 0;
		q->tx.done = 0;
		q->rx.head = 0;
		q->tx.bd = bd[i];
		q->kicked = false;
	}
	port->running = true;
	spin_unlock_irq(&port->link->lock);

	return 0;

err_free:
	while (i--)
		kvfree(bd[i]);
	return -ENOMEM;
}

/**
 * hns3_sim_hw_stop() - stop a port's hardware
 * @port:	port
 *
 * Nothing of the driver's memory is touched any more when this returns, unless
 * the hardware has been told to hold what it has fetched.
 *
 * Context: Process context.
 */
void hns3_sim_hw_stop(struct hns3_sim_port *port)
{
	struct hns3_sim_bd *bd[HNS3_SIM_MAX_QUEUES] = {};
	int i;

	spin_lock_irq(&port->link->lock);
	port->running = false;
	hns3_sim_wire_flush(&port->wire);
	for (i = 0; i < HNS3_SIM_MAX_QUEUES; i++) {
		struct hns3_sim_ring *ring = &port->queue[i].tx;

		while (ring->bd && port->inject.hold &&
		       ring->done != ring->head &&
		       port->num_held < ARRAY_SIZE(port->held)) {
			port->held[port->num_held++] = ring->bd[ring->done];
			ring->done = hns3_sim_next(ring, ring->done);
			port->stats.held++;
		}
		bd[i] = ring->bd;
		ring->bd = NULL;
		port->vector[i].event = false;
	}
	spin_unlock_irq(&port->link->lock);

	for (i = 0; i < HNS3_SIM_MAX_QUEUES; i++)
		kvfree(bd[i]);
}

/**
 * hns3_sim_read_held() - read what was held across a stop
 * @port:	port
 *
 * What a broken device does: the driver has taken these descriptors back. The
 * checker tells what it comes to.
 *
 * Context: Process context.
 */
void hns3_sim_read_held(struct hns3_sim_port *port)
{
	u8 *to = kvmalloc(SZ_64K, GFP_KERNEL);
	u32 i;

	if (!to)
		return;

	spin_lock_irq(&port->link->lock);
	for (i = 0; i < port->num_held; i++)
		port->stats.held_read +=
			hns3_sim_read_bd(port, &port->held[i], 0, i, to);
	port->num_held = 0;
	spin_unlock_irq(&port->link->lock);

	kvfree(to);
}
