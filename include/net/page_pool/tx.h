/* SPDX-License-Identifier: GPL-2.0 */

#ifndef _NET_PAGE_POOL_TX_H
#define _NET_PAGE_POOL_TX_H

#include <linux/jump_label.h>
#include <linux/netdevice.h>
#include <net/page_pool/types.h>

/* Never sleeps, never touches reserves: whoever asks has another way. Zeroed,
 * for the device can read all of the page while it is mapped.
 */
#define PAGE_POOL_TX_GFP	(GFP_NOWAIT | __GFP_NORETRY | __GFP_NOWARN | \
				 __GFP_NOMEMALLOC | __GFP_COMP | __GFP_ZERO)

#ifdef CONFIG_PFRAG_POOL

DECLARE_STATIC_KEY_FALSE(page_pool_tx_key);
DECLARE_STATIC_KEY_FALSE(page_pool_napi_key);

/**
 * page_pool_tx_enabled() - may TX page pools be allocated from?
 *
 * Gates allocating only. Pages that are out are freed whatever it says.
 *
 * Context: Any.
 * Return: true while the first network namespace has the setting on.
 */
static inline bool page_pool_tx_enabled(void)
{
	return static_branch_unlikely(&page_pool_tx_key);
}

void page_pool_tx_enable(bool enable);
void netif_enable_tx_page_pool(struct net_device *dev, struct device *dma_dev);
netmem_ref page_pool_tx_alloc(struct net_device *dev);

/**
 * netdev_tx_page_pool() - the TX page pool of a network device
 * @dev:	network device
 *
 * Context: RCU read side; the pool may be allocated from until its end.
 * Return: the pool of the device by which @dev does DMA, NULL if there is none.
 */
static inline struct page_pool *
netdev_tx_page_pool(const struct net_device *dev)
{
	return rcu_dereference(dev->tx_pp);
}

void page_pool_register_napi(struct page_pool *pool, struct napi_struct *napi);
void page_pool_unregister_napi(struct napi_struct *napi);
struct page_pool *page_pool_get_by_napi_id(unsigned int napi_id,
					   const struct net_device *dev);

#else

static inline bool page_pool_tx_enabled(void)
{
	return false;
}

static inline void page_pool_tx_enable(bool enable)
{
}

static inline void netif_enable_tx_page_pool(struct net_device *dev,
					     struct device *dma_dev)
{
}

static inline netmem_ref page_pool_tx_alloc(struct net_device *dev)
{
	return 0;
}

static inline struct page_pool *
netdev_tx_page_pool(const struct net_device *dev)
{
	return NULL;
}

static inline void page_pool_register_napi(struct page_pool *pool,
					   struct napi_struct *napi)
{
}

static inline void page_pool_unregister_napi(struct napi_struct *napi)
{
}

static inline struct page_pool *
page_pool_get_by_napi_id(unsigned int napi_id, const struct net_device *dev)
{
	return NULL;
}

#endif /* CONFIG_PFRAG_POOL */

#endif /* _NET_PAGE_POOL_TX_H */
