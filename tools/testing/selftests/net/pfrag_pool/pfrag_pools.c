// SPDX-License-Identifier: GPL-2.0
/* List the page pools of this network namespace, one a line:
 *   id ifindex napi-id inflight inflight-mem attached|detached
 * with 0 for an attribute that a pool does not have.
 */
#include <stdio.h>
#include <string.h>
#include <ynl.h>

#include "netdev-user.h"

int main(void)
{
	struct netdev_page_pool_get_req_dump all = {};
	struct netdev_page_pool_get_list *pools;
	struct ynl_error yerr;
	struct ynl_sock *ys;

	ys = ynl_sock_create(&ynl_netdev_family, &yerr);
	if (!ys) {
		fprintf(stderr, "netdev netlink family: %s\n", yerr.msg);
		return 1;
	}
	pools = netdev_page_pool_get_dump(ys, &all);
	if (!pools) {
		fprintf(stderr, "page-pool-get: %s\n", ys->err.msg);
		ynl_sock_destroy(ys);
		return 1;
	}
	ynl_dump_foreach(pools, pp)
		printf("%llu %u %llu %llu %llu %s\n",
		       (unsigned long long)pp->id,
		       pp->_present.ifindex ? pp->ifindex : 0,
		       pp->_present.napi_id ?
		       (unsigned long long)pp->napi_id : 0,
		       pp->_present.inflight ?
		       (unsigned long long)pp->inflight : 0,
		       pp->_present.inflight_mem ?
		       (unsigned long long)pp->inflight_mem : 0,
		       pp->_present.detach_time ? "detached" : "attached");
	netdev_page_pool_get_list_free(pools);
	ynl_sock_destroy(ys);
	return 0;
}
