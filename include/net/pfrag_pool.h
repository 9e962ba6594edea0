/* SPDX-License-Identifier: GPL-2.0 */

#ifndef _NET_PFRAG_POOL_H
#define _NET_PFRAG_POOL_H

#include <linux/skbuff.h>
#include <net/page_pool/tx.h>

struct sock;

/* As skb_page_frag_refill() for TCP: no new fragment in less room than this */
#define PFRAG_POOL_MIN_ROOM	32U

/**
 * struct pfrag - a range of bytes of a TX page pool's page, reserved by one
 * writer
 * @netmem:	the page, tagged
 * @offset:	first byte, from the start of the page
 * @size:	number of bytes
 * @extends:	the range continues a fragment, and lives by that one's
 *		reference; otherwise it has a pool reference of its own
 *
 * Belongs to the writer, who copies to it with no lock held, and may sleep.
 */
struct pfrag {
	netmem_ref netmem;
	u32 offset;
	u32 size;
	bool extends;
};

#ifdef CONFIG_PFRAG_POOL

struct page_pool *pfrag_pool_get(const struct sock *sk);
int pfrag_pool_reserve(struct page_pool *pool, struct pfrag *pfrag, u32 size);
void __pfrag_pool_commit(struct pfrag *pfrag, u32 used);

/**
 * pfrag_pool_extend() - reserve the bytes that follow a fragment
 * @frag:	tagged frag of which the caller, and nobody else, may change
 *		the size
 * @pfrag:	is filled in with the range
 * @size:	how many bytes the caller would like, at least one
 *
 * For small writes: no lookup and no reference, a range that continues @frag
 * lives by @frag's. So @frag must stay until pfrag_pool_commit(), or the range
 * be part of it.
 *
 * Context: Any with interrupts enabled. Does not sleep.
 * Return: true, with between 1 and @size bytes reserved; false unless @frag
 *	   ends where this CPU's current page goes on.
 */
static inline bool pfrag_pool_extend(const skb_frag_t *frag,
				     struct pfrag *pfrag, u32 size)
{
	netmem_ref netmem = netmem_tx_pp_untag(skb_frag_netmem(frag));
	struct page_pool *pool = __netmem_get_pp(netmem);
	u32 end = skb_frag_off(frag) + skb_frag_size(frag);
	u32 room = (PAGE_SIZE << pool->p.order) - end;
	struct page_pool_ctx *ctx;
	bool ret = false;

	ctx = raw_cpu_ptr(pool->ctx);
	spin_lock_bh(&ctx->lock);
	if (ctx->frag_page == netmem && ctx->frag_offset == end && room) {
		pfrag->netmem = skb_frag_netmem(frag);
		pfrag->offset = end;
		pfrag->size = min(size, room);
		pfrag->extends = true;
		ctx->frag_offset += pfrag->size;
		ret = true;
	}
	spin_unlock_bh(&ctx->lock);

	return ret;
}

#else

static inline struct page_pool *pfrag_pool_get(const struct sock *sk)
{
	return NULL;
}

static inline int pfrag_pool_reserve(struct page_pool *pool,
				     struct pfrag *pfrag, u32 size)
{
	return -EOPNOTSUPP;
}

static inline bool pfrag_pool_extend(const skb_frag_t *frag,
				     struct pfrag *pfrag, u32 size)
{
	return false;
}

static inline void __pfrag_pool_commit(struct pfrag *pfrag, u32 used)
{
}

#endif /* CONFIG_PFRAG_POOL */

/**
 * pfrag_pool_commit() - say how much of a reserved range is used
 * @pfrag:	range, reserved or extended
 * @used:	number of bytes from its start that the caller keeps
 *
 * What is not used goes back if nobody has reserved behind it meanwhile. With
 * @used 0 the range's own reference is dropped, and @pfrag is void. Otherwise
 * the reference is the caller's, to be put into a frag: @netmem as it is.
 *
 * Context: Any with interrupts enabled, also long after the reservation, on
 *	    another CPU, and when the pool has been destroyed.
 */
static inline void pfrag_pool_commit(struct pfrag *pfrag, u32 used)
{
	if (used != pfrag->size)
		__pfrag_pool_commit(pfrag, used);
}

#endif /* _NET_PFRAG_POOL_H */
