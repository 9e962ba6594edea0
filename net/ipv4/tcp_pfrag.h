/* SPDX-License-Identifier: GPL-2.0 */

#ifndef _TCP_PFRAG_H
#define _TCP_PFRAG_H

struct iov_iter;
struct sk_buff;
struct sock;

#ifdef CONFIG_PFRAG_POOL
int tcp_sendmsg_pfrag(struct sock *sk, struct sk_buff *skb,
		      struct iov_iter *from, int copy);
#else
static inline int tcp_sendmsg_pfrag(struct sock *sk, struct sk_buff *skb,
				    struct iov_iter *from, int copy)
{
	return 0;
}
#endif

#endif /* _TCP_PFRAG_H */
