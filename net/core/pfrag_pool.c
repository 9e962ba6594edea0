// SPDX-License-Identifier: GPL-2.0
/*
 * pfrag_pool: fragments for transmission, from the pages of TX page pools.
 *
 * Like page_frag, with two differences. The current page belongs to a CPU and
 * a pool (it is part of the page pool's context of that CPU), not to a socket
 * or a task. And a writer copies from user memory, which may fault and sleep,
 * with no lock held; so he reserves a range of his own first, and commits it
 * after.
 *
 * A writer that is migrated between picking a context and locking it uses
 * another CPU's. That is as good, it is the lock that counts.
 *
 * References to the current page are taken in advance, as page_pool's own
 * fragment API does: its pp_ref_count is BIAS_MAX less what has been dropped,
 * frag_users counts what has been handed out.
 */

#include <kunit/visibility.h>
#include <linux/if_vlan.h>
#include <linux/netdevice.h>
#include <net/dst.h>
#include <net/hotdata.h>
#include <net/page_pool/helpers.h>
#include <net/pfrag_pool.h>
#include <net/sock.h>
#include <net/xfrm.h>

#include "page_pool_priv.h"

/* The socket's packets come in by this NAPI: probably they leave by its
 * device, too
 */
static struct page_pool *pfrag_pool_get_by_napi(const struct sock *sk,
						const struct net_device *dev)
{
#ifdef CONFIG_NET_RX_BUSY_POLL
	return page_pool_get_by_napi_id(READ_ONCE(sk->sk_napi_id), dev);
#else
	return NULL;
#endif
}

/* The route's device has no pool, but is above others that may have one */
static struct page_pool *pfrag_pool_get_lower(struct net_device *dev,
					      const struct sock *sk)
{
	struct page_pool *pool;

	while (is_vlan_dev(dev))
		dev = vlan_dev_real_dev(dev);

	if (netif_is_bond_master(dev)) {
		struct net_device *port;

		/* Hashes the socket, and does not change it */
		port = netdev_sk_get_lowest_dev(dev, (struct sock *)sk);
		pool = netdev_tx_page_pool(port);
		if (pool)
			return pool;
	}

	/* Not every device that is above a NIC sends what it is given as it is:
	 * MACsec does not, see pfrag_pool_get().
	 */
	pool = netdev_tx_page_pool(dev);
	if (!pool && (netif_is_lag_master(dev) || netif_is_bridge_master(dev)))
		pool = pfrag_pool_get_by_napi(sk, dev);

	return pool;
}

/**
 * pfrag_pool_get() - the TX page pool that suits a socket
 * @sk:		connected socket
 *
 * Looks for the pool of the device by which the cached route leaves, through
 * VLANs, bonds and bridges as far as can be told. A wrong guess is no error:
 * whether a frag is premapped is decided when it is mapped.
 *
 * What the CPU encrypts below TCP gets no pool: the device is not to read the
 * plain text, and maps the cipher text anyway.
 *
 * Context: Socket owned by the caller, RCU read side, within which the pool
 *	    may be used.
 * Return: the pool, or NULL.
 */
struct page_pool *pfrag_pool_get(const struct sock *sk)
{
	struct dst_entry *dst = __sk_dst_get(sk);
	struct page_pool *pool;
	struct net_device *dev;

	if (!dst)
		return NULL;

#ifdef CONFIG_XFRM
	if (dst_xfrm(dst) && !READ_ONCE(dst_xfrm(dst)->xso.dev))
		return NULL;
#endif

	dev = dst_dev_rcu(dst);
	pool = netdev_tx_page_pool(dev);
	if (!pool) {
		if (list_empty(&dev->adj_list.lower))
			return NULL;
		return pfrag_pool_get_lower(dev, sk);
	}

	if (static_branch_unlikely(&page_pool_napi_key))
		return pfrag_pool_get_by_napi(sk, dev) ?: pool;

	return pool;
}

/* Nobody but the context refers to its page any more. @ctx->lock held. */
static bool pfrag_pool_page_unused(const struct page_pool_ctx *ctx)
{
	netmem_ref netmem = ctx->frag_page;

	/* Acquire: whoever dropped the last of them may have taken a page
	 * reference before, as splice does.
	 */
	return atomic_long_read_acquire(netmem_get_pp_ref_count_ref(netmem)) ==
	       PP_BIAS_MAX - ctx->frag_users &&
	       netmem_ref_count(netmem) == 1;
}

/* The first byte of a page, as a context's frag_va has it */
static long pfrag_pool_va(netmem_ref netmem)
{
	return (long)page_address(__netmem_to_page(netmem));
}

/* Bytes from @va to the end of the context's page. @ctx->lock held.
 *
 * Bytes come back, references that were handed out do not, and must not exceed
 * those that were taken in advance.
 */
static u32 pfrag_pool_room(const struct page_pool *pool,
			   const struct page_pool_ctx *ctx, long va)
{
	if (!ctx->frag_page || ctx->frag_users >= PP_BIAS_MAX / 2)
		return 0;

	return pfrag_pool_va(ctx->frag_page) +
	       (PAGE_SIZE << pool->p.order) - va;
}

/* Take fragments from the start of the context's page. @ctx->lock held. */
static void pfrag_pool_start(struct page_pool_ctx *ctx)
{
	page_pool_fragment_netmem(ctx->frag_page, PP_BIAS_MAX);
	ctx->frag_users = 0;
	atomic_long_set(&ctx->frag_va, pfrag_pool_va(ctx->frag_page));
}

/* Give the context another page. @ctx->lock held. */
static int pfrag_pool_refill(struct page_pool *pool, struct page_pool_ctx *ctx)
{
	page_pool_ctx_drop_frag(pool, ctx);

	if (pool->p.order &&
	    static_branch_unlikely(&net_high_order_alloc_disable_key))
		return -ENOMEM;

	ctx->frag_page = page_pool_ctx_alloc_locked(pool, ctx,
						    PAGE_POOL_TX_GFP);
	if (unlikely(!ctx->frag_page))
		return page_pool_ctx_full(pool) ? -ENOBUFS : -ENOMEM;

	pfrag_pool_start(ctx);

	return 0;
}

/**
 * pfrag_pool_reserve() - reserve bytes for a new fragment
 * @pool:	TX page pool, or any pool with PP_FLAG_ALLOC_CTX
 * @pfrag:	is filled in with the range and a reference for it
 * @size:	how many bytes the caller would like, at least one
 *
 * Consecutive reservations on a CPU are contiguous as long as the page lasts.
 * The range holds other users' data until it is written.
 *
 * Context: Any with interrupts enabled. RCU read side if @pool was looked up
 *	    by it; the range outlives that. Does not sleep.
 * Return: 0, with between 1 and @size bytes reserved; -ENOBUFS when the pool
 *	   has reached its limit, -ENOMEM when there is no page to be had.
 */
int pfrag_pool_reserve(struct page_pool *pool, struct pfrag *pfrag, u32 size)
{
	struct page_pool_ctx *ctx;
	int err = 0;
	long va;

	ctx = raw_cpu_ptr(pool->ctx);
	spin_lock_bh(&ctx->lock);

	ctx->active = true;
	if (ctx->frag_page && pfrag_pool_page_unused(ctx))
		pfrag_pool_start(ctx);

	/* Those who extend a fragment take no lock */
	va = atomic_long_read(&ctx->frag_va);
	do {
		if (pfrag_pool_room(pool, ctx, va) < PFRAG_POOL_MIN_ROOM) {
			err = pfrag_pool_refill(pool, ctx);
			if (unlikely(err))
				goto unlock;
			va = pfrag_pool_va(ctx->frag_page);
		}
		pfrag->size = min(size, pfrag_pool_room(pool, ctx, va));
	} while (!atomic_long_try_cmpxchg(&ctx->frag_va, &va,
					  va + pfrag->size));

	pfrag->netmem = netmem_tx_pp_tag(ctx->frag_page);
	pfrag->offset = va - pfrag_pool_va(ctx->frag_page);
	ctx->frag_users++;
unlock:
	spin_unlock_bh(&ctx->lock);

	return err;
}
EXPORT_SYMBOL_IF_KUNIT(pfrag_pool_reserve);

/* The slow half of pfrag_pool_commit(): @size bytes before @end go back. The
 * caller has a reference to the page, hence there are still the pool and its
 * contexts. If the pool has been destroyed, this is no context's page any
 * more.
 */
void __pfrag_pool_give_back(netmem_ref netmem, u32 end, u32 size)
{
	struct page_pool_ctx *ctx;
	long va;

	netmem = netmem_tx_pp_untag(netmem);
	va = pfrag_pool_va(netmem) + end;
	ctx = raw_cpu_ptr(__netmem_get_pp(netmem)->ctx);
	spin_lock_bh(&ctx->lock);
	/* The page's end may be where another one starts */
	if (ctx->frag_page == netmem)
		atomic_long_try_cmpxchg(&ctx->frag_va, &va, va - size);
	spin_unlock_bh(&ctx->lock);
}
EXPORT_SYMBOL_IF_KUNIT(__pfrag_pool_give_back);
