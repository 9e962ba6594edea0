// SPDX-License-Identifier: GPL-2.0
/* KUnit tests for pfrag_pool, and for the tag of a TX page pool's pages */

#include <kunit/device.h>
#include <kunit/test.h>
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/kthread.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <linux/skbuff_ref.h>
#include <net/esp.h>
#include <net/page_pool/helpers.h>
#include <net/pfrag_pool.h>
#include <net/tcp.h>

#include "page_pool_priv.h"

#define TEST_ORDER	get_order(32768)
#define TEST_SIZE	((u32)(PAGE_SIZE << TEST_ORDER))

struct pfrag_test {
	struct completion ended;
	struct page_pool *pool;
	struct device *dev;
	struct device *other;
};

static struct pfrag_test *current_test;

static void pfrag_test_ended(void *pool)
{
	complete(&current_test->ended);
}

static bool pfrag_test_wait(struct pfrag_test *t)
{
	return wait_for_completion_timeout(&t->ended, 10 * HZ);
}

static bool pfrag_test_is(const struct pfrag *r, u32 offset, u32 size)
{
	return r->offset == offset && r->size == size;
}

static void pfrag_test_reserve(struct kunit *test, struct pfrag *r, u32 size)
{
	struct pfrag_test *t = test->priv;

	KUNIT_ASSERT_EQ(test, pfrag_pool_reserve(t->pool, r, size), 0);
	KUNIT_ASSERT_TRUE(test, netmem_is_tx_pp(r->netmem));
}

static void pfrag_test_put(struct pfrag *r)
{
	put_netmem(r->netmem);
}

/* As of a new frag, which goes if nothing is used */
static void pfrag_test_commit(struct pfrag *r, u32 used)
{
	skb_frag_t frag;

	skb_frag_fill_netmem_desc(&frag, r->netmem, r->offset, 0);
	pfrag_pool_commit(&frag, r->size, used);
	r->size = used;
	if (!used)
		pfrag_test_put(r);
}

/* Pool references to the page beside the context's own */
static long pfrag_test_users(struct kunit *test, netmem_ref netmem)
{
	struct pfrag_test *t = test->priv;
	struct page_pool_ctx *ctx = per_cpu_ptr(t->pool->ctx,
						raw_smp_processor_id());
	long refs = atomic_long_read(netmem_get_pp_ref_count_ref(netmem));

	if (ctx->frag_page == netmem_tx_pp_untag(netmem))
		refs -= PP_BIAS_MAX - ctx->frag_users;

	return refs;
}

static void pfrag_pool_contiguous(struct kunit *test)
{
	struct pfrag a, b, c;

	pfrag_test_reserve(test, &a, 100);
	pfrag_test_reserve(test, &b, 1);
	pfrag_test_reserve(test, &c, 1000);
	KUNIT_EXPECT_TRUE(test, pfrag_test_is(&a, 0, 100));
	KUNIT_EXPECT_TRUE(test, pfrag_test_is(&b, 100, 1));
	KUNIT_EXPECT_TRUE(test, pfrag_test_is(&c, 101, 1000));
	KUNIT_EXPECT_TRUE(test, a.netmem == b.netmem && b.netmem == c.netmem);
	KUNIT_EXPECT_EQ(test, pfrag_test_users(test, a.netmem), 3);
	pfrag_test_put(&a);
	pfrag_test_put(&b);
	pfrag_test_put(&c);
}

static void pfrag_pool_commit_part(struct kunit *test)
{
	struct pfrag a, b, c;

	/* what was not used is used next */
	pfrag_test_reserve(test, &a, 1000);
	pfrag_test_commit(&a, 10);
	KUNIT_EXPECT_TRUE(test, pfrag_test_is(&a, 0, 10));
	pfrag_test_reserve(test, &b, 1000);
	KUNIT_EXPECT_TRUE(test, pfrag_test_is(&b, 10, 1000));

	/* unless somebody has reserved behind it */
	pfrag_test_reserve(test, &c, 5);
	pfrag_test_commit(&b, 1);
	KUNIT_EXPECT_EQ(test, b.size, 1);
	pfrag_test_commit(&c, 5);
	KUNIT_EXPECT_TRUE(test, pfrag_test_is(&c, 1010, 5));
	KUNIT_EXPECT_EQ(test, pfrag_test_users(test, a.netmem), 3);

	/* nothing used: no reference left, the bytes are free */
	pfrag_test_commit(&c, 0);
	KUNIT_EXPECT_EQ(test, pfrag_test_users(test, a.netmem), 2);
	pfrag_test_reserve(test, &c, 7);
	KUNIT_EXPECT_TRUE(test, pfrag_test_is(&c, 1010, 7));

	pfrag_test_put(&a);
	pfrag_test_put(&b);
	pfrag_test_put(&c);
}

static void pfrag_pool_extends(struct kunit *test)
{
	struct pfrag a, other;
	skb_frag_t frag;

	pfrag_test_reserve(test, &a, 100);
	skb_frag_fill_netmem_desc(&frag, a.netmem, a.offset, a.size);

	KUNIT_ASSERT_EQ(test, pfrag_pool_extend(&frag, 50), 50);
	/* lives by the frag's reference */
	KUNIT_EXPECT_EQ(test, pfrag_test_users(test, a.netmem), 1);
	pfrag_pool_commit(&frag, 50, 50);
	skb_frag_size_add(&frag, 50);

	/* a copy that failed: the bytes go back, the reference stays */
	KUNIT_ASSERT_EQ(test, pfrag_pool_extend(&frag, 50), 50);
	pfrag_pool_commit(&frag, 50, 0);
	KUNIT_EXPECT_EQ(test, pfrag_test_users(test, a.netmem), 1);

	/* somebody else's bytes follow */
	pfrag_test_reserve(test, &other, 10);
	KUNIT_EXPECT_TRUE(test, pfrag_test_is(&other, 150, 10));
	KUNIT_EXPECT_EQ(test, pfrag_pool_extend(&frag, 50), 0);

	/* to the end of the page and no further */
	skb_frag_fill_netmem_desc(&frag, other.netmem, other.offset,
				  other.size);
	KUNIT_ASSERT_EQ(test, pfrag_pool_extend(&frag, 2 * TEST_SIZE),
			TEST_SIZE - 160);
	skb_frag_size_add(&frag, TEST_SIZE - 160);
	KUNIT_EXPECT_EQ(test, pfrag_pool_extend(&frag, 1), 0);

	pfrag_test_put(&a);
	pfrag_test_put(&other);
}

static void pfrag_pool_next_page(struct kunit *test)
{
	struct pfrag a, b, c;

	pfrag_test_reserve(test, &a, TEST_SIZE + 1);
	KUNIT_EXPECT_TRUE(test, pfrag_test_is(&a, 0, TEST_SIZE));
	pfrag_test_reserve(test, &b, TEST_SIZE - PFRAG_POOL_MIN_ROOM + 1);
	KUNIT_EXPECT_FALSE(test, a.netmem == b.netmem);
	KUNIT_EXPECT_EQ(test, b.offset, 0);
	/* too little room for a fragment */
	pfrag_test_reserve(test, &c, 1);
	KUNIT_EXPECT_FALSE(test, c.netmem == b.netmem);
	KUNIT_EXPECT_EQ(test, c.offset, 0);
	KUNIT_EXPECT_EQ(test, pfrag_test_users(test, a.netmem), 1);
	KUNIT_EXPECT_EQ(test, pfrag_test_users(test, b.netmem), 1);
	pfrag_test_put(&a);
	pfrag_test_put(&b);
	pfrag_test_put(&c);
}

/* A page that nobody uses any more starts over; not while there are plain
 * references to it, such as a pipe's.
 */
static void pfrag_pool_start_over(struct kunit *test)
{
	struct pfrag_test *t = test->priv;
	struct pfrag a, b;
	struct page *page;

	pfrag_test_reserve(test, &a, 100);
	pfrag_test_put(&a);
	pfrag_test_reserve(test, &b, 100);
	KUNIT_EXPECT_TRUE(test, a.netmem == b.netmem);
	KUNIT_EXPECT_TRUE(test, pfrag_test_is(&b, 0, 100));

	page = netmem_to_page(b.netmem);
	get_page(page);
	pfrag_test_put(&b);
	pfrag_test_reserve(test, &a, TEST_SIZE);
	KUNIT_EXPECT_TRUE(test, a.netmem == b.netmem);
	KUNIT_EXPECT_TRUE(test, pfrag_test_is(&a, 100, TEST_SIZE - 100));
	pfrag_test_put(&a);

	/* full, and still the pipe's: it leaves the pool */
	pfrag_test_reserve(test, &a, 100);
	KUNIT_EXPECT_FALSE(test, netmem_to_page(a.netmem) == page);
	KUNIT_EXPECT_FALSE(test, page_pool_page_is_pp(page));
	KUNIT_EXPECT_EQ(test, page_ref_count(page), 1);
	KUNIT_EXPECT_EQ(test, page_pool_inflight(t->pool, true), 1);
	put_page(page);
	pfrag_test_put(&a);
}

/* A commit after the pool's end finds neither page nor context in use */
static void pfrag_pool_commit_late(struct kunit *test)
{
	struct pfrag_test *t = test->priv;
	struct page_pool *pool = t->pool;
	struct pfrag a, b;
	skb_frag_t frag;

	pfrag_test_reserve(test, &a, 100);
	pfrag_test_reserve(test, &b, 100);
	skb_frag_fill_netmem_desc(&frag, a.netmem, a.offset, a.size);

	page_pool_destroy(pool);
	t->pool = NULL;
	KUNIT_EXPECT_EQ(test, pfrag_pool_reserve(pool, &a, 1), -ENOMEM);
	KUNIT_EXPECT_EQ(test, pfrag_pool_extend(&frag, 1), 0);
	pfrag_pool_commit(&frag, 100, 50);
	pfrag_test_commit(&b, 50);
	pfrag_test_commit(&b, 0);
	KUNIT_EXPECT_FALSE(test, completion_done(&t->ended));
	put_netmem(skb_frag_netmem(&frag));
	KUNIT_EXPECT_TRUE(test, pfrag_test_wait(t));
}

static void pfrag_pool_limit(struct kunit *test)
{
	struct pfrag_test *t = test->priv;
	struct pfrag r[16], one;
	int i;

	for (i = 0; i < ARRAY_SIZE(r); i++)
		pfrag_test_reserve(test, &r[i], TEST_SIZE);
	KUNIT_EXPECT_EQ(test, pfrag_pool_reserve(t->pool, &one, 1), -ENOBUFS);
	for (i = 0; i < ARRAY_SIZE(r); i++)
		pfrag_test_put(&r[i]);
}

/* The tag */

struct pfrag_stress {
	struct page_pool *pool;
	atomic_t ids;
	atomic_t extended;
	atomic_t overwritten;
};

static u8 *pfrag_stress_va(const skb_frag_t *frag)
{
	return (u8 *)page_address(skb_frag_page(frag)) + skb_frag_off(frag);
}

/* Frags of one writer: only his bytes are to be in them when they end */
static void pfrag_stress_end(struct pfrag_stress *s, skb_frag_t *frag, u8 id)
{
	if (!frag->netmem)
		return;
	if (memchr_inv(pfrag_stress_va(frag), id, skb_frag_size(frag)))
		atomic_inc(&s->overwritten);
	put_netmem(frag->netmem);
	frag->netmem = 0;
}

static int pfrag_stress_writer(void *arg)
{
	struct pfrag_stress *s = arg;
	u8 id = atomic_inc_return(&s->ids);
	skb_frag_t frags[24] = {}, *frag;
	u32 i = 0, j, size, used;
	struct pfrag range;

	while (!kthread_should_stop()) {
		frag = &frags[i++ % ARRAY_SIZE(frags)];
		pfrag_stress_end(s, frag, id);
		cond_resched();
		if (pfrag_pool_reserve(s->pool, &range, 1 + i % 61))
			continue;
		skb_frag_fill_netmem_desc(frag, range.netmem, range.offset,
					  range.size);
		memset(pfrag_stress_va(frag), id, range.size);

		for (j = 0; j < 16; j++) {
			size = pfrag_pool_extend(frag, 1 + (i + j) % 41);
			if (!size)
				break;
			atomic_inc(&s->extended);
			memset(pfrag_stress_va(frag) + skb_frag_size(frag), id,
			       size);
			used = j & 1 ? size : size / 2;
			pfrag_pool_commit(frag, size, used);
			skb_frag_size_add(frag, used);
		}
	}

	for (i = 0; i < ARRAY_SIZE(frags); i++)
		pfrag_stress_end(s, &frags[i], id);

	return 0;
}

static int pfrag_stress_drain(void *arg)
{
	struct pfrag_stress *s = arg;

	while (!kthread_should_stop()) {
		page_pool_ctx_shrink(s->pool, UINT_MAX);
		usleep_range(50, 200);
	}

	return 0;
}

/* Writers on one context and on several extend fragments without its lock,
 * while others reserve behind them and the page is taken away
 */
static void pfrag_pool_race(struct kunit *test)
{
	struct pfrag_test *t = test->priv;
	struct pfrag_stress s = { .pool = t->pool };
	struct task_struct *task[5];
	int i;

	for (i = 0; i < ARRAY_SIZE(task); i++)
		task[i] = kthread_run(i ? pfrag_stress_writer :
					  pfrag_stress_drain,
				      &s, "pfrag_pool_test/%d", i);
	msleep(1500);
	for (i = 0; i < ARRAY_SIZE(task); i++) {
		KUNIT_EXPECT_NOT_ERR_OR_NULL(test, task[i]);
		if (!IS_ERR(task[i]))
			kthread_stop(task[i]);
	}

	KUNIT_EXPECT_GT(test, atomic_read(&s.extended), 100);
	KUNIT_EXPECT_EQ_MSG(test, atomic_read(&s.overwritten), 0,
			    "bytes were handed out twice");
}

static struct sk_buff *pfrag_test_skb(struct kunit *test, u32 a_size,
				      u32 b_size)
{
	struct sk_buff *skb = alloc_skb(256, GFP_KERNEL);
	u32 size[] = { a_size, b_size };
	struct pfrag r, gap;
	int i;

	KUNIT_ASSERT_NOT_NULL(test, skb);
	skb_reserve(skb, 128);
	for (i = 0; i < ARRAY_SIZE(size); i++) {
		pfrag_test_reserve(test, &r, size[i]);
		memset(netmem_address(r.netmem) + r.offset, 'a' + i, size[i]);
		skb_fill_netmem_desc(skb, i, r.netmem, r.offset, size[i]);
		skb_len_add(skb, size[i]);
		/* not contiguous */
		pfrag_test_reserve(test, &gap, 1);
		pfrag_test_put(&gap);
	}

	return skb;
}

static netmem_ref pfrag_test_netmem(struct sk_buff *skb)
{
	return skb_frag_netmem(&skb_shinfo(skb)->frags[0]);
}

static void netmem_tag_helpers(struct kunit *test)
{
	struct pfrag r;
	struct page *page;
	skb_frag_t frag;

	pfrag_test_reserve(test, &r, 100);
	skb_frag_fill_netmem_desc(&frag, r.netmem, 10, 90);
	page = netmem_to_page(r.netmem);

	KUNIT_EXPECT_TRUE(test, netmem_is_tx_pp(r.netmem));
	KUNIT_EXPECT_FALSE(test, netmem_is_tx_pp(page_to_netmem(page)));
	KUNIT_EXPECT_FALSE(test, netmem_is_net_iov(r.netmem));
	KUNIT_EXPECT_EQ(test, (unsigned long)page & NETMEM_KIND_MASK, 0);
	KUNIT_EXPECT_TRUE(test, netmem_tx_pp_untag(r.netmem) ==
				page_to_netmem(page));
	KUNIT_EXPECT_PTR_EQ(test, skb_frag_page(&frag), page);
	KUNIT_EXPECT_PTR_EQ(test, skb_frag_address(&frag),
			    page_address(page) + 10);
	KUNIT_EXPECT_PTR_EQ(test, netmem_address(r.netmem), page_address(page));
	KUNIT_EXPECT_TRUE(test, netmem_compound_head(r.netmem) ==
				page_to_netmem(page));
	KUNIT_EXPECT_PTR_EQ(test, netmem_get_pp(r.netmem),
			    netmem_get_pp(page_to_netmem(page)));
	KUNIT_EXPECT_EQ(test, netmem_get_dma_addr(r.netmem),
			netmem_get_dma_addr(page_to_netmem(page)));
	KUNIT_EXPECT_EQ(test, netmem_ref_count(r.netmem), 1);
	KUNIT_EXPECT_FALSE(test, netmem_is_pfmemalloc(r.netmem));

	/* counts in the pool, whatever the skb says of recycling */
	__skb_frag_ref(&frag);
	__skb_frag_ref(&frag);
	KUNIT_EXPECT_EQ(test, pfrag_test_users(test, r.netmem), 3);
	__skb_frag_unref(&frag, true);
	__skb_frag_unref(&frag, false);
	KUNIT_EXPECT_EQ(test, pfrag_test_users(test, r.netmem), 1);
	KUNIT_EXPECT_EQ(test, page_ref_count(page), 1);
	put_netmem(r.netmem);
}

static void netmem_tag_copies(struct kunit *test)
{
	struct sk_buff *skb = pfrag_test_skb(test, 1000, 2000), *copy;
	netmem_ref netmem = pfrag_test_netmem(skb);

	KUNIT_EXPECT_EQ(test, pfrag_test_users(test, netmem), 2);

	copy = skb_clone(skb, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, copy);
	KUNIT_EXPECT_EQ(test, pfrag_test_users(test, netmem), 2);
	KUNIT_EXPECT_EQ(test, pskb_expand_head(copy, 0, 0, GFP_KERNEL), 0);
	KUNIT_EXPECT_TRUE(test, pfrag_test_netmem(copy) == netmem);
	KUNIT_EXPECT_EQ(test, pfrag_test_users(test, netmem), 4);
	kfree_skb(copy);
	KUNIT_EXPECT_EQ(test, pfrag_test_users(test, netmem), 2);

	copy = pskb_copy(skb, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, copy);
	KUNIT_EXPECT_TRUE(test, pfrag_test_netmem(copy) == netmem);
	KUNIT_EXPECT_EQ(test, pfrag_test_users(test, netmem), 4);
	KUNIT_EXPECT_EQ(test, pskb_trim(copy, 500), 0);
	KUNIT_EXPECT_EQ(test, pfrag_test_users(test, netmem), 3);
	kfree_skb(copy);

	/* a linear copy has none of it */
	copy = skb_copy(skb, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, copy);
	KUNIT_EXPECT_EQ(test, pfrag_test_users(test, netmem), 2);
	KUNIT_EXPECT_EQ(test, copy->data[999], 'a');
	KUNIT_EXPECT_EQ(test, copy->data[1000], 'b');
	kfree_skb(copy);

	KUNIT_EXPECT_TRUE(test, __pskb_pull_tail(skb, 1000));
	KUNIT_EXPECT_EQ(test, pfrag_test_users(test, netmem), 1);
	KUNIT_EXPECT_EQ(test, page_ref_count(netmem_to_page(netmem)), 1);
	get_netmem(netmem);
	kfree_skb(skb);
	KUNIT_EXPECT_EQ(test, pfrag_test_users(test, netmem), 1);
	put_netmem(netmem);
}

static void netmem_tag_split_shift(struct kunit *test)
{
	struct sk_buff *skb = pfrag_test_skb(test, 1000, 2000);
	struct sk_buff *tail = alloc_skb(256, GFP_KERNEL);
	netmem_ref netmem = pfrag_test_netmem(skb);

	KUNIT_ASSERT_NOT_NULL(test, tail);
	/* in the middle of a frag: both parts hold a reference */
	skb_split(skb, tail, 1500);
	KUNIT_EXPECT_EQ(test, skb->len, 1500);
	KUNIT_EXPECT_EQ(test, tail->len, 1500);
	KUNIT_EXPECT_TRUE(test, netmem_is_tx_pp(pfrag_test_netmem(tail)));
	KUNIT_EXPECT_EQ(test, pfrag_test_users(test, netmem), 3);

	/* contiguous: merges, one reference goes */
	KUNIT_EXPECT_EQ(test, skb_shift(skb, tail, 1500), 1500);
	KUNIT_EXPECT_EQ(test, skb_shinfo(skb)->nr_frags, 2);
	KUNIT_EXPECT_EQ(test, pfrag_test_users(test, netmem), 2);
	kfree_skb(tail);
	get_netmem(netmem);
	kfree_skb(skb);
	KUNIT_EXPECT_EQ(test, pfrag_test_users(test, netmem), 1);
	put_netmem(netmem);
}

/* One page, both kinds of reference, as after splice: each drops its own */
static void netmem_tag_mixed(struct kunit *test)
{
	struct sk_buff *skb = pfrag_test_skb(test, 1000, 1000);
	netmem_ref netmem = pfrag_test_netmem(skb);
	struct page *page = netmem_to_page(netmem);
	skb_frag_t *frag = &skb_shinfo(skb)->frags[0];
	int off = skb_frag_off(frag) + skb_frag_size(frag);

	get_page(page);
	skb_fill_page_desc(skb, 2, page, off, 1);
	skb_len_add(skb, 1);
	KUNIT_EXPECT_FALSE(test, skb_can_coalesce(skb, 1, page, off));
	KUNIT_EXPECT_TRUE(test, skb_can_coalesce_netmem(skb, 1, netmem, off));
	KUNIT_EXPECT_EQ(test, pfrag_test_users(test, netmem), 2);
	KUNIT_EXPECT_EQ(test, page_ref_count(page), 2);

	get_netmem(netmem);
	get_page(page);
	kfree_skb(skb);
	KUNIT_EXPECT_EQ(test, pfrag_test_users(test, netmem), 1);
	KUNIT_EXPECT_EQ(test, page_ref_count(page), 2);
	put_page(page);
	put_netmem(netmem);
}

/* What ESP drops by way of a scatterlist, which has no room for the tag */
static void netmem_tag_esp(struct kunit *test)
{
	struct sk_buff *skb;
	netmem_ref netmem;
	struct page *page;
	int recycle;

	for (recycle = 0; recycle < 2; recycle++) {
		skb = pfrag_test_skb(test, 100, 10);
		skb->pp_recycle = recycle;
		netmem = pfrag_test_netmem(skb);
		page = skb_frag_page(&skb_shinfo(skb)->frags[0]);
		KUNIT_ASSERT_TRUE(test, netmem_is_tx_pp(netmem));
		KUNIT_ASSERT_EQ(test, pfrag_test_users(test, netmem), 2);

		esp_frags_untag(skb);
		KUNIT_EXPECT_FALSE(test,
				   netmem_is_tx_pp(pfrag_test_netmem(skb)));
		KUNIT_EXPECT_EQ(test, pfrag_test_users(test, netmem),
				recycle ? 2 : 0);
		KUNIT_EXPECT_EQ(test, page_ref_count(page), recycle ? 1 : 3);

		/* as esp_ssg_unref() does */
		skb_page_unref(page_to_netmem(page), recycle);
		skb_page_unref(page_to_netmem(page), recycle);
		skb_shinfo(skb)->nr_frags = 0;
		KUNIT_EXPECT_EQ(test, pfrag_test_users(test, netmem), 0);
		KUNIT_EXPECT_EQ(test, page_ref_count(page), 1);
		skb->data_len = 0;
		skb->len = 0;
		kfree_skb(skb);
	}
}

static void netmem_tag_irq_freeable(struct kunit *test)
{
	struct sk_buff *skb = pfrag_test_skb(test, 10, 10);

	KUNIT_EXPECT_FALSE(test, skb_irq_freeable(skb));
	KUNIT_EXPECT_EQ(test, __skb_linearize(skb), 0);
	KUNIT_EXPECT_TRUE(test, skb_irq_freeable(skb));
	kfree_skb(skb);
}

struct pfrag_test_buf {
	DEFINE_DMA_UNMAP_ADDR(dma);
};

/* Mapped once, and for one device only, while the pool lives */
static void netmem_tag_premapped(struct kunit *test)
{
	struct pfrag_test *t = test->priv;
	struct pfrag_test_buf buf;
	netmem_ref netmem;
	dma_addr_t dma;
	skb_frag_t frag;
	struct pfrag r;

	pfrag_test_reserve(test, &r, 1000);
	pfrag_test_put(&r);
	pfrag_test_reserve(test, &r, 10);
	netmem = r.netmem;
	pfrag_test_reserve(test, &r, 1000);
	skb_frag_fill_netmem_desc(&frag, r.netmem, r.offset, r.size);
	KUNIT_ASSERT_EQ(test, r.offset, 10);

	KUNIT_EXPECT_TRUE(test, netmem_premapped(netmem, t->dev));
	KUNIT_EXPECT_FALSE(test, netmem_premapped(netmem, t->other));
	KUNIT_EXPECT_FALSE(test, netmem_premapped(netmem, NULL));
	KUNIT_EXPECT_FALSE(test, netmem_premapped(netmem_tx_pp_untag(netmem),
						  t->dev));

	dma = skb_frag_dma_map(t->dev, &frag, 100);
	KUNIT_EXPECT_EQ(test, dma, page_pool_get_dma_addr_netmem(netmem) + 110);
	netmem_dma_unmap_addr_set(skb_frag_netmem(&frag), t->dev, &buf, dma,
				  dma);
	KUNIT_EXPECT_EQ(test, (dma_addr_t)dma_unmap_addr(&buf, dma), 0);

	dma = skb_frag_dma_map(t->other, &frag);
	KUNIT_ASSERT_FALSE(test, dma_mapping_error(t->other, dma));
	netmem_dma_unmap_addr_set(skb_frag_netmem(&frag), t->other, &buf, dma,
				  dma);
	if (IS_ENABLED(CONFIG_NEED_DMA_MAP_STATE))
		KUNIT_EXPECT_EQ(test, (dma_addr_t)dma_unmap_addr(&buf, dma),
				dma);
	netmem_dma_unmap_page_attrs(t->other, dma_unmap_addr(&buf, dma), 1000,
				    DMA_TO_DEVICE, 0);

	page_pool_destroy(t->pool);
	KUNIT_EXPECT_FALSE(test, netmem_premapped(netmem, t->dev));
	t->pool = NULL;
	KUNIT_EXPECT_FALSE(test, netmem_premapped(netmem, t->dev));
	KUNIT_EXPECT_FALSE(test, netmem_premapped(netmem, NULL));
	put_netmem(netmem);
	put_netmem(skb_frag_netmem(&frag));
	KUNIT_EXPECT_TRUE(test, pfrag_test_wait(t));
}

/* The registry: a NAPI's pool, for who sends by the NAPI's netdev, until it
 * goes
 */

static int pfrag_test_poll(struct napi_struct *napi, int budget)
{
	napi_complete_done(napi, 0);
	return 0;
}

static struct page_pool *pfrag_test_lookup(unsigned int id,
					   const struct net_device *dev)
{
	struct page_pool *pool;

	rcu_read_lock();
	pool = page_pool_get_by_napi_id(id, dev);
	rcu_read_unlock();

	return pool;
}

static void pfrag_pool_registry(struct kunit *test)
{
	struct pfrag_test *t = test->priv;
	struct net_device *dev, *other;
	struct napi_struct *napi;
	unsigned int id;

	napi = kunit_kzalloc(test, sizeof(*napi), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, napi);
	dev = alloc_netdev_dummy(0);
	KUNIT_ASSERT_NOT_NULL(test, dev);
	other = alloc_netdev_dummy(0);
	if (!other) {
		free_netdev(dev);
		KUNIT_FAIL(test, "no memory");
		return;
	}

	/* what an earlier use of the structure left behind */
	rcu_assign_pointer(napi->tx_pp, t->pool);
	netif_napi_add(dev, napi, pfrag_test_poll);
	napi_enable(napi);
	id = napi->napi_id;
	KUNIT_EXPECT_PTR_EQ(test, pfrag_test_lookup(id, dev), NULL);

	page_pool_register_napi(t->pool, napi);
	KUNIT_EXPECT_PTR_EQ(test, pfrag_test_lookup(id, dev), t->pool);
	KUNIT_EXPECT_PTR_EQ(test, pfrag_test_lookup(id, other), NULL);
	KUNIT_EXPECT_PTR_EQ(test, pfrag_test_lookup(0, dev), NULL);

	page_pool_unregister_napi(napi);
	KUNIT_EXPECT_PTR_EQ(test, pfrag_test_lookup(id, dev), NULL);

	page_pool_register_napi(t->pool, napi);
	napi_disable(napi);
	netif_napi_del(napi);
	KUNIT_EXPECT_PTR_EQ(test, pfrag_test_lookup(id, dev), NULL);
	KUNIT_EXPECT_FALSE(test, static_key_enabled(&page_pool_napi_key));

	free_netdev(other);
	free_netdev(dev);
}

static int pfrag_test_init(struct kunit *test)
{
	struct page_pool_params params = {
		.order		= TEST_ORDER,
		.nid		= NUMA_NO_NODE,
		.flags		= PP_FLAG_ALLOC_CTX | PP_FLAG_DMA_MAP |
				  PP_FLAG_DMA_SYNC_DEV,
		.dma_dir	= DMA_TO_DEVICE,
		.max_len	= TEST_SIZE,
		.ctx_max_bytes	= 16 * TEST_SIZE,
	};
	struct pfrag_test *t = kunit_kzalloc(test, sizeof(*t), GFP_KERNEL);
	int err;

	if (!t)
		return -ENOMEM;
	init_completion(&t->ended);
	t->dev = kunit_device_register(test, "pfrag_pool_test");
	if (IS_ERR(t->dev))
		return PTR_ERR(t->dev);
	t->other = kunit_device_register(test, "pfrag_pool_test_other");
	if (IS_ERR(t->other))
		return PTR_ERR(t->other);
	err = dma_coerce_mask_and_coherent(t->dev, DMA_BIT_MASK(64)) ?:
	      dma_coerce_mask_and_coherent(t->other, DMA_BIT_MASK(64));
	if (err)
		return err;

	params.dev = t->dev;
	t->pool = page_pool_create(&params);
	if (IS_ERR(t->pool))
		return PTR_ERR(t->pool);
	t->pool->premap_dev = t->dev;
	t->pool->disconnect = pfrag_test_ended;

	test->priv = t;
	current_test = t;
	/* The thread of this test: contexts are per CPU, count those of one */
	return set_cpus_allowed_ptr(current,
				    cpumask_of(raw_smp_processor_id()));
}

static void pfrag_test_exit(struct kunit *test)
{
	struct pfrag_test *t = test->priv;

	if (!t || !t->pool)
		return;

	page_pool_destroy(t->pool);
	/* not a page may have been lost */
	KUNIT_EXPECT_TRUE_MSG(test, pfrag_test_wait(t),
			      "the pool did not end: a reference leaked");
}

static struct kunit_case pfrag_test_cases[] = {
	KUNIT_CASE(pfrag_pool_contiguous),
	KUNIT_CASE(pfrag_pool_commit_part),
	KUNIT_CASE(pfrag_pool_extends),
	KUNIT_CASE(pfrag_pool_next_page),
	KUNIT_CASE(pfrag_pool_start_over),
	KUNIT_CASE(pfrag_pool_commit_late),
	KUNIT_CASE(pfrag_pool_limit),
	KUNIT_CASE(pfrag_pool_race),
	KUNIT_CASE(pfrag_pool_registry),
	KUNIT_CASE(netmem_tag_helpers),
	KUNIT_CASE(netmem_tag_copies),
	KUNIT_CASE(netmem_tag_split_shift),
	KUNIT_CASE(netmem_tag_mixed),
	KUNIT_CASE(netmem_tag_esp),
	KUNIT_CASE(netmem_tag_irq_freeable),
	KUNIT_CASE(netmem_tag_premapped),
	{}
};

static struct kunit_suite pfrag_test_suite = {
	.name = "pfrag-pool",
	.init = pfrag_test_init,
	.exit = pfrag_test_exit,
	.test_cases = pfrag_test_cases,
};

kunit_test_suite(pfrag_test_suite);

MODULE_IMPORT_NS("EXPORTED_FOR_KUNIT_TESTING");
MODULE_DESCRIPTION("KUnit tests for pfrag_pool");
MODULE_LICENSE("GPL");
