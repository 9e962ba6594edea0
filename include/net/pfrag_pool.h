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
 *
 * Belongs to the writer, who copies to it with no lock held, and may sleep. Has
 * a pool reference of its own.
 */
struct pfrag {
	netmem_ref netmem;
	u32 offset;
	u32 size;
};

struct page_pool *pfrag_pool_get(const struct sock *sk);
int pfrag_pool_reserve(struct page_pool *pool, struct pfrag *pfrag, u32 size);
void __pfrag_pool_give_back(netmem_ref netmem, u32 end, u32 size);

/**
 * pfrag_pool_extend() - reserve the bytes that follow a fragment
 * @frag:	tagged frag of which the caller, and nobody else, may change
 *		the size
 * @size:	how many bytes the caller would like, at least one
 *
 * For small writes: no lookup, no lock and no reference, what continues @frag
 * lives by @frag's. So @frag must stay until the bytes have been given back, or
 * are part of it.
 *
 * An address names both a page and a place in it. @frag's reference keeps its
 * page from being begun anew, so if the context's free bytes still start at
 * @frag's end, they are the ones behind @frag, whatever happened meanwhile.
 *
 * Context: Any. Does not sleep.
 * Return: how many bytes, up to @size, are the caller's; 0 unless @frag ends
 *	   where this CPU's current page goes on.
 */
static inline u32 pfrag_pool_extend(const skb_frag_t *frag, u32 size)
{
	netmem_ref netmem = netmem_tx_pp_untag(skb_frag_netmem(frag));
	long va = (long)page_address(__netmem_to_page(netmem));
	u32 end = skb_frag_off(frag) + skb_frag_size(frag);
	struct page_pool *pool = __netmem_get_pp(netmem);

	/* Nothing at the end of the page. Where the next page starts a context
	 * may be, too, but to move that by 0 bytes does no harm.
	 */
	size = min(size, (u32)(PAGE_SIZE << pool->p.order) - end);
	va += end;
	if (!atomic_long_try_cmpxchg(&raw_cpu_ptr(pool->ctx)->frag_va, &va,
				     va + size))
		return 0;

	return size;
}

/**
 * pfrag_pool_commit() - say how much of the bytes reserved behind a fragment is
 * used
 * @frag:	the frag, its size not yet grown by what was reserved: 0 if it
 *		is new
 * @reserved:	bytes that pfrag_pool_reserve() or pfrag_pool_extend() gave
 * @used:	how many of them, from the first, the caller keeps
 *
 * What is not used goes back if nobody has reserved behind it meanwhile;
 * otherwise it is lost until the page comes round again. @frag's reference, and
 * growing @frag by @used, are the caller's business.
 *
 * Context: Any with interrupts enabled, also long after the reservation, on
 *	    another CPU, and when the pool has been destroyed.
 */
static inline void pfrag_pool_commit(const skb_frag_t *frag, u32 reserved,
				     u32 used)
{
	if (used != reserved)
		__pfrag_pool_give_back(skb_frag_netmem(frag),
				       skb_frag_off(frag) +
				       skb_frag_size(frag) + reserved,
				       reserved - used);
}

#endif /* _NET_PFRAG_POOL_H */
