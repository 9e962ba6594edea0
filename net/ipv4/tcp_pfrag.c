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

/* Reserve @size bytes behind a new frag of @skb, which is empty yet.
 *
 * Return: how many bytes; 0 if there is no pool, or no page; -EMSGSIZE if the
 *	   skb is full.
 */
static noinline int tcp_pfrag_reserve(struct sock *sk, struct sk_buff *skb,
				      int size)
{
	int i = skb_shinfo(skb)->nr_frags;
	struct page_pool *pool;
	struct pfrag pfrag;
	int err = -EMSGSIZE;

	if (!READ_ONCE(sock_net(sk)->ipv4.sysctl_tcp_use_pfrag_pool))
		return 0;

	rcu_read_lock();
	pool = pfrag_pool_get(sk);
	if (pool && i < READ_ONCE(net_hotdata.sysctl_max_skb_frags))
		err = pfrag_pool_reserve(pool, &pfrag, size);
	rcu_read_unlock();

	if (!pool) {
		NET_INC_STATS(sock_net(sk),
			      LINUX_MIB_TCPPFRAGFALLBACKNOPOOL);
		return 0;
	}

	switch (err) {
	case 0:
		NET_INC_STATS(sock_net(sk), LINUX_MIB_TCPPFRAGPOOLFRAGS);
		/* the range's reference is the frag's */
		skb_fill_netmem_desc(skb, i, pfrag.netmem, pfrag.offset, 0);
		return pfrag.size;
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
	int size = 0, err;
	struct page *page;
	skb_frag_t *frag;

	if (shinfo->nr_frags) {
		frag = &shinfo->frags[shinfo->nr_frags - 1];
		if (netmem_is_tx_pp(frag->netmem) && !skb_zcopy(skb))
			size = pfrag_pool_extend(frag, copy);
	}

	if (!size) {
		size = tcp_pfrag_reserve(sk, skb, copy);
		if (size <= 0)
			return size;
		frag = &shinfo->frags[shinfo->nr_frags - 1];
	}

	copy = tcp_wmem_schedule(sk, size);
	if (unlikely(!copy)) {
		err = -ENOMEM;
		goto undo;
	}

	page = __netmem_to_page(netmem_tx_pp_untag(frag->netmem));
	err = skb_copy_to_page_nocache(sk, from, skb, page, skb_frag_off(frag) +
				       skb_frag_size(frag), copy);
	if (unlikely(err))
		goto undo;

	pfrag_pool_commit(frag, size, copy);
	skb_frag_size_add(frag, copy);

	return copy;

undo:
	pfrag_pool_commit(frag, size, 0);
	/* It was new: never leave an empty frag */
	if (!skb_frag_size(frag)) {
		shinfo->nr_frags--;
		put_netmem(frag->netmem);
	}

	return err;
}
