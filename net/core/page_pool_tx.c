// SPDX-License-Identifier: GPL-2.0
/*
 * TX page pools: one for each device that does DMA for opted-in network
 * devices.
 *
 * The pool belongs to the device (struct device) that the DMA API is called
 * with, not to a netdev or a queue: netdevs are renamed, moved, closed, get
 * other rings and queues, and several may share a device, but what has been
 * mapped stays valid exactly as long as the device has a driver. So the pool
 * is a managed resource (devres) of that device: it is released after the
 * driver's remove(), when no netdev of the device exists any more and hence no
 * ring that points to a page.
 *
 * Locking, outermost first: the device's lock, RTNL, net_rwsem,
 * page_pools_lock.
 */

#include <kunit/visibility.h>
#include <linux/device.h>
#include <linux/dma-mapping.h>
#include <linux/mm.h>
#include <linux/netdevice.h>
#include <linux/pci.h>
#include <linux/rtnetlink.h>
#include <linux/shrinker.h>
#include <linux/swiotlb.h>
#include <linux/workqueue.h>
#include <net/hotdata.h>
#include <net/net_namespace.h>
#include <net/page_pool/helpers.h>
#include <net/page_pool/tx.h>
#include <net/sock.h>
#include <xen/xen.h>

#include "dev.h"
#include "page_pool_priv.h"

/* What skb_page_frag_refill() uses, and where the cost per byte levels off:
 * mapping and recycling a page is paid for by eight times as many bytes.
 */
#define PAGE_POOL_TX_ORDER	get_order(32768)

/* A pool may hold a sixteenth of the memory, and a GiB at the most */
#define PAGE_POOL_TX_MEM_SHIFT	4
#define PAGE_POOL_TX_MAX_PAGES	((unsigned long)SZ_1G >> PAGE_SHIFT)

/* Pages that no context holds wait in the ptr_ring; what does not fit is freed
 */
#define PAGE_POOL_TX_RING	4096

#define PAGE_POOL_TX_TRIM	(2 * HZ)

/* The resource of a DMA device */
struct page_pool_tx {
	struct page_pool *pool;
	struct delayed_work trim;
	/* in page_pool_tx_list, protected by page_pool_tx_lock */
	struct list_head list;
};

static LIST_HEAD(page_pool_tx_list);
/* Protects page_pool_tx_list, innermost. The shrinker tries to take it. */
static DEFINE_MUTEX(page_pool_tx_lock);

/* Follows the setting of the first network namespace */
DEFINE_STATIC_KEY_FALSE(page_pool_tx_key);
EXPORT_SYMBOL_GPL(page_pool_tx_key);

/* Counts the NAPIs that have a pool of their own, see
 * page_pool_register_napi()
 */
DEFINE_STATIC_KEY_FALSE(page_pool_napi_key);
EXPORT_SYMBOL_IF_KUNIT(page_pool_napi_key);

static void page_pool_tx_work_fn(struct work_struct *work);
static DECLARE_WORK(page_pool_tx_work, page_pool_tx_work_fn);

/* Skbs that were completed on another CPU than they were allocated on wait for
 * that one's next receive softirq, with their pages. On an idle CPU that may be
 * never.
 */
static void page_pool_tx_flush_deferred(void)
{
	int cpu, node;

	for_each_online_cpu(cpu) {
		for_each_node(node)
			skb_defer_node_flush(node +
				per_cpu_ptr(net_hotdata.skb_defer_nodes, cpu));
	}
}

static void page_pool_tx_trim(struct work_struct *work)
{
	struct delayed_work *dwork = to_delayed_work(work);
	struct page_pool_tx *tx = container_of(dwork, typeof(*tx), trim);

	page_pool_tx_flush_deferred();
	page_pool_ctx_trim(tx->pool);

	/* Otherwise the pool is closed, and empty now */
	if (page_pool_tx_enabled())
		queue_delayed_work(system_power_efficient_wq, dwork,
				   PAGE_POOL_TX_TRIM);
}

/* Device lock held, by the driver core. */
static void page_pool_tx_release(struct device *dma_dev, void *res)
{
	struct page_pool_tx *tx = res;
	struct net_device *dev;
	struct net *net;

	/* remove() has unregistered the netdevs. One that is still here would
	 * transmit by addresses that are about to become invalid.
	 */
	rtnl_lock();
	down_read(&net_rwsem);
	for_each_net(net) {
		for_each_netdev(net, dev) {
			if (rcu_access_pointer(dev->tx_pp) != tx->pool)
				continue;
			netdev_WARN(dev,
				    "registered after remove() of its driver\n");
			RCU_INIT_POINTER(dev->tx_pp, NULL);
		}
	}
	up_read(&net_rwsem);
	rtnl_unlock();

	mutex_lock(&page_pool_tx_lock);
	list_del(&tx->list);
	mutex_unlock(&page_pool_tx_lock);

	cancel_delayed_work_sync(&tx->trim);
	page_pool_tx_flush_deferred();
	page_pool_destroy(tx->pool);
}

/* A permanent mapping must be one: no bounce buffer (it would hold the pages
 * of a bounded aperture for good, and miss what is written later), and no
 * device from which memory is to be hidden page by page.
 *
 * Return: NULL if @dma_dev may have a pool, else why not.
 */
static const char *page_pool_tx_refuse(struct device *dma_dev)
{
	/* else page_pool_scrub() does not find the pages in flight */
	if (!PP_DMA_INDEX_BITS)
		return "this architecture cannot track its pages";
	if (dev_is_pci(dma_dev) && to_pci_dev(dma_dev)->untrusted)
		return "the device is untrusted";
	/* what is contiguous for the guest need not be for the device */
	if (xen_pv_domain())
		return "the kernel is a Xen PV guest";
	if (is_swiotlb_force_bounce(dma_dev))
		return "the device's DMA goes through bounce buffers";
	if (dma_addressing_limited(dma_dev))
		return "the device cannot address all memory";
	return NULL;
}

static struct page_pool_tx *page_pool_tx_create(struct device *dma_dev,
						struct net_device *dev)
{
	unsigned long bytes = PAGE_SIZE << PAGE_POOL_TX_ORDER;
	unsigned long max_pages = min(totalram_pages() >>
				      PAGE_POOL_TX_MEM_SHIFT,
				      PAGE_POOL_TX_MAX_PAGES);
	unsigned long max_bytes = max_pages << PAGE_SHIFT;
	struct page_pool_params params = {
		.order		= PAGE_POOL_TX_ORDER,
		.pool_size	= min(max_bytes / bytes,
				      (unsigned long)PAGE_POOL_TX_RING),
		.nid		= NUMA_NO_NODE,
		.flags		= PP_FLAG_ALLOC_CTX,
		.ctx_max_bytes	= max_bytes,
		.netdev		= dev,
	};
	struct page_pool_tx *tx;
	struct page_pool *pool;

	/* Without a DMA mask the device does no DMA, as netdevsim */
	if (dma_dev->dma_mask) {
		const char *why = page_pool_tx_refuse(dma_dev);

		if (why) {
			netdev_info(dev, "no TX page pool: %s\n", why);
			return NULL;
		}
		params.flags |= PP_FLAG_DMA_MAP | PP_FLAG_DMA_SYNC_DEV;
		params.dev = dma_dev;
		params.dma_dir = DMA_TO_DEVICE;
		params.max_len = bytes;
	}

	tx = devres_alloc(page_pool_tx_release, sizeof(*tx), GFP_KERNEL);
	if (!tx)
		return NULL;

	pool = page_pool_create(&params);
	if (IS_ERR(pool)) {
		devres_free(tx);
		return NULL;
	}
	pool->premap_dev = params.dev;

	tx->pool = pool;
	INIT_DEFERRABLE_WORK(&tx->trim, page_pool_tx_trim);
	mutex_lock(&page_pool_tx_lock);
	list_add(&tx->list, &page_pool_tx_list);
	mutex_unlock(&page_pool_tx_lock);
	devres_add(dma_dev, tx);

	return tx;
}

/* Give the netdevs of one device its pool, which is made if need be. */
static void page_pool_tx_attach(struct device *dma_dev)
{
	struct page_pool_tx *tx;
	struct net_device *dev;
	struct net *net;

	device_lock(dma_dev);
	/* Unbound: remove() is over, what is added now would never be released
	 */
	if (!device_is_bound(dma_dev))
		goto unlock_device;

	rtnl_lock();
	down_read(&net_rwsem);
	tx = devres_find(dma_dev, page_pool_tx_release, NULL, NULL);
	for_each_net(net) {
		for_each_netdev(net, dev) {
			if (dev->tx_pp_dev != dma_dev)
				continue;
			if (!tx)
				tx = page_pool_tx_create(dma_dev, dev);
			if (!tx)
				goto unlock;
			if (rcu_access_pointer(dev->tx_pp))
				continue;
			/* It may be listed with a netdev that has gone */
			if (tx->pool->slow.netdev->tx_pp_dev != dma_dev)
				page_pool_relist(tx->pool, dev);
			rcu_assign_pointer(dev->tx_pp, tx->pool);
		}
	}
	if (tx)
		queue_delayed_work(system_power_efficient_wq, &tx->trim,
				   PAGE_POOL_TX_TRIM);
unlock:
	up_read(&net_rwsem);
	rtnl_unlock();
unlock_device:
	device_unlock(dma_dev);
}

/* The next device with a netdev that is up and waits for its pool. No netdev
 * is held: a device's lock is taken next, and who holds that may be waiting
 * for the netdev's last reference.
 */
static struct device *page_pool_tx_next(struct device *prev)
{
	struct device *found = NULL;
	struct net_device *dev;
	struct net *net;

	rtnl_lock();
	down_read(&net_rwsem);
	for_each_net(net) {
		for_each_netdev(net, dev) {
			if (!dev->tx_pp_dev || !netif_running(dev) ||
			    rcu_access_pointer(dev->tx_pp))
				continue;
			/* by address: a device that gets no pool is not met
			 * again
			 */
			if (dev->tx_pp_dev > prev &&
			    (!found || dev->tx_pp_dev < found))
				found = dev->tx_pp_dev;
		}
	}
	if (found)
		get_device(found);
	up_read(&net_rwsem);
	rtnl_unlock();

	return found;
}

static void page_pool_tx_work_fn(struct work_struct *work)
{
	struct device *dma_dev = NULL, *next;

	if (!page_pool_tx_enabled())
		return;

	while ((next = page_pool_tx_next(dma_dev))) {
		page_pool_tx_attach(next);
		put_device(dma_dev);
		dma_dev = next;
	}
	put_device(dma_dev);
}

/**
 * page_pool_tx_enable() - let TX page pools be allocated from, or not
 * @enable:	the setting of the first network namespace
 *
 * The pools are made by a work item. Those that exist stay: empty, and
 * without a page that nobody uses, while they must not be allocated from.
 *
 * Context: Process context. Callers exclude each other.
 */
void page_pool_tx_enable(bool enable)
{
	struct page_pool_tx *tx;

	if (enable)
		static_branch_enable(&page_pool_tx_key);
	else
		static_branch_disable(&page_pool_tx_key);

	mutex_lock(&page_pool_tx_lock);
	list_for_each_entry(tx, &page_pool_tx_list, list) {
		if (enable)
			page_pool_ctx_open(tx->pool);
		else
			page_pool_ctx_close(tx->pool);
		/* When off once more, for what was on its way to the ring */
		queue_delayed_work(system_power_efficient_wq, &tx->trim,
				   PAGE_POOL_TX_TRIM);
	}
	mutex_unlock(&page_pool_tx_lock);

	if (enable)
		schedule_work(&page_pool_tx_work);
}

/**
 * netif_enable_tx_page_pool() - a driver's word that it transmits premapped
 * pages
 * @dev:	network device, not registered yet
 * @dma_dev:	the device that the driver passes to the DMA API for all of
 *		@dev's transmit queues. One without a DMA mask gets a pool
 *		without DMA mappings.
 *
 * By this the driver promises that wherever it maps a frag of @dev for
 * transmission, and for any other netdev that does DMA by @dma_dev, it asks
 * netmem_premapped() once (skb_frag_dma_map() does), and that it unmaps by
 * what it stored then. @dma_dev must have a driver while @dev exists, and that
 * driver's remove() must unregister @dev, so devm_register_netdev() on
 * @dma_dev is not for such drivers.
 *
 * Context: Before register_netdevice().
 */
void netif_enable_tx_page_pool(struct net_device *dev, struct device *dma_dev)
{
	DEBUG_NET_WARN_ON_ONCE(dev->reg_state != NETREG_UNINITIALIZED);

	dev->tx_pp_dev = dma_dev;
}
EXPORT_SYMBOL_GPL(netif_enable_tx_page_pool);

/**
 * page_pool_tx_alloc() - a premapped page for a driver's own use
 * @dev:	network device that has called netif_enable_tx_page_pool()
 *
 * For what a driver transmits besides frags, such as headers that it copies.
 * The page, of page_size() bytes, is mapped DMA_TO_DEVICE, and belongs to the
 * caller until page_pool_ctx_put_netmem(), no later than its remove().
 * Whatever is written to it has to be synced for the device where that is
 * needed.
 *
 * Context: Bottom halves disabled, interrupts enabled.
 * Return: the page, not tagged; 0 when there is no pool, no memory, or the
 *	   setting is off.
 */
netmem_ref page_pool_tx_alloc(struct net_device *dev)
{
	struct page_pool *pool;
	netmem_ref netmem = 0;

	if (!page_pool_tx_enabled())
		return 0;

	rcu_read_lock();
	pool = netdev_tx_page_pool(dev);
	if (pool && READ_ONCE(pool->premap_dev) &&
	    !(PAGE_POOL_TX_ORDER &&
	      static_branch_unlikely(&net_high_order_alloc_disable_key)))
		netmem = page_pool_ctx_alloc_netmem(pool, PAGE_POOL_TX_GFP);
	rcu_read_unlock();

	return netmem;
}
EXPORT_SYMBOL_GPL(page_pool_tx_alloc);

/**
 * page_pool_register_napi() - a pool of its own for the sockets of one NAPI
 * @pool:	pool with PP_FLAG_ALLOC_CTX
 * @napi:	NAPI instance
 *
 * Sockets that receive by @napi, and send by its netdev, take their pages from
 * @pool instead of the device's pool; there has to be one, a netdev without is
 * not asked for its NAPIs. The caller promises that @pool lives
 * until page_pool_unregister_napi() and a grace period have passed, and longer
 * than all rings by which the device that it was created with may read its
 * pages: also those of another netdev that does DMA by the same device, which a
 * route, a bond or a tc rule may have led a page to.
 *
 * Context: Process context, after netif_napi_add(). The caller serialises it
 *	    with page_pool_unregister_napi() and netif_napi_del() of @napi.
 */
void page_pool_register_napi(struct page_pool *pool, struct napi_struct *napi)
{
	if (!rcu_access_pointer(napi->tx_pp))
		static_branch_inc(&page_pool_napi_key);
	if (pool->dma_map)
		WRITE_ONCE(pool->premap_dev, pool->p.dev);
	rcu_assign_pointer(napi->tx_pp, pool);
}
EXPORT_SYMBOL_GPL(page_pool_register_napi);

/**
 * page_pool_unregister_napi() - undo page_pool_register_napi()
 * @napi:	NAPI instance
 *
 * Context: As page_pool_register_napi(). netif_napi_del() does it, too.
 */
void page_pool_unregister_napi(struct napi_struct *napi)
{
	if (!rcu_access_pointer(napi->tx_pp))
		return;

	static_branch_dec(&page_pool_napi_key);
	RCU_INIT_POINTER(napi->tx_pp, NULL);
}
EXPORT_SYMBOL_GPL(page_pool_unregister_napi);

/**
 * page_pool_get_by_napi_id() - find the TX page pool that goes with a NAPI
 * @napi_id:	NAPI id, as in sk_napi_id
 * @dev:	netdev by which one wants to send
 *
 * An id outlives its NAPI, and is no proof of the way back: a pool is found
 * only if the NAPI's netdev is @dev, or a port of @dev.
 *
 * Context: RCU read side, within which the pool may be used. Takes no
 *	    reference.
 * Return: the pool registered with the NAPI, else that of the NAPI's netdev,
 *	   else NULL.
 */
struct page_pool *page_pool_get_by_napi_id(unsigned int napi_id,
					   const struct net_device *dev)
{
	struct napi_struct *napi = napi_by_id(napi_id);
	struct page_pool *pool;

	if (!napi || (napi->dev != dev &&
		      netdev_master_upper_dev_get_rcu(napi->dev) != dev))
		return NULL;

	pool = rcu_dereference(napi->tx_pp);

	return pool ?: netdev_tx_page_pool(napi->dev);
}
EXPORT_SYMBOL_IF_KUNIT(page_pool_get_by_napi_id);

static unsigned long page_pool_tx_count(struct shrinker *shrinker,
					struct shrink_control *sc)
{
	struct page_pool_tx *tx;
	unsigned long nr = 0;

	if (!mutex_trylock(&page_pool_tx_lock))
		return 0;
	list_for_each_entry(tx, &page_pool_tx_list, list)
		nr += page_pool_ctx_cached(tx->pool);
	mutex_unlock(&page_pool_tx_lock);

	return nr << PAGE_POOL_TX_ORDER;
}

static unsigned long page_pool_tx_scan(struct shrinker *shrinker,
				       struct shrink_control *sc)
{
	unsigned int want = DIV_ROUND_UP(sc->nr_to_scan,
					 1UL << PAGE_POOL_TX_ORDER);
	unsigned int freed = 0;
	struct page_pool_tx *tx;

	if (!mutex_trylock(&page_pool_tx_lock))
		return SHRINK_STOP;
	list_for_each_entry(tx, &page_pool_tx_list, list) {
		if (freed >= want)
			break;
		freed += page_pool_ctx_shrink(tx->pool, want - freed);
	}
	mutex_unlock(&page_pool_tx_lock);

	return freed ? (unsigned long)freed << PAGE_POOL_TX_ORDER : SHRINK_STOP;
}

/* The pool shows up in netlink with one of its netdevs. That one goes: list it
 * with another one of the device, else with the loopback that never goes.
 */
static void page_pool_tx_relist(struct net_device *gone, struct page_pool *pool)
{
	struct net_device *dev;
	struct net *net;

	down_read(&net_rwsem);
	for_each_net(net) {
		for_each_netdev(net, dev) {
			if (dev != gone &&
			    rcu_access_pointer(dev->tx_pp) == pool) {
				page_pool_relist(pool, dev);
				goto out;
			}
		}
	}
	page_pool_relist(pool, init_net.loopback_dev);
out:
	up_read(&net_rwsem);
}

static int page_pool_tx_netdev_event(struct notifier_block *nb,
				     unsigned long event, void *ptr)
{
	struct net_device *dev = netdev_notifier_info_to_dev(ptr);
	struct page_pool *pool;

	if (!dev->tx_pp_dev)
		return NOTIFY_DONE;

	switch (event) {
	case NETDEV_UP:
		if (page_pool_tx_enabled())
			schedule_work(&page_pool_tx_work);
		break;
	case NETDEV_UNREGISTER:
		pool = rtnl_dereference(dev->tx_pp);
		if (!pool)
			break;
		/* Also when it only moves to another namespace, NETDEV_UP gives
		 * the pool back there.
		 */
		RCU_INIT_POINTER(dev->tx_pp, NULL);
		if (pool->slow.netdev == dev)
			page_pool_tx_relist(dev, pool);
		break;
	}

	return NOTIFY_DONE;
}

static struct notifier_block page_pool_tx_netdev_nb = {
	.notifier_call	= page_pool_tx_netdev_event,
	/* before page_pool_user.c gives all pools of the netdev to its
	 * loopback
	 */
	.priority	= 1,
};

static int __init page_pool_tx_init(void)
{
	struct shrinker *shrinker;
	int err;

	err = register_netdevice_notifier(&page_pool_tx_netdev_nb);
	if (err)
		return err;

	/* Without it the pools still empty themselves, only later */
	shrinker = shrinker_alloc(0, "net-tx-page-pool");
	if (shrinker) {
		shrinker->count_objects = page_pool_tx_count;
		shrinker->scan_objects = page_pool_tx_scan;
		shrinker_register(shrinker);
	}

	return 0;
}
subsys_initcall(page_pool_tx_init);
