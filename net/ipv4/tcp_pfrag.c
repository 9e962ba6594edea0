// SPDX-License-Identifier: GPL-2.0
/*
 * What tcp_sendmsg_locked() copies to the pages of a TX page pool.
 *
 * Apart from it, since a second place in the same file that copies would make
 * the compiler inline neither, and cost those who do not use a pool.
 */

#include <net/hotdata.h>
#include <net/pfrag_pool.h>
#include <net/tcp.h>

#include "tcp_pfrag.h"

/* Reserve bytes for one more fragment.
 *
 * Return: 1; 0 if there is no pool, or no page; -EMSGSIZE if the skb is full.
 */
static noinline int tcp_pfrag_reserve(struct sock *sk, int nr_frags,
				      struct pfrag *pfrag, int size)
{
	struct page_pool *pool;
	int err = -EMSGSIZE;

	if (!READ_ONCE(sock_net(sk)->ipv4.sysctl_tcp_use_pfrag_pool))
		return 0;

	rcu_read_lock();
	pool = pfrag_pool_get(sk);
	if (pool && nr_frags < READ_ONCE(net_hotdata.sysctl_max_skb_frags))
		err = pfrag_pool_reserve(pool, pfrag, size);
	rcu_read_unlock();

	if (!pool) {
		NET_INC_STATS(sock_net(sk),
			      LINUX_MIB_TCPPFRAGFALLBACKNOPOOL);
		return 0;
	}

	switch (err) {
	case 0:
		NET_INC_STATS(sock_net(sk), LINUX_MIB_TCPPFRAGPOOLFRAGS);
		return 1;
	case -ENOBUFS:
		NET_INC_STATS(sock_net(sk),
			      LINUX_MIB_TCPPFRAGFALLBACKLIMIT);
		return 0;
	case -ENOMEM:
		NET_INC_STATS(sock_net(sk),
			      LINUX_MIB_TCPPFRAGFALLBACKNOMEM);
		return 0;
	default:
		return err;
	}
}

/**
 * tcp_sendmsg_pfrag() - append data to an skb, in a page of a TX page pool
 * @sk:		socket
 * @skb:	tail of @sk's write queue, no zerocopy skb of which the frags
 *		hold no references
 * @from:	the data
 * @copy:	how many bytes @skb has room for, at least one
 *
 * Behind @skb's last frag if that ends where the pool's page goes on,
 * otherwise in one more frag. The range is reserved first, copied to, and
 * given back if there is no send buffer for it or @from cannot be read.
 *
 * Context: @sk is owned by the caller. May sleep in a page fault.
 * Return: how many bytes were appended; 0 to use sk_page_frag(), -EMSGSIZE to
 *	   use another skb, -ENOMEM to wait for space, -EFAULT.
 */
int tcp_sendmsg_pfrag(struct sock *sk, struct sk_buff *skb,
		      struct iov_iter *from, int copy)
{
	struct skb_shared_info *shinfo = skb_shinfo(skb);
	int i = shinfo->nr_frags;
	struct pfrag range;
	struct page *page;
	int err;

	if (!i || !netmem_is_tx_pp(shinfo->frags[i - 1].netmem) ||
	    skb_zcopy(skb) ||
	    !pfrag_pool_extend(&shinfo->frags[i - 1], &range, copy)) {
		err = tcp_pfrag_reserve(sk, i, &range, copy);
		if (err <= 0)
			return err;
	}

	copy = tcp_wmem_schedule(sk, range.size);
	pfrag_pool_commit(&range, copy);
	if (!copy)
		return -ENOMEM;

	page = netmem_to_page(range.netmem);
	err = skb_copy_to_page_nocache(sk, from, skb, page, range.offset, copy);
	if (err) {
		pfrag_pool_commit(&range, 0);
		return err;
	}

	if (range.extends)
		skb_frag_size_add(&shinfo->frags[i - 1], copy);
	else
		skb_fill_netmem_desc(skb, i, range.netmem, range.offset, copy);

	return copy;
}
