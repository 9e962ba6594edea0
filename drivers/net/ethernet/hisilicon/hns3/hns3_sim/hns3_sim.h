/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A software model of the hns3 NIC: provider for hnae3, hardware, checker.
 * See Documentation/networking/device_drivers/ethernet/hisilicon/hns3_sim.rst.
 */
#ifndef HNS3_SIM_H
#define HNS3_SIM_H

#include <linux/debugfs.h>
#include <linux/if_ether.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "hnae3.h"
#include "hns3_enet.h"

#define HNS3_SIM_MAX_PORTS	8
#define HNS3_SIM_MAX_QUEUES	8
#define HNS3_SIM_QUEUE_REGS	0x200	/* bytes of registers per queue */
#define HNS3_SIM_VECTOR_REGS	0x1000	/* per vector, the mask is at 0 */
#define HNS3_SIM_PUSH_MEM	128	/* pushed descriptors, mem doorbell */
#define HNS3_SIM_RX_BUF		2048
#define HNS3_SIM_NUM_DESC	1024
#define HNS3_SIM_RSS_TABLE	512
#define HNS3_SIM_RSS_KEY	40
#define HNS3_SIM_FRAMES		64	/* on the wire, one way */
#define HNS3_SIM_MAX_HEADER	256
#define HNS3_SIM_MAX_FRAME	(SZ_64K + HNS3_SIM_MAX_HEADER)
#define HNS3_SIM_MAX_FRM_SIZE	9728U	/* what the hardware puts on a wire */

/* What the checker counts. None of it happens when all is right. */
enum hns3_sim_fault {
	HNS3_SIM_READ_UNMAPPED,		/* no translation when it was read */
	HNS3_SIM_WRITE_UNMAPPED,
	HNS3_SIM_READ_DIR,		/* mapped, but not for reading */
	HNS3_SIM_WRITE_DIR,		/* mapped, but read-only */
	HNS3_SIM_PAGE_LEFT,		/* the page has left its pool */
	HNS3_SIM_DESC_TAKEN,		/* descriptor changed while in flight */
	HNS3_SIM_DESC_BAD,		/* makes no sense */
	HNS3_SIM_FAULTS
};

/* Faults that the hardware makes when told so. Written by debugfs. */
struct hns3_sim_inject {
	u32 drop;		/* every Nth frame, 0: none */
	u32 duplicate;
	u32 reorder;
	u32 delay_us;
	bool stall_tx;		/* fetch descriptors, but do not go on */
	bool hold;		/* keep what was fetched across a stop */
	bool write_tx;		/* try to write to what is transmitted */
};

struct hns3_sim_stats {
	u64 tx_packets, tx_bytes, tx_bds, tx_premapped_bds, tx_dropped;
	u64 rx_packets, rx_bytes, rx_csum_err;
	u64 doorbells, interrupts;
	u64 dropped, duplicated, reordered;
	u64 held, held_read;
};

/* A fetched descriptor of a transmit ring, and the page it pointed to then */
struct hns3_sim_bd {
	struct hns3_desc desc;
	struct page *page;
	struct page_pool *pool;		/* only compared */
};

struct hns3_sim_vector {
	int irq;
	bool used;
	bool event;			/* since it last fired */
	u32 regs[HNS3_SIM_VECTOR_REGS / sizeof(u32)];
};

/* One direction of a queue */
struct hns3_sim_ring {
	dma_addr_t base;
	u32 num;			/* descriptors */
	u32 head;			/* next to fetch (TX), to fill (RX) */
	u32 done;			/* TX: next to complete */
	struct hns3_sim_bd *bd;		/* TX: what was fetched */
	struct hns3_sim_vector *vector;
};

struct hns3_sim_queue {
	struct hnae3_queue hq;
	struct hns3_sim_ring tx, rx;
	bool kicked;
	u32 regs[HNS3_SIM_QUEUE_REGS / sizeof(u32)];
	u64 push[HNS3_SIM_PUSH_MEM / sizeof(u64)];
};

/* A packet on the wire, whole: segmentation is done where it arrives. */
struct hns3_sim_frame {
	struct list_head list;
	u64 due;			/* ns */
	u32 len;
	u32 mss;			/* 0: not to be segmented */
	u16 l2, l3, l4;			/* header lengths */
	u8 data[HNS3_SIM_MAX_FRAME];
};

struct hns3_sim_wire {
	struct list_head queue;		/* in the order of arrival */
	struct list_head free;
	struct hns3_sim_frame *frames;
	u64 seen;			/* frames so far, for every Nth */
};

/* What the tracker knows of a page of bus addresses */
struct hns3_sim_map {
	u32 readable, writable;		/* mappings of that kind */
	void *shadow;			/* what the device sees, non_coherent */
};

struct hns3_sim_port {
	struct pci_dev *pdev;
	u16 pci_vendor, pci_device;	/* its own */
	struct hns3_sim_link *link;
	struct hns3_sim_port *peer;
	struct hnae3_ae_dev *ae_dev;
	struct hnae3_client *client;	/* link->mutex and link->lock */
	struct iommu_domain *domain;	/* NULL: bus addresses are physical */
	struct hnae3_handle nic;
	struct hnae3_queue *tqp[HNS3_SIM_MAX_QUEUES];
	struct hns3_sim_vector vector[HNS3_SIM_MAX_QUEUES];
	struct irq_domain *irq_domain[HNS3_SIM_MAX_QUEUES];
	struct work_struct reset_work;
	bool resetting;			/* asked for, not done yet */
	unsigned long resets;
	u8 mac[ETH_ALEN];
	u32 rss_table[HNS3_SIM_RSS_TABLE];
	u8 rss_key[HNS3_SIM_RSS_KEY];

	/* The rest belongs to the hardware: link->lock. */
	bool running;
	bool gro, strip_vlan;
	u32 turn;			/* queue to poll first, modulo queues */
	struct hns3_sim_queue queue[HNS3_SIM_MAX_QUEUES];
	struct hns3_sim_wire wire;	/* towards this port */
	struct hns3_sim_bd held[64];
	u32 num_held;
	u8 segment[SZ_16K];		/* being made from a frame */

	struct hns3_sim_inject inject;
	struct hns3_sim_stats stats;
	u64 faults[HNS3_SIM_FAULTS];

	struct xarray maps;		/* hns3_sim_map, by page of addr */
};

/* Two ports, back to back, and the thread that is their hardware */
struct hns3_sim_link {
	spinlock_t lock;		/* the hardware of both ports */
	struct mutex mutex;		/* clients and carrier of both ports */
	struct task_struct *thread;
	struct hns3_sim_port *port[2];
};

extern struct hns3_sim_port *hns3_sim_port[HNS3_SIM_MAX_PORTS];
extern bool hns3_sim_non_coherent;
extern const char * const hns3_sim_fault_name[HNS3_SIM_FAULTS];

/* hns3_sim_dma.c: what the device reads and writes, and whether it may */
int hns3_sim_tracker_start(void);
void hns3_sim_tracker_stop(void);
void hns3_sim_maps_free(struct hns3_sim_port *port);
void *hns3_sim_desc(struct hns3_sim_port *port, struct hns3_sim_ring *ring,
		    u32 i);
void hns3_sim_identify(struct hns3_sim_port *port, struct hns3_sim_bd *bd);
bool hns3_sim_read_bd(struct hns3_sim_port *port, struct hns3_sim_bd *bd,
		      u32 queue, u32 i, void *to);
bool hns3_sim_write(struct hns3_sim_port *port, dma_addr_t addr,
		    const void *from, u32 len, u32 queue, u32 i);
void hns3_sim_fault(struct hns3_sim_port *port, enum hns3_sim_fault fault,
		    u32 queue, u32 i, dma_addr_t addr, u32 len);

/* hns3_sim_hw.c: rings and wire */
int hns3_sim_hw(void *link);
int hns3_sim_hw_start(struct hns3_sim_port *port);
void hns3_sim_hw_stop(struct hns3_sim_port *port);
void hns3_sim_read_held(struct hns3_sim_port *port);
int hns3_sim_wire_init(struct hns3_sim_wire *wire);
void hns3_sim_wire_flush(struct hns3_sim_wire *wire);

static inline u32 hns3_sim_reg(const u32 *regs, u32 reg)
{
	return READ_ONCE(regs[reg / sizeof(u32)]);
}

#endif
