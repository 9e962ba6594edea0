// SPDX-License-Identifier: GPL-2.0
/* pfrag_hds IFNAME on|off: tcp-data-split, for every size of packets.
 *
 * For netdevsim, which copies what it receives otherwise, so no fragment gets
 * to the other end. ethtool can do it from version 6.12 on.
 */
#include <linux/ethtool.h>
#include <stdio.h>
#include <string.h>
#include <ynl.h>

#include "ethtool-user.h"

int main(int argc, char **argv)
{
	unsigned int split = ETHTOOL_TCP_DATA_SPLIT_DISABLED;
	struct ethtool_rings_set_req *req;
	struct ynl_error yerr;
	struct ynl_sock *ys;
	int ret;

	if (argc != 3) {
		fprintf(stderr, "usage: %s IFNAME on|off\n", argv[0]);
		return 2;
	}
	if (!strcmp(argv[2], "on"))
		split = ETHTOOL_TCP_DATA_SPLIT_ENABLED;
	ys = ynl_sock_create(&ynl_ethtool_family, &yerr);
	if (!ys) {
		fprintf(stderr, "ethtool netlink family: %s\n", yerr.msg);
		return 1;
	}
	req = ethtool_rings_set_req_alloc();
	ethtool_rings_set_req_set_header_dev_name(req, argv[1]);
	ethtool_rings_set_req_set_tcp_data_split(req, split);
	ethtool_rings_set_req_set_hds_thresh(req, 0);
	ret = ethtool_rings_set(ys, req);
	if (ret)
		fprintf(stderr, "rings-set: %s\n", ys->err.msg);
	ethtool_rings_set_req_free(req);
	ynl_sock_destroy(ys);

	return ret ? 1 : 0;
}
