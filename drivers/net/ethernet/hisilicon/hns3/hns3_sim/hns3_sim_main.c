// SPDX-License-Identifier: GPL-2.0
/*
 * A software model of the hns3 NIC. It is a provider for hnae3, like hclge, so
 * that the unmodified hns3 driver runs where there is no such hardware. This
 * part is what hclge would be: it finds the devices, and answers the client.
 *
 * Two PCI functions that nobody uses, such as QEMU's pci-testdev, become two
 * ports that are wired back to back. They stand behind the machine's IOMMU, and
 * what matters here is what the driver maps for them.
 */
#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/iommu.h>
#include <linux/irq.h>
#include <linux/irq_sim.h>
#include <linux/irqdomain.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/rtnetlink.h>
#include <linux/vmalloc.h>

#include "hns3_sim.h"

#define HNS3_SIM_PCI_VENDOR	PCI_VENDOR_ID_REDHAT
#define HNS3_SIM_PCI_DEVICE	0x0005		/* QEMU's pci-testdev */

static unsigned int hw_version = 2;
module_param(hw_version, uint, 0444);
MODULE_PARM_DESC(hw_version, "Capabilities to show: 2 as of Kunpeng 920, 3 as of its successor (default 2)");

static unsigned int queues = 4;
module_param(queues, uint, 0444);
MODULE_PARM_DESC(queues, "Queue pairs per port, 1 to 8 (default 4)");

static bool track;
module_param(track, bool, 0444);
MODULE_PARM_DESC(track, "Follow all mappings, to see accesses in the wrong direction (default off: it costs the mapping paths)");

bool hns3_sim_non_coherent;
module_param_named(non_coherent, hns3_sim_non_coherent, bool, 0444);
MODULE_PARM_DESC(non_coherent, "Read what was last synced for the device, not what memory holds; implies track (default off)");

struct hns3_sim_port *hns3_sim_port[HNS3_SIM_MAX_PORTS];
static struct hns3_sim_link *hns3_sim_link[HNS3_SIM_MAX_PORTS / 2];
static struct dentry *hns3_sim_dir;

static struct hns3_sim_port *hns3_sim_of(struct hnae3_handle *handle)
{
	return container_of(handle, struct hns3_sim_port, nic);
}

/* Statistics, by ethtool and debugfs */

#define HNS3_SIM_STAT(name) \
	{ #name, offsetof(struct hns3_sim_port, stats.name) }

static const struct {
	const char *name;
	size_t offset;
} hns3_sim_stats[] = {
	HNS3_SIM_STAT(tx_packets),
	HNS3_SIM_STAT(tx_bytes),
	HNS3_SIM_STAT(tx_bds),
	HNS3_SIM_STAT(tx_premapped_bds),
	HNS3_SIM_STAT(tx_dropped),
	HNS3_SIM_STAT(rx_packets),
	HNS3_SIM_STAT(rx_bytes),
	HNS3_SIM_STAT(rx_csum_err),
	HNS3_SIM_STAT(doorbells),
	HNS3_SIM_STAT(interrupts),
	HNS3_SIM_STAT(dropped),
	HNS3_SIM_STAT(duplicated),
	HNS3_SIM_STAT(reordered),
	HNS3_SIM_STAT(held),
	HNS3_SIM_STAT(held_read),
};

#define HNS3_SIM_NUM_STATS	ARRAY_SIZE(hns3_sim_stats)

static u64 hns3_sim_stat(struct hns3_sim_port *port, int i)
{
	return *(u64 *)((void *)port + hns3_sim_stats[i].offset);
}

static int hns3_sim_get_sset_count(struct hnae3_handle *handle, int set)
{
	return set == ETH_SS_STATS ? HNS3_SIM_NUM_STATS + HNS3_SIM_FAULTS : 0;
}

static void hns3_sim_get_strings(struct hnae3_handle *handle, u32 set,
				 u8 **data)
{
	int i;

	if (set != ETH_SS_STATS)
		return;

	for (i = 0; i < HNS3_SIM_NUM_STATS; i++)
		ethtool_sprintf(data, "hw_%s", hns3_sim_stats[i].name);
	for (i = 0; i < HNS3_SIM_FAULTS; i++)
		ethtool_sprintf(data, "fault_%s", hns3_sim_fault_name[i]);
}

static void hns3_sim_get_stats(struct hnae3_handle *handle, u64 *data)
{
	struct hns3_sim_port *port = hns3_sim_of(handle);
	int i;

	spin_lock_irq(&port->link->lock);
	for (i = 0; i < HNS3_SIM_NUM_STATS; i++)
		*data++ = hns3_sim_stat(port, i);
	for (i = 0; i < HNS3_SIM_FAULTS; i++)
		*data++ = port->faults[i];
	spin_unlock_irq(&port->link->lock);
}

static void hns3_sim_update_stats(struct hnae3_handle *handle)
{
}

static int stats_show(struct seq_file *s, void *unused)
{
	struct hns3_sim_port *port = s->private;
	int i;

	spin_lock_irq(&port->link->lock);
	for (i = 0; i < HNS3_SIM_NUM_STATS; i++)
		seq_printf(s, "%s %llu\n", hns3_sim_stats[i].name,
			   hns3_sim_stat(port, i));
	for (i = 0; i < HNS3_SIM_FAULTS; i++)
		seq_printf(s, "fault_%s %llu\n", hns3_sim_fault_name[i],
			   port->faults[i]);
	spin_unlock_irq(&port->link->lock);

	return 0;
}
DEFINE_SHOW_ATTRIBUTE(stats);

static int hold_get(void *data, u64 *val)
{
	struct hns3_sim_port *port = data;

	*val = port->inject.hold;
	return 0;
}

static int hold_set(void *data, u64 val)
{
	struct hns3_sim_port *port = data;

	if (val > 1)
		return -EINVAL;

	port->inject.hold = val;
	if (!val)
		hns3_sim_read_held(port);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(hold_fops, hold_get, hold_set, "%llu\n");

static void hns3_sim_debugfs(struct hns3_sim_port *port)
{
	struct hns3_sim_inject *inject = &port->inject;
	struct dentry *dir;

	dir = debugfs_create_dir(pci_name(port->pdev), hns3_sim_dir);
	debugfs_create_file("stats", 0444, dir, port, &stats_fops);
	debugfs_create_u32("drop", 0644, dir, &inject->drop);
	debugfs_create_u32("duplicate", 0644, dir, &inject->duplicate);
	debugfs_create_u32("reorder", 0644, dir, &inject->reorder);
	debugfs_create_u32("delay_us", 0644, dir, &inject->delay_us);
	debugfs_create_bool("stall_tx", 0644, dir, &inject->stall_tx);
	debugfs_create_bool("write_tx", 0644, dir, &inject->write_tx);
	debugfs_create_file_unsafe("hold", 0644, dir, port, &hold_fops);
}

/* Start and stop. There is carrier while both ports run. */

static bool hns3_sim_up(struct hns3_sim_port *port)
{
	return port->running && port->peer && port->peer->running;
}

static void hns3_sim_carrier(struct hns3_sim_port *port)
{
	if (port && port->client)
		port->client->ops->link_status_change(&port->nic,
						      hns3_sim_up(port));
}

static int hns3_sim_start(struct hnae3_handle *handle)
{
	struct hns3_sim_port *port = hns3_sim_of(handle);
	int err;

	err = hns3_sim_hw_start(port);
	if (err)
		return err;

	mutex_lock(&port->link->mutex);
	hns3_sim_carrier(port);
	hns3_sim_carrier(port->peer);
	mutex_unlock(&port->link->mutex);

	return 0;
}

static void hns3_sim_stop(struct hnae3_handle *handle)
{
	struct hns3_sim_port *port = hns3_sim_of(handle);

	hns3_sim_hw_stop(port);

	mutex_lock(&port->link->mutex);
	hns3_sim_carrier(port->peer);
	mutex_unlock(&port->link->mutex);
}

static int hns3_sim_get_status(struct hnae3_handle *handle)
{
	return hns3_sim_up(hns3_sim_of(handle));
}

/* Reset: what hclge makes the client do */

static void hns3_sim_notify(struct hns3_sim_port *port,
			    enum hnae3_reset_notify_type type)
{
	int err;

	ASSERT_RTNL();
	if (!port->client)
		return;

	err = port->client->ops->reset_notify(&port->nic, type);
	if (err)
		dev_err(&port->pdev->dev,
			"hns3_sim: the client failed in step %d of a reset: %d\n",
			type, err);
}

static void hns3_sim_reset_work(struct work_struct *work)
{
	struct hns3_sim_port *port = container_of(work, struct hns3_sim_port,
						  reset_work);

	rtnl_lock();
	hns3_sim_notify(port, HNAE3_DOWN_CLIENT);
	hns3_sim_notify(port, HNAE3_UNINIT_CLIENT);
	hns3_sim_notify(port, HNAE3_INIT_CLIENT);
	hns3_sim_notify(port, HNAE3_UP_CLIENT);
	rtnl_unlock();
	port->resets++;
	WRITE_ONCE(port->resetting, false);
}

/* By the client: ethtool --reset, or in a timer a queue that timed out */
static void hns3_sim_reset_event(struct pci_dev *pdev,
				 struct hnae3_handle *handle)
{
	struct hnae3_ae_dev *ae_dev = pci_get_drvdata(pdev);
	struct hns3_sim_port *port = ae_dev->priv;
	unsigned long flags;

	spin_lock_irqsave(&port->link->lock, flags);
	if (port->client) {
		WRITE_ONCE(port->resetting, true);
		schedule_work(&port->reset_work);
	}
	spin_unlock_irqrestore(&port->link->lock, flags);
}

static void hns3_sim_set_reset_request(struct hnae3_ae_dev *ae_dev,
				       enum hnae3_reset_type type)
{
	/* There is only one kind. */
}

static bool hns3_sim_resetting(struct hnae3_handle *handle)
{
	return READ_ONCE(hns3_sim_of(handle)->resetting);
}

static unsigned long hns3_sim_reset_cnt(struct hnae3_handle *handle)
{
	return hns3_sim_of(handle)->resets;
}

static void hns3_sim_reset_prepare(struct hnae3_ae_dev *ae_dev,
				   enum hnae3_reset_type type)
{
	rtnl_lock();
	hns3_sim_notify(ae_dev->priv, HNAE3_DOWN_CLIENT);
	hns3_sim_notify(ae_dev->priv, HNAE3_UNINIT_CLIENT);
	rtnl_unlock();
}

static void hns3_sim_reset_done(struct hnae3_ae_dev *ae_dev)
{
	rtnl_lock();
	hns3_sim_notify(ae_dev->priv, HNAE3_INIT_CLIENT);
	hns3_sim_notify(ae_dev->priv, HNAE3_UP_CLIENT);
	rtnl_unlock();
}

/* Vectors: an interrupt simulator each */

static int hns3_sim_get_vector(struct hnae3_handle *handle, u16 num,
			       struct hnae3_vector_info *info)
{
	struct hns3_sim_port *port = hns3_sim_of(handle);
	int i, got = 0;

	for (i = 0; i < queues && got < num; i++) {
		if (port->vector[i].used)
			continue;
		port->vector[i].used = true;
		info[got].io_addr = (__force u8 __iomem *)port->vector[i].regs;
		info[got++].vector = port->vector[i].irq;
	}

	return got;
}

static struct hns3_sim_vector *hns3_sim_find_vector(struct hns3_sim_port *port,
						    int irq)
{
	int i;

	for (i = 0; i < queues; i++) {
		if (port->vector[i].irq == irq)
			return &port->vector[i];
	}

	return NULL;
}

static int hns3_sim_put_vector(struct hnae3_handle *handle, int irq)
{
	struct hns3_sim_vector *vector;

	vector = hns3_sim_find_vector(hns3_sim_of(handle), irq);
	if (!vector)
		return -EINVAL;
	vector->used = false;

	return 0;
}

static void hns3_sim_set_vector(struct hns3_sim_port *port,
				struct hnae3_ring_chain_node *node,
				struct hns3_sim_vector *vector)
{
	spin_lock_irq(&port->link->lock);
	for (; node; node = node->next) {
		struct hns3_sim_queue *q = &port->queue[node->tqp_index];

		if (HNAE3_IS_TX_RING(node))
			q->tx.vector = vector;
		else
			q->rx.vector = vector;
	}
	spin_unlock_irq(&port->link->lock);
}

static int hns3_sim_map_ring(struct hnae3_handle *handle, int irq,
			     struct hnae3_ring_chain_node *chain)
{
	struct hns3_sim_port *port = hns3_sim_of(handle);
	struct hns3_sim_vector *vector = hns3_sim_find_vector(port, irq);

	if (!vector)
		return -EINVAL;
	hns3_sim_set_vector(port, chain, vector);

	return 0;
}

static int hns3_sim_unmap_ring(struct hnae3_handle *handle, int irq,
			       struct hnae3_ring_chain_node *chain)
{
	hns3_sim_set_vector(hns3_sim_of(handle), chain, NULL);

	return 0;
}

static int hns3_sim_reset_queue(struct hnae3_handle *handle)
{
	/* Rings are read from the registers when they are started. */
	return 0;
}

/* Queues and receive side scaling */

static void hns3_sim_default_rss(struct hns3_sim_port *port)
{
	int i;

	for (i = 0; i < HNS3_SIM_RSS_TABLE; i++)
		WRITE_ONCE(port->rss_table[i], i % port->nic.kinfo.rss_size);
}

static void hns3_sim_set_queues(struct hns3_sim_port *port, u16 num)
{
	struct hnae3_knic_private_info *kinfo = &port->nic.kinfo;

	kinfo->num_tqps = num;
	kinfo->rss_size = num;
	kinfo->req_rss_size = num;
	kinfo->tc_info.tqp_count[0] = num;
}

static void hns3_sim_get_tqps(struct hnae3_handle *handle, u16 *alloc,
			      u16 *max_rss_size)
{
	*alloc = queues;
	*max_rss_size = queues;
}

static void hns3_sim_get_channels(struct hnae3_handle *handle,
				  struct ethtool_channels *ch)
{
	ch->max_combined = queues;
	ch->combined_count = handle->kinfo.rss_size;
}

static int hns3_sim_set_channels(struct hnae3_handle *handle, u32 num,
				 bool rxfh_configured)
{
	struct hns3_sim_port *port = hns3_sim_of(handle);

	hns3_sim_set_queues(port, num);
	if (!rxfh_configured)
		hns3_sim_default_rss(port);

	return 0;
}

static u32 hns3_sim_rss_key_size(struct hnae3_handle *handle)
{
	return HNS3_SIM_RSS_KEY;
}

static int hns3_sim_get_rss(struct hnae3_handle *handle, u32 *indir, u8 *key,
			    u8 *hfunc)
{
	struct hns3_sim_port *port = hns3_sim_of(handle);

	if (indir)
		memcpy(indir, port->rss_table, sizeof(port->rss_table));
	if (key)
		memcpy(key, port->rss_key, sizeof(port->rss_key));
	if (hfunc)
		*hfunc = ETH_RSS_HASH_TOP;

	return 0;
}

static int hns3_sim_set_rss(struct hnae3_handle *handle, const u32 *indir,
			    const u8 *key, const u8 hfunc)
{
	struct hns3_sim_port *port = hns3_sim_of(handle);
	int i;

	if (key)
		memcpy(port->rss_key, key, sizeof(port->rss_key));
	for (i = 0; indir && i < HNS3_SIM_RSS_TABLE; i++)
		WRITE_ONCE(port->rss_table[i], indir[i]);

	return 0;
}

/* Small things */

static void hns3_sim_get_mac(struct hnae3_handle *handle, u8 *mac)
{
	ether_addr_copy(mac, hns3_sim_of(handle)->mac);
}

static int hns3_sim_set_mac(struct hnae3_handle *handle, const void *mac,
			    bool is_first)
{
	ether_addr_copy(hns3_sim_of(handle)->mac, mac);

	return 0;
}

static int hns3_sim_set_mtu(struct hnae3_handle *handle, int mtu)
{
	return 0;
}

/* Every frame is received, whatever its address and tag. */
static int hns3_sim_vlan_filter(struct hnae3_handle *handle, __be16 proto,
				u16 vlan_id, bool is_kill)
{
	return 0;
}

static int hns3_sim_set_gro(struct hnae3_handle *handle, bool enable)
{
	WRITE_ONCE(hns3_sim_of(handle)->gro, enable);

	return 0;
}

static int hns3_sim_strip_vlan_tags(struct hnae3_handle *handle, bool enable)
{
	WRITE_ONCE(hns3_sim_of(handle)->strip_vlan, enable);

	return 0;
}

static void hns3_sim_get_ksettings(struct hnae3_handle *handle, u8 *autoneg,
				   u32 *speed, u8 *duplex, u32 *lanes)
{
	*autoneg = AUTONEG_DISABLE;
	*speed = SPEED_100000;
	*duplex = DUPLEX_FULL;
	*lanes = 1;
}

static void hns3_sim_get_media(struct hnae3_handle *handle, u8 *media,
			       u8 *module)
{
	*media = HNAE3_MEDIA_TYPE_BACKPLANE;
	*module = HNAE3_MODULE_TYPE_UNKNOWN;
}

/* Devices and clients */

static void hns3_sim_init_handle(struct hns3_sim_port *port,
				 struct hnae3_ae_algo *algo)
{
	struct hnae3_handle *nic = &port->nic;
	struct hnae3_knic_private_info *kinfo = &nic->kinfo;
	int i;

	memset(nic, 0, sizeof(*nic));
	nic->pdev = port->pdev;
	nic->ae_algo = algo;
	nic->port_base_vlan_state = HNAE3_PORT_BASE_VLAN_DISABLE;
	nodes_setall(nic->numa_node_mask);
	kinfo->num_tx_desc = HNS3_SIM_NUM_DESC;
	kinfo->num_rx_desc = HNS3_SIM_NUM_DESC;
	kinfo->rx_buf_len = HNS3_SIM_RX_BUF;
	kinfo->tc_info.num_tc = 1;
	kinfo->tc_info.max_tc = 1;
	kinfo->tqp = port->tqp;

	for (i = 0; i < queues; i++) {
		struct hns3_sim_queue *q = &port->queue[i];

		q->hq.io_base = (__force u8 __iomem *)q->regs;
		if (hw_version == 3)
			q->hq.mem_base = (__force u8 __iomem *)q->push;
		q->hq.ae_algo = algo;
		q->hq.handle = nic;
		q->hq.tqp_index = i;
		q->hq.buf_size = HNS3_SIM_RX_BUF;
		q->hq.tx_desc_num = HNS3_SIM_NUM_DESC;
		q->hq.rx_desc_num = HNS3_SIM_NUM_DESC;
		port->tqp[i] = &q->hq;
	}
	hns3_sim_set_queues(port, queues);
	hns3_sim_default_rss(port);
}

static struct hnae3_ae_algo hns3_sim_algo;

static int hns3_sim_init_ae_dev(struct hnae3_ae_dev *ae_dev)
{
	struct pci_dev *pdev = ae_dev->pdev;
	struct hns3_sim_port *port = NULL;
	int i, err;

	for (i = 0; i < HNS3_SIM_MAX_PORTS; i++) {
		if (hns3_sim_port[i] && hns3_sim_port[i]->pdev == pdev)
			port = hns3_sim_port[i];
	}
	if (!port)
		return -ENODEV;

	err = pci_enable_device(pdev);
	if (err)
		return err;

	err = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (err) {
		pci_disable_device(pdev);
		return err;
	}
	if (hns3_sim_non_coherent)
		dev_clear_dma_skip_sync(&pdev->dev);
	pci_set_master(pdev);

	port->domain = iommu_get_domain_for_dev(&pdev->dev);
	port->ae_dev = ae_dev;
	ae_dev->priv = port;

	ae_dev->dev_version = hw_version == 3 ? HNAE3_DEVICE_VERSION_V3 :
						HNAE3_DEVICE_VERSION_V2;
	set_bit(HNAE3_DEV_SUPPORT_GRO_B, ae_dev->caps);
	if (hw_version == 3) {
		set_bit(HNAE3_DEV_SUPPORT_HW_TX_CSUM_B, ae_dev->caps);
		set_bit(HNAE3_DEV_SUPPORT_TX_PUSH_B, ae_dev->caps);
	}
	ae_dev->dev_specs.rss_ind_tbl_size = HNS3_SIM_RSS_TABLE;
	ae_dev->dev_specs.rss_key_size = HNS3_SIM_RSS_KEY;
	ae_dev->dev_specs.max_int_gl = 0x1fe0;
	ae_dev->dev_specs.max_non_tso_bd_num = hw_version == 3 ? 18 : 8;
	ae_dev->dev_specs.max_frm_size = HNS3_SIM_MAX_FRM_SIZE;

	port->gro = true;
	port->strip_vlan = true;
	hns3_sim_init_handle(port, &hns3_sim_algo);

	return 0;
}

static void hns3_sim_uninit_ae_dev(struct hnae3_ae_dev *ae_dev)
{
	struct hns3_sim_port *port = ae_dev->priv;

	port->ae_dev = NULL;
	port->domain = NULL;
	pci_clear_master(ae_dev->pdev);
	pci_disable_device(ae_dev->pdev);
}

/* Who looks at the client holds one of the locks, or RTNL. */
static void hns3_sim_set_client(struct hns3_sim_port *port,
				struct hnae3_client *client)
{
	spin_lock_irq(&port->link->lock);
	port->client = client;
	spin_unlock_irq(&port->link->lock);
}

static int hns3_sim_init_client(struct hnae3_client *client,
				struct hnae3_ae_dev *ae_dev)
{
	struct hns3_sim_port *port = ae_dev->priv;
	int err;

	if (client->type != HNAE3_CLIENT_KNIC)
		return 0;

	port->nic.client = client;
	err = client->ops->init_instance(&port->nic);
	if (err) {
		port->nic.client = NULL;
		return err;
	}
	hnae3_set_client_init_flag(client, ae_dev, 1);

	/* It may have been started already, before anyone could be told. */
	mutex_lock(&port->link->mutex);
	hns3_sim_set_client(port, client);
	if (port->running)
		hns3_sim_carrier(port);
	mutex_unlock(&port->link->mutex);

	return 0;
}

static void hns3_sim_uninit_client(struct hnae3_client *client,
				   struct hnae3_ae_dev *ae_dev)
{
	struct hns3_sim_port *port = ae_dev->priv;

	if (client->type != HNAE3_CLIENT_KNIC)
		return;

	/* No reset from now on; one that has begun needs the client. */
	cancel_work_sync(&port->reset_work);
	rtnl_lock();
	mutex_lock(&port->link->mutex);
	hns3_sim_set_client(port, NULL);
	mutex_unlock(&port->link->mutex);
	rtnl_unlock();
	cancel_work_sync(&port->reset_work);
	WRITE_ONCE(port->resetting, false);

	client->ops->uninit_instance(&port->nic, false);
	port->nic.client = NULL;
}

static const struct hnae3_ae_ops hns3_sim_ops = {
	.init_ae_dev		= hns3_sim_init_ae_dev,
	.uninit_ae_dev		= hns3_sim_uninit_ae_dev,
	.init_client_instance	= hns3_sim_init_client,
	.uninit_client_instance	= hns3_sim_uninit_client,
	.start			= hns3_sim_start,
	.stop			= hns3_sim_stop,
	.get_status		= hns3_sim_get_status,
	.reset_event		= hns3_sim_reset_event,
	.set_default_reset_request = hns3_sim_set_reset_request,
	.ae_dev_resetting	= hns3_sim_resetting,
	.ae_dev_reset_cnt	= hns3_sim_reset_cnt,
	.reset_prepare		= hns3_sim_reset_prepare,
	.reset_done		= hns3_sim_reset_done,
	.get_vector		= hns3_sim_get_vector,
	.put_vector		= hns3_sim_put_vector,
	.map_ring_to_vector	= hns3_sim_map_ring,
	.unmap_ring_from_vector	= hns3_sim_unmap_ring,
	.reset_queue		= hns3_sim_reset_queue,
	.get_tqps_and_rss_info	= hns3_sim_get_tqps,
	.get_channels		= hns3_sim_get_channels,
	.set_channels		= hns3_sim_set_channels,
	.get_rss_key_size	= hns3_sim_rss_key_size,
	.get_rss		= hns3_sim_get_rss,
	.set_rss		= hns3_sim_set_rss,
	.get_mac_addr		= hns3_sim_get_mac,
	.set_mac_addr		= hns3_sim_set_mac,
	.set_mtu		= hns3_sim_set_mtu,
	.set_vlan_filter	= hns3_sim_vlan_filter,
	.set_gro_en		= hns3_sim_set_gro,
	.enable_hw_strip_rxvtag	= hns3_sim_strip_vlan_tags,
	.get_ksettings_an_result = hns3_sim_get_ksettings,
	.get_media_type		= hns3_sim_get_media,
	.get_sset_count		= hns3_sim_get_sset_count,
	.get_strings		= hns3_sim_get_strings,
	.get_stats		= hns3_sim_get_stats,
	.update_stats		= hns3_sim_update_stats,
};

/* What a port shows while it is one. The driver treats it as a physical
 * function.
 */
static const struct pci_device_id hns3_sim_pci_ids[] = {
	{ PCI_VDEVICE(HUAWEI, HNAE3_DEV_ID_25GE) },
	{}
};

static struct hnae3_ae_algo hns3_sim_algo = {
	.ops		= &hns3_sim_ops,
	.pdev_id_table	= hns3_sim_pci_ids,
};

/* Finding the devices, and letting go of them */

static void hns3_sim_free_port(struct hns3_sim_port *port)
{
	int i;

	for (i = 0; i < queues; i++) {
		if (!port->irq_domain[i])
			continue;
		if (port->vector[i].irq)
			irq_dispose_mapping(port->vector[i].irq);
		irq_domain_remove_sim(port->irq_domain[i]);
	}
	vfree(port->wire.frames);
	hns3_sim_maps_free(port);
	pci_dev_put(port->pdev);
	vfree(port);
}

static struct hns3_sim_port *hns3_sim_new_port(struct pci_dev *pdev, int n)
{
	struct hns3_sim_port *port = vzalloc(sizeof(*port));
	int i;

	if (!port)
		return NULL;

	port->pdev = pci_dev_get(pdev);
	xa_init_flags(&port->maps, XA_FLAGS_LOCK_IRQ);
	INIT_WORK(&port->reset_work, hns3_sim_reset_work);
	port->mac[0] = 0x02;
	port->mac[1] = 'h';
	port->mac[2] = 'n';
	port->mac[3] = 's';
	port->mac[4] = '3';
	port->mac[5] = n;

	if (hns3_sim_wire_init(&port->wire))
		goto err_free;
	for (i = 0; i < queues; i++) {
		port->irq_domain[i] = irq_domain_create_sim(NULL, 1);
		if (IS_ERR(port->irq_domain[i])) {
			port->irq_domain[i] = NULL;
			goto err_free;
		}
		port->vector[i].irq = irq_create_mapping(port->irq_domain[i],
							 0);
		if (!port->vector[i].irq)
			goto err_free;
	}

	return port;

err_free:
	hns3_sim_free_port(port);
	return NULL;
}

static int hns3_sim_new_ports(void)
{
	struct hns3_sim_link *link = NULL;
	struct pci_dev *pdev = NULL;
	int n = 0;

	while (n < HNS3_SIM_MAX_PORTS &&
	       (pdev = pci_get_device(HNS3_SIM_PCI_VENDOR, HNS3_SIM_PCI_DEVICE,
				      pdev))) {
		if (pdev->dev.driver)
			continue;
		hns3_sim_port[n] = hns3_sim_new_port(pdev, n);
		if (!hns3_sim_port[n])
			goto err_put;
		if (n % 2 == 0) {
			link = kzalloc_obj(*link);
			if (!link)
				goto err_put;
			spin_lock_init(&link->lock);
			mutex_init(&link->mutex);
			hns3_sim_link[n / 2] = link;
		}
		link->port[n % 2] = hns3_sim_port[n];
		hns3_sim_port[n]->link = link;
		if (n % 2) {
			hns3_sim_port[n]->peer = hns3_sim_port[n - 1];
			hns3_sim_port[n - 1]->peer = hns3_sim_port[n];
		}
		n++;
	}
	pci_dev_put(pdev);

	if (n < 2) {
		pr_err("hns3_sim: it takes two PCI devices %04x:%04x without a driver to make a link, and there are %d: run QEMU with -device pci-testdev twice\n",
		       HNS3_SIM_PCI_VENDOR, HNS3_SIM_PCI_DEVICE, n);
		return -ENODEV;
	}

	return 0;

err_put:
	pci_dev_put(pdev);
	return -ENOMEM;
}

static int hns3_sim_start_links(void)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(hns3_sim_link) && hns3_sim_link[i]; i++) {
		struct task_struct *thread;

		/* Half a link has nothing to do, and nobody to do it with. */
		if (!hns3_sim_link[i]->port[1])
			continue;
		thread = kthread_run(hns3_sim_hw, hns3_sim_link[i],
				     "hns3_sim/%d", i);
		if (IS_ERR(thread))
			return PTR_ERR(thread);
		hns3_sim_link[i]->thread = thread;
	}

	return 0;
}

static void hns3_sim_free_all(void)
{
	int i;

	debugfs_remove_recursive(hns3_sim_dir);
	for (i = 0; i < ARRAY_SIZE(hns3_sim_link); i++) {
		if (hns3_sim_link[i] && hns3_sim_link[i]->thread)
			kthread_stop(hns3_sim_link[i]->thread);
	}
	hns3_sim_tracker_stop();
	for (i = 0; i < HNS3_SIM_MAX_PORTS; i++) {
		if (hns3_sim_port[i])
			hns3_sim_free_port(hns3_sim_port[i]);
	}
	for (i = 0; i < ARRAY_SIZE(hns3_sim_link); i++)
		kfree(hns3_sim_link[i]);
}

static int __init hns3_sim_init(void)
{
	int i, err;

	if (hw_version != 2 && hw_version != 3) {
		pr_err("hns3_sim: hw_version=%u: it can be 2 or 3\n",
		       hw_version);
		return -EINVAL;
	}
	if (!queues || queues > HNS3_SIM_MAX_QUEUES) {
		pr_err("hns3_sim: queues=%u: it can be 1 to %d\n", queues,
		       HNS3_SIM_MAX_QUEUES);
		return -EINVAL;
	}

	hns3_sim_dir = debugfs_create_dir("hns3_sim", NULL);
	err = hns3_sim_new_ports();
	if (!err && (track || hns3_sim_non_coherent))
		err = hns3_sim_tracker_start();
	if (!err)
		err = hns3_sim_start_links();
	if (err) {
		hns3_sim_free_all();
		return err;
	}

	hnae3_register_ae_algo(&hns3_sim_algo);

	/* Now they are what the driver looks for. */
	for (i = 0; i < HNS3_SIM_MAX_PORTS && hns3_sim_port[i]; i++) {
		struct hns3_sim_port *port = hns3_sim_port[i];

		hns3_sim_debugfs(port);
		port->pci_vendor = port->pdev->vendor;
		port->pci_device = port->pdev->device;
		port->pdev->vendor = PCI_VENDOR_ID_HUAWEI;
		port->pdev->device = HNAE3_DEV_ID_25GE;
		if (device_attach(&port->pdev->dev) < 0)
			dev_warn(&port->pdev->dev,
				 "hns3_sim: the hns3 driver did not take this device\n");
	}

	return 0;
}
module_init(hns3_sim_init);

static void __exit hns3_sim_exit(void)
{
	int i;

	/* Netdevs go with their provider, the driver from devices that are no
	 * NICs any more.
	 */
	hnae3_unregister_ae_algo(&hns3_sim_algo);
	for (i = 0; i < HNS3_SIM_MAX_PORTS && hns3_sim_port[i]; i++) {
		struct hns3_sim_port *port = hns3_sim_port[i];

		device_release_driver(&port->pdev->dev);
		port->pdev->vendor = port->pci_vendor;
		port->pdev->device = port->pci_device;
	}
	hns3_sim_free_all();
}
module_exit(hns3_sim_exit);

MODULE_SOFTDEP("pre: hns3");
MODULE_DESCRIPTION("Software model of the hns3 NIC");
MODULE_LICENSE("GPL");
