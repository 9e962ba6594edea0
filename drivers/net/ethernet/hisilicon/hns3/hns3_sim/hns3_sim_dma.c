// SPDX-License-Identifier: GPL-2.0
/*
 * What the modelled hardware reads and writes, and whether it may.
 *
 * Each access is looked up in the page table of the device's IOMMU domain at
 * the very moment, so an address that has been unmapped is a fault here, where
 * real hardware may still get by with what its IOTLB remembers.
 *
 * A page table does not tell all: not that a page is mapped for the other
 * direction only, nor what a device sees whose reads do not snoop the caches.
 * The tracker knows, which follows the DMA API's tracepoints. As each mapping
 * pays for that, it runs only when asked for.
 */
#include <linux/dma-mapping.h>
#include <linux/iommu.h>
#include <linux/tracepoint.h>
#include <net/page_pool/helpers.h>

#include "hns3_sim.h"

const char * const hns3_sim_fault_name[HNS3_SIM_FAULTS] = {
	[HNS3_SIM_READ_UNMAPPED]	= "read_unmapped",
	[HNS3_SIM_WRITE_UNMAPPED]	= "write_unmapped",
	[HNS3_SIM_READ_DIR]		= "read_direction",
	[HNS3_SIM_WRITE_DIR]		= "write_read_only",
	[HNS3_SIM_PAGE_LEFT]		= "page_left_pool",
	[HNS3_SIM_DESC_TAKEN]		= "desc_taken_back",
	[HNS3_SIM_DESC_BAD]		= "desc_bad",
};

static bool hns3_sim_tracking;

/**
 * hns3_sim_fault() - count a fault, and say where
 * @port:	port whose hardware found it
 * @fault:	which
 * @queue:	queue
 * @i:		index of the descriptor
 * @addr:	bus address of the access
 * @len:	its length in bytes
 *
 * Context: link->lock.
 */
void hns3_sim_fault(struct hns3_sim_port *port, enum hns3_sim_fault fault,
		    u32 queue, u32 i, dma_addr_t addr, u32 len)
{
	port->faults[fault]++;
	dev_err_ratelimited(&port->pdev->dev,
			    "hns3_sim fault: %s, queue %u descriptor %u: %u bytes at %pad\n",
			    hns3_sim_fault_name[fault], queue, i, len, &addr);
}

/* Where a bus address leads to now, NULL if nowhere */
static void *hns3_sim_translate(struct hns3_sim_port *port, dma_addr_t addr)
{
	phys_addr_t phys = addr;

	if (port->domain)
		phys = iommu_iova_to_phys(port->domain, addr);
	if (!phys || !pfn_valid(PHYS_PFN(phys)))
		return NULL;

	return phys_to_virt(phys);
}

/**
 * hns3_sim_desc() - a descriptor, as the hardware finds it now
 * @port:	port
 * @ring:	ring of it
 * @i:		index
 *
 * Context: link->lock.
 * Return: the descriptor, NULL if the ring is not mapped.
 */
void *hns3_sim_desc(struct hns3_sim_port *port, struct hns3_sim_ring *ring,
		    u32 i)
{
	/* A descriptor's size divides the page's. */
	return hns3_sim_translate(port, ring->base +
				  i * sizeof(struct hns3_desc));
}

static bool hns3_sim_page_in_pool(struct page *page, struct page_pool **pool)
{
	if (!page_pool_page_is_pp(page))
		return false;

	*pool = pp_page_to_nmdesc(page)->pp;
	return true;
}

/**
 * hns3_sim_identify() - remember which page a fetched descriptor points to
 * @port:	port
 * @bd:		its desc is set
 *
 * Only pages that their pool has mapped count. Others may change their owner
 * as they like, since each transmission maps them anew.
 *
 * Context: link->lock.
 */
void hns3_sim_identify(struct hns3_sim_port *port, struct hns3_sim_bd *bd)
{
	dma_addr_t addr = le64_to_cpu(bd->desc.addr);
	void *va = hns3_sim_translate(port, addr);
	struct page_pool *pool;
	struct page *page;
	dma_addr_t start;

	bd->page = NULL;
	if (!va)
		return;

	page = compound_head(virt_to_page(va));
	if (!hns3_sim_page_in_pool(page, &pool))
		return;

	start = page_pool_get_dma_addr(page);
	if (!start || addr < start || addr >= start + page_size(page))
		return;

	bd->page = page;
	bd->pool = pool;
	port->stats.tx_premapped_bds++;
}

static struct hns3_sim_map *hns3_sim_lookup(struct hns3_sim_port *port,
					    dma_addr_t addr)
{
	return hns3_sim_tracking ? xa_load(&port->maps, addr >> PAGE_SHIFT) :
				   NULL;
}

/**
 * hns3_sim_read_bd() - read what a transmit descriptor points to
 * @port:	port
 * @bd:		what was fetched, and identified
 * @queue:	its queue
 * @i:		its index
 * @to:		where the bytes go
 *
 * Context: link->lock.
 * Return: false if not all of it could be read.
 */
bool hns3_sim_read_bd(struct hns3_sim_port *port, struct hns3_sim_bd *bd,
		      u32 queue, u32 i, void *to)
{
	dma_addr_t addr = le64_to_cpu(bd->desc.addr);
	u32 len = le16_to_cpu(bd->desc.tx.send_size);
	unsigned long flags;
	struct page_pool *pool;

	if (bd->page && (!hns3_sim_page_in_pool(bd->page, &pool) ||
			 pool != bd->pool)) {
		hns3_sim_fault(port, HNS3_SIM_PAGE_LEFT, queue, i, addr, len);
		return false;
	}

	while (len) {
		u32 n = min_t(u32, len, PAGE_SIZE - offset_in_page(addr));
		void *va = hns3_sim_translate(port, addr);
		struct hns3_sim_map *map;
		bool refused;

		if (!va) {
			hns3_sim_fault(port, HNS3_SIM_READ_UNMAPPED, queue, i,
				       addr, n);
			return false;
		}

		xa_lock_irqsave(&port->maps, flags);
		map = hns3_sim_lookup(port, addr);
		refused = map && !map->readable;
		if (map && map->shadow)
			va = map->shadow + offset_in_page(addr);
		if (!refused)
			memcpy(to, va, n);
		xa_unlock_irqrestore(&port->maps, flags);

		if (refused) {
			hns3_sim_fault(port, HNS3_SIM_READ_DIR, queue, i, addr,
				       n);
			return false;
		}

		addr += n;
		to += n;
		len -= n;
	}

	return true;
}

/**
 * hns3_sim_write() - write received bytes
 * @port:	port
 * @addr:	bus address
 * @from:	the bytes
 * @len:	how many
 * @queue:	queue, for the report
 * @i:		index of the descriptor, for the report
 *
 * Context: link->lock.
 * Return: false if not all of it could be written.
 */
bool hns3_sim_write(struct hns3_sim_port *port, dma_addr_t addr,
		    const void *from, u32 len, u32 queue, u32 i)
{
	while (len) {
		u32 n = min_t(u32, len, PAGE_SIZE - offset_in_page(addr));
		void *va = hns3_sim_translate(port, addr);
		struct hns3_sim_map *map;
		unsigned long flags;
		bool refused;

		if (!va) {
			hns3_sim_fault(port, HNS3_SIM_WRITE_UNMAPPED, queue, i,
				       addr, n);
			return false;
		}

		xa_lock_irqsave(&port->maps, flags);
		map = hns3_sim_lookup(port, addr);
		refused = map && !map->writable;
		xa_unlock_irqrestore(&port->maps, flags);

		if (refused) {
			hns3_sim_fault(port, HNS3_SIM_WRITE_DIR, queue, i,
				       addr, n);
			return false;
		}
		memcpy(va, from, n);

		addr += n;
		from += n;
		len -= n;
	}

	return true;
}

/* The tracker. Its probes run in the context of whoever maps. */

static struct hns3_sim_port *hns3_sim_port_of(struct device *dev)
{
	int i;

	for (i = 0; i < HNS3_SIM_MAX_PORTS && hns3_sim_port[i]; i++) {
		if (&hns3_sim_port[i]->pdev->dev == dev)
			return hns3_sim_port[i];
	}

	return NULL;
}

static void hns3_sim_map_put(struct hns3_sim_port *port, unsigned long index,
			     struct hns3_sim_map *map)
{
	if (map->readable || map->writable)
		return;

	__xa_erase(&port->maps, index);
	if (map->shadow)
		free_page((unsigned long)map->shadow);
	kfree(map);
}

/* Bring @addr to @addr + @size up to date in what the device sees. */
static void hns3_sim_sync(struct hns3_sim_port *port, dma_addr_t addr,
			  size_t size)
{
	while (size) {
		void *va = hns3_sim_translate(port, addr);
		struct hns3_sim_map *map;
		size_t n;

		n = min_t(size_t, size, PAGE_SIZE - offset_in_page(addr));
		map = xa_load(&port->maps, addr >> PAGE_SHIFT);
		if (map && map->shadow && va)
			memcpy(map->shadow + offset_in_page(addr), va, n);
		addr += n;
		size -= n;
	}
}

static void hns3_sim_track_map(struct device *dev, dma_addr_t addr, size_t size,
			       enum dma_data_direction dir, unsigned long attrs,
			       bool coherent)
{
	struct hns3_sim_port *port = hns3_sim_port_of(dev);
	unsigned long index, last, flags;

	if (!port || !size || addr == DMA_MAPPING_ERROR)
		return;

	last = (addr + size - 1) >> PAGE_SHIFT;
	xa_lock_irqsave(&port->maps, flags);
	for (index = addr >> PAGE_SHIFT; index <= last; index++) {
		struct hns3_sim_map *map = xa_load(&port->maps, index);

		if (!map) {
			map = kzalloc_obj(*map, GFP_ATOMIC);
			if (!map)
				continue;
			if (xa_is_err(__xa_store(&port->maps, index, map,
						 GFP_ATOMIC))) {
				kfree(map);
				continue;
			}
		}
		map->readable += dir != DMA_FROM_DEVICE;
		map->writable += dir != DMA_TO_DEVICE;
		/* Whatever is written after this, the device sees only what
		 * is synced. It sees rings and receive buffers themselves.
		 */
		if (hns3_sim_non_coherent && !coherent && !map->writable &&
		    !map->shadow)
			map->shadow = (void *)get_zeroed_page(GFP_ATOMIC);
	}
	if (hns3_sim_non_coherent && !(attrs & DMA_ATTR_SKIP_CPU_SYNC))
		hns3_sim_sync(port, addr, size);
	xa_unlock_irqrestore(&port->maps, flags);
}

static void hns3_sim_track_unmap(struct device *dev, dma_addr_t addr,
				 size_t size, enum dma_data_direction dir)
{
	struct hns3_sim_port *port = hns3_sim_port_of(dev);
	unsigned long index, last, flags;

	if (!port || !size)
		return;

	last = (addr + size - 1) >> PAGE_SHIFT;
	xa_lock_irqsave(&port->maps, flags);
	for (index = addr >> PAGE_SHIFT; index <= last; index++) {
		struct hns3_sim_map *map = xa_load(&port->maps, index);

		if (!map)	/* mapped before the tracker came */
			continue;
		if (dir != DMA_FROM_DEVICE && map->readable)
			map->readable--;
		if (dir != DMA_TO_DEVICE && map->writable)
			map->writable--;
		hns3_sim_map_put(port, index, map);
	}
	xa_unlock_irqrestore(&port->maps, flags);
}

static void hns3_sim_probe_map(void *data, struct device *dev, phys_addr_t phys,
			       dma_addr_t addr, size_t size,
			       enum dma_data_direction dir, unsigned long attrs)
{
	hns3_sim_track_map(dev, addr, size, dir, attrs, false);
}

static void hns3_sim_probe_unmap(void *data, struct device *dev,
				 dma_addr_t addr, size_t size,
				 enum dma_data_direction dir,
				 unsigned long attrs)
{
	hns3_sim_track_unmap(dev, addr, size, dir);
}

static void hns3_sim_probe_map_sg(void *data, struct device *dev,
				  struct scatterlist *sgl, int nents, int ents,
				  enum dma_data_direction dir,
				  unsigned long attrs)
{
	struct scatterlist *sg;
	int i;

	for_each_sg(sgl, sg, ents, i)
		hns3_sim_track_map(dev, sg_dma_address(sg), sg_dma_len(sg), dir,
				   attrs, false);
}

static void hns3_sim_probe_unmap_sg(void *data, struct device *dev,
				    struct scatterlist *sgl, int nents,
				    enum dma_data_direction dir,
				    unsigned long attrs)
{
	struct scatterlist *sg;
	int i;

	/* Merged entries come first, the rest has no length. */
	for_each_sg(sgl, sg, nents, i) {
		if (!sg_dma_len(sg))
			break;
		hns3_sim_track_unmap(dev, sg_dma_address(sg), sg_dma_len(sg),
				     dir);
	}
}

static void hns3_sim_probe_alloc(void *data, struct device *dev, void *va,
				 dma_addr_t addr, size_t size,
				 enum dma_data_direction dir, gfp_t gfp,
				 unsigned long attrs)
{
	if (va)
		hns3_sim_track_map(dev, addr, size, DMA_BIDIRECTIONAL, attrs,
				   true);
}

static void hns3_sim_probe_free(void *data, struct device *dev, void *va,
				dma_addr_t addr, size_t size,
				enum dma_data_direction dir,
				unsigned long attrs)
{
	hns3_sim_track_unmap(dev, addr, size, DMA_BIDIRECTIONAL);
}

static void hns3_sim_probe_sync(void *data, struct device *dev, dma_addr_t addr,
				size_t size, enum dma_data_direction dir)
{
	struct hns3_sim_port *port = hns3_sim_port_of(dev);
	unsigned long flags;

	if (!port || !hns3_sim_non_coherent)
		return;

	xa_lock_irqsave(&port->maps, flags);
	hns3_sim_sync(port, addr, size);
	xa_unlock_irqrestore(&port->maps, flags);
}

static struct {
	const char *name;
	void *probe;
	struct tracepoint *tp;
	bool registered;
} hns3_sim_probes[] = {
	{ "dma_map_phys", hns3_sim_probe_map },
	{ "dma_unmap_phys", hns3_sim_probe_unmap },
	{ "dma_map_sg", hns3_sim_probe_map_sg },
	{ "dma_unmap_sg", hns3_sim_probe_unmap_sg },
	{ "dma_alloc", hns3_sim_probe_alloc },
	{ "dma_free", hns3_sim_probe_free },
	{ "dma_sync_single_for_device", hns3_sim_probe_sync },
};

static void hns3_sim_find_tracepoint(struct tracepoint *tp, void *unused)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(hns3_sim_probes); i++) {
		if (!strcmp(tp->name, hns3_sim_probes[i].name))
			hns3_sim_probes[i].tp = tp;
	}
}

/**
 * hns3_sim_tracker_start() - follow what is mapped from now on
 *
 * Context: Process context, before any port has a driver.
 * Return: 0, or an error; then nothing is followed.
 */
int hns3_sim_tracker_start(void)
{
	int i, err;

	for_each_kernel_tracepoint(hns3_sim_find_tracepoint, NULL);
	for (i = 0; i < ARRAY_SIZE(hns3_sim_probes); i++) {
		if (!hns3_sim_probes[i].tp) {
			pr_err("hns3_sim: this kernel has no tracepoint %s: no tracking without CONFIG_TRACEPOINTS\n",
			       hns3_sim_probes[i].name);
			err = -ENOENT;
			goto err_stop;
		}
		err = tracepoint_probe_register(hns3_sim_probes[i].tp,
						hns3_sim_probes[i].probe, NULL);
		if (err)
			goto err_stop;
		hns3_sim_probes[i].registered = true;
	}
	hns3_sim_tracking = true;

	return 0;

err_stop:
	hns3_sim_tracker_stop();
	return err;
}

/**
 * hns3_sim_tracker_stop() - end it
 *
 * Context: Process context, when the hardware does not run any more.
 */
void hns3_sim_tracker_stop(void)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(hns3_sim_probes); i++) {
		if (hns3_sim_probes[i].registered)
			tracepoint_probe_unregister(hns3_sim_probes[i].tp,
						    hns3_sim_probes[i].probe,
						    NULL);
		hns3_sim_probes[i].registered = false;
	}
	tracepoint_synchronize_unregister();
	hns3_sim_tracking = false;
}

/**
 * hns3_sim_maps_free() - forget all mappings of a port
 * @port:	port
 *
 * Context: Process context, after hns3_sim_tracker_stop().
 */
void hns3_sim_maps_free(struct hns3_sim_port *port)
{
	struct hns3_sim_map *map;
	unsigned long index;

	xa_for_each(&port->maps, index, map) {
		if (map->shadow)
			free_page((unsigned long)map->shadow);
		kfree(map);
	}
	xa_destroy(&port->maps);
}
