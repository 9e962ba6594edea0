// SPDX-License-Identifier: GPL-2.0
/* KUnit tests for the allocation contexts of page pools */

#include <kunit/device.h>
#include <kunit/test.h>
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/kthread.h>
#include <net/netdev_rx_queue.h>
#include <net/page_pool/helpers.h>

#include "netmem_priv.h"
#include "page_pool_priv.h"

/* Zeroed: page_pool_ctx_shared() keeps a mark in each page */
#define TEST_GFP	((GFP_KERNEL & ~__GFP_DIRECT_RECLAIM) | __GFP_ZERO)
#define TEST_PAGES	64

struct pool_test {
	struct completion ended;
	struct page_pool *pool;
	struct device *dev;
};

static struct pool_test *current_test;

/* The pool's very end, also when it comes from a work item */
static void pool_test_ended(void *pool)
{
	complete(&current_test->ended);
}

static bool pool_test_wait(struct pool_test *t)
{
	return wait_for_completion_timeout(&t->ended, 10 * HZ);
}

static struct page_pool *
pool_test_create(struct kunit *test, unsigned int order, struct device *dev)
{
	struct page_pool_params params = {
		.order		= order,
		.pool_size	= TEST_PAGES,
		.nid		= NUMA_NO_NODE,
		.flags		= PP_FLAG_ALLOC_CTX,
		.ctx_max_bytes	= TEST_PAGES * (PAGE_SIZE << order),
	};
	struct pool_test *t = test->priv;

	if (dev) {
		params.flags |= PP_FLAG_DMA_MAP | PP_FLAG_DMA_SYNC_DEV;
		params.dev = dev;
		params.dma_dir = DMA_TO_DEVICE;
		params.max_len = PAGE_SIZE << order;
	}

	t->pool = page_pool_create(&params);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, t->pool);
	t->pool->disconnect = pool_test_ended;

	return t->pool;
}

static void pool_test_destroy(struct kunit *test)
{
	struct pool_test *t = test->priv;

	page_pool_destroy(t->pool);
	t->pool = NULL;
	KUNIT_EXPECT_TRUE_MSG(test, pool_test_wait(t), "the pool did not end");
}

static netmem_ref pool_test_alloc(struct page_pool *pool)
{
	netmem_ref netmem;

	local_bh_disable();
	netmem = page_pool_ctx_alloc_netmem(pool, TEST_GFP);
	local_bh_enable();

	return netmem;
}

static void pool_test_alloc_all(struct kunit *test, struct page_pool *pool,
				netmem_ref netmem[TEST_PAGES])
{
	int i;

	for (i = 0; i < TEST_PAGES; i++) {
		netmem[i] = pool_test_alloc(pool);
		KUNIT_ASSERT_TRUE(test, netmem[i]);
	}
}

/* Pages come back to the context that frees them and are allocated again,
 * counted once.
 */
static void page_pool_ctx_recycle(struct kunit *test)
{
	struct page_pool *pool = pool_test_create(test, 3, NULL);
	netmem_ref netmem[TEST_PAGES];
	int i, nr = pool->ctx_cache_max;

	for (i = 0; i < nr; i++) {
		netmem[i] = pool_test_alloc(pool);
		KUNIT_ASSERT_TRUE(test, netmem[i]);
		KUNIT_EXPECT_EQ(test, compound_order(netmem_to_page(netmem[i])),
				3);
	}
	KUNIT_EXPECT_EQ(test, page_pool_inflight(pool, true), nr);
	KUNIT_EXPECT_EQ(test, page_pool_ctx_cached(pool), 0);

	for (i = 0; i < nr; i++)
		page_pool_ctx_put_netmem(netmem[i]);
	KUNIT_EXPECT_EQ(test, page_pool_inflight(pool, true), nr);
	KUNIT_EXPECT_EQ(test, page_pool_ctx_cached(pool), nr);

	for (i = nr; i--;)
		KUNIT_EXPECT_TRUE(test, pool_test_alloc(pool) == netmem[i]);
	KUNIT_EXPECT_EQ(test, page_pool_inflight(pool, true), nr);

	for (i = 0; i < nr; i++)
		page_pool_ctx_put_netmem(netmem[i]);

	pool_test_destroy(test);
}

/* What a full context spills goes to the ring, from where it is refilled */
static void page_pool_ctx_spill(struct kunit *test)
{
	struct page_pool *pool = pool_test_create(test, 0, NULL);
	netmem_ref netmem[3 * PP_CTX_CACHE_SIZE];
	int i, nr = ARRAY_SIZE(netmem);

	for (i = 0; i < nr; i++) {
		netmem[i] = pool_test_alloc(pool);
		KUNIT_ASSERT_TRUE(test, netmem[i]);
	}
	for (i = 0; i < nr; i++)
		page_pool_ctx_put_netmem(netmem[i]);
	KUNIT_EXPECT_EQ(test, page_pool_ctx_cached(pool), nr);
	KUNIT_EXPECT_FALSE(test, __ptr_ring_empty(&pool->ring));

	for (i = 0; i < nr; i++) {
		netmem[i] = pool_test_alloc(pool);
		KUNIT_ASSERT_TRUE(test, netmem[i]);
	}
	KUNIT_EXPECT_EQ(test, page_pool_inflight(pool, true), nr);
	KUNIT_EXPECT_EQ(test, page_pool_ctx_cached(pool), 0);

	for (i = 0; i < nr; i++)
		page_pool_ctx_put_netmem(netmem[i]);
	pool_test_destroy(test);
}

static void page_pool_ctx_limit(struct kunit *test)
{
	struct page_pool *pool = pool_test_create(test, 0, NULL);
	netmem_ref netmem[TEST_PAGES];
	int i;

	pool_test_alloc_all(test, pool, netmem);
	KUNIT_EXPECT_EQ(test, (__force unsigned long)pool_test_alloc(pool), 0);

	page_pool_ctx_put_netmem(netmem[0]);
	netmem[0] = pool_test_alloc(pool);
	KUNIT_EXPECT_NE(test, (__force unsigned long)netmem[0], 0);

	for (i = 0; i < TEST_PAGES; i++)
		page_pool_ctx_put_netmem(netmem[i]);
	pool_test_destroy(test);
}

/* A page somebody else refers to leaves the pool when its pool reference goes
 */
static void page_pool_ctx_foreign_ref(struct kunit *test)
{
	struct page_pool *pool = pool_test_create(test, 3, NULL);
	netmem_ref netmem = pool_test_alloc(pool);
	struct page *page;

	KUNIT_ASSERT_NE(test, (__force unsigned long)netmem, 0);
	page = netmem_to_page(netmem);

	get_page(page);
	page_pool_ctx_put_netmem(netmem);
	KUNIT_EXPECT_EQ(test, page_pool_inflight(pool, true), 0);
	KUNIT_EXPECT_EQ(test, page_pool_ctx_cached(pool), 0);
	KUNIT_EXPECT_FALSE(test, page_pool_page_is_pp(page));
	KUNIT_EXPECT_EQ(test, page_ref_count(page), 1);
	put_page(page);

	pool_test_destroy(test);
}

static void page_pool_ctx_trim_idle(struct kunit *test)
{
	struct page_pool *pool = pool_test_create(test, 0, NULL);
	netmem_ref netmem[TEST_PAGES];
	int i;

	pool_test_alloc_all(test, pool, netmem);
	for (i = 0; i < TEST_PAGES; i++)
		page_pool_ctx_put_netmem(netmem[i]);
	KUNIT_EXPECT_EQ(test, page_pool_ctx_cached(pool), TEST_PAGES);

	/* has allocated since the last time, and wanted more than the ring had
	 */
	page_pool_ctx_trim(pool);
	KUNIT_EXPECT_EQ(test, page_pool_ctx_cached(pool), TEST_PAGES);
	/* idle */
	page_pool_ctx_trim(pool);
	KUNIT_EXPECT_EQ(test, page_pool_ctx_cached(pool), 0);
	KUNIT_EXPECT_EQ(test, page_pool_inflight(pool, true), 0);

	/* still good */
	netmem[0] = pool_test_alloc(pool);
	KUNIT_ASSERT_NE(test, (__force unsigned long)netmem[0], 0);
	page_pool_ctx_put_netmem(netmem[0]);
	page_pool_ctx_shrink(pool, UINT_MAX);
	KUNIT_EXPECT_EQ(test, page_pool_inflight(pool, true), 0);

	pool_test_destroy(test);
}

/* The ring's pages first, and no more than were asked for */
static void page_pool_ctx_shrink_some(struct kunit *test)
{
	struct page_pool *pool = pool_test_create(test, 0, NULL);
	unsigned int in_ctx, i;
	netmem_ref netmem[TEST_PAGES];

	pool_test_alloc_all(test, pool, netmem);
	for (i = 0; i < TEST_PAGES; i++)
		page_pool_ctx_put_netmem(netmem[i]);
	in_ctx = per_cpu_ptr(pool->ctx, raw_smp_processor_id())->count;
	KUNIT_ASSERT_LT(test, in_ctx, TEST_PAGES - 3);

	KUNIT_EXPECT_EQ(test, page_pool_ctx_shrink(pool, 3), 3);
	KUNIT_EXPECT_EQ(test, page_pool_ctx_cached(pool), TEST_PAGES - 3);
	KUNIT_EXPECT_EQ(test, page_pool_ctx_shrink(pool, TEST_PAGES - 3 -
						   in_ctx),
			TEST_PAGES - 3 - in_ctx);
	KUNIT_EXPECT_EQ(test, page_pool_ctx_cached(pool), in_ctx);
	KUNIT_EXPECT_EQ(test, page_pool_ctx_shrink(pool, 1), in_ctx);
	KUNIT_EXPECT_EQ(test, page_pool_inflight(pool, true), 0);

	pool_test_destroy(test);
}

/* Closed: what is cached goes, what is out goes when it comes back */
static void page_pool_ctx_close_open(struct kunit *test)
{
	struct page_pool *pool = pool_test_create(test, 0, NULL);
	netmem_ref netmem[TEST_PAGES];
	int i;

	pool_test_alloc_all(test, pool, netmem);
	for (i = 1; i < TEST_PAGES; i++)
		page_pool_ctx_put_netmem(netmem[i]);

	page_pool_ctx_close(pool);
	KUNIT_EXPECT_EQ(test, page_pool_inflight(pool, true), 1);
	KUNIT_EXPECT_FALSE(test, pool_test_alloc(pool));
	page_pool_ctx_put_netmem(netmem[0]);
	KUNIT_EXPECT_EQ(test, page_pool_inflight(pool, true), 0);

	page_pool_ctx_open(pool);
	netmem[0] = pool_test_alloc(pool);
	KUNIT_ASSERT_TRUE(test, netmem[0]);
	page_pool_ctx_put_netmem(netmem[0]);
	KUNIT_EXPECT_EQ(test, page_pool_ctx_cached(pool), 1);

	pool_test_destroy(test);
}

/* Pages in flight keep a destroyed pool, unmapped; the last one ends it. By
 * all ways: a context, the generic one that goes to the ring, with a foreign
 * reference.
 */
static void page_pool_ctx_late_free(struct kunit *test)
{
	struct pool_test *t = test->priv;
	struct page_pool *pool = pool_test_create(test, 3, t->dev);
	netmem_ref a = pool_test_alloc(pool), b = pool_test_alloc(pool);
	netmem_ref c = pool_test_alloc(pool);
	struct page *page;

	KUNIT_ASSERT_NE(test, (__force unsigned long)a, 0);
	KUNIT_ASSERT_NE(test, (__force unsigned long)b, 0);
	KUNIT_ASSERT_NE(test, (__force unsigned long)c, 0);
	if (PP_DMA_INDEX_BITS)
		KUNIT_EXPECT_FALSE(test, xa_empty(&pool->dma_mapped));

	page_pool_destroy(pool);
	KUNIT_EXPECT_TRUE(test, xa_empty(&pool->dma_mapped));
	KUNIT_EXPECT_EQ(test, (__force unsigned long)pool_test_alloc(pool), 0);
	KUNIT_EXPECT_EQ(test, page_pool_inflight(pool, true), 3);

	page_pool_ctx_put_netmem(a);
	KUNIT_EXPECT_EQ(test, page_pool_inflight(pool, true), 2);
	page_pool_put_full_netmem(pool, b, false);
	KUNIT_EXPECT_EQ(test, page_pool_inflight(pool, true), 1);
	KUNIT_EXPECT_FALSE(test, completion_done(&t->ended));

	page = netmem_to_page(c);
	get_page(page);
	page_pool_ctx_put_netmem(c);
	t->pool = NULL;
	KUNIT_EXPECT_TRUE_MSG(test, pool_test_wait(t),
			      "the last page did not end the pool");
	put_page(page);
}

/* Who found the pool under RCU may use it: its end waits for them all */
struct pool_reader {
	struct completion reading;
	bool left;
};

static int pool_test_read(void *arg)
{
	struct pool_reader *reader = arg;

	rcu_read_lock();
	complete(&reader->reading);
	mdelay(100);
	WRITE_ONCE(reader->left, true);
	rcu_read_unlock();

	return 0;
}

static void page_pool_ctx_grace(struct kunit *test)
{
	struct pool_reader reader = {};
	struct task_struct *task;

	pool_test_create(test, 0, NULL);
	init_completion(&reader.reading);
	task = kthread_create(pool_test_read, &reader, "page_pool_test");
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, task);
	/* it ends by itself */
	get_task_struct(task);
	wake_up_process(task);
	wait_for_completion(&reader.reading);

	pool_test_destroy(test);
	KUNIT_EXPECT_TRUE_MSG(test, READ_ONCE(reader.left),
			      "the pool has ended under a reader");

	kthread_stop_put(task);
}

static void pool_test_from_reserve(netmem_ref netmem, void *arg)
{
	/* what page_is_pfmemalloc() looks at */
	netmem_or_pp_magic(netmem, BIT(1));
}

/* A page from the reserves is not kept, nor handed out */
static void page_pool_ctx_pfmemalloc(struct kunit *test)
{
	struct page_pool *pool = pool_test_create(test, 0, NULL);
	netmem_ref netmem;

	pool->slow.init_callback = pool_test_from_reserve;
	pool->has_init_callback = true;
	KUNIT_EXPECT_EQ(test, (__force unsigned long)pool_test_alloc(pool), 0);
	KUNIT_EXPECT_EQ(test, page_pool_inflight(pool, true), 0);
	KUNIT_EXPECT_EQ(test, page_pool_ctx_cached(pool), 0);

	pool->has_init_callback = false;
	netmem = pool_test_alloc(pool);
	KUNIT_ASSERT_TRUE(test, netmem);
	page_pool_ctx_put_netmem(netmem);

	pool_test_destroy(test);
}

static void page_pool_ctx_params(struct kunit *test)
{
	struct pool_test *t = test->priv;
	struct page_pool_params params = {
		.nid		= NUMA_NO_NODE,
		.flags		= PP_FLAG_DMA_MAP,
		.dev		= t->dev,
		.dma_dir	= DMA_TO_DEVICE,
	};

	/* nothing but contexts could allocate from it */
	KUNIT_EXPECT_PTR_EQ(test, page_pool_create(&params), ERR_PTR(-EINVAL));
}

static void page_pool_ctx_stats(struct kunit *test)
{
#ifdef CONFIG_PAGE_POOL_STATS
	struct page_pool *pool = pool_test_create(test, 0, NULL);
	struct page_pool_stats stats = {};
	netmem_ref netmem[4];
	int i, round;

	for (round = 0; round < 2; round++) {
		for (i = 0; i < ARRAY_SIZE(netmem); i++) {
			netmem[i] = pool_test_alloc(pool);
			KUNIT_ASSERT_TRUE(test, netmem[i]);
		}
		for (i = 0; i < ARRAY_SIZE(netmem); i++)
			page_pool_ctx_put_netmem(netmem[i]);
	}

	page_pool_get_stats(pool, &stats);
	KUNIT_EXPECT_EQ(test, stats.alloc_stats.slow, 4);
	KUNIT_EXPECT_EQ(test, stats.alloc_stats.empty, 4);
	KUNIT_EXPECT_EQ(test, stats.alloc_stats.fast, 4);
	KUNIT_EXPECT_EQ(test, stats.recycle_stats.cached, 8);
	pool_test_destroy(test);
#else
	kunit_skip(test, "needs CONFIG_PAGE_POOL_STATS");
#endif
}

/* A NAPI consumer and contexts on one pool: no page may be handed out twice,
 * and the pool must never seem to have fewer pages than none.
 */
struct pool_stress {
	struct page_pool *pool;
	atomic_t twice;
	atomic_t allocs;
	atomic_t order;
};

static void pool_stress_take(struct pool_stress *s, netmem_ref netmem)
{
	unsigned long *owner = page_address(netmem_to_page(netmem));

	if (cmpxchg(owner, 0, 1))
		atomic_inc(&s->twice);
	atomic_inc(&s->allocs);
}

static void pool_stress_leave(netmem_ref netmem)
{
	unsigned long *owner = page_address(netmem_to_page(netmem));

	/* before it can be taken again */
	smp_store_release(owner, 0);
}

static int pool_stress_ctx(void *arg)
{
	netmem_ref netmem[PP_CTX_CACHE_SIZE * 2];
	struct pool_stress *s = arg;
	int i, nr;

	while (!kthread_should_stop()) {
		for (nr = 0; nr < ARRAY_SIZE(netmem); nr++) {
			netmem[nr] = pool_test_alloc(s->pool);
			if (!netmem[nr])
				break;
			pool_stress_take(s, netmem[nr]);
		}
		for (i = 0; i < nr; i++) {
			pool_stress_leave(netmem[i]);
			if (i & 1)
				page_pool_ctx_put_netmem(netmem[i]);
			else
				page_pool_put_full_netmem(s->pool, netmem[i],
							  false);
		}
		cond_resched();
	}

	return 0;
}

static int pool_stress_napi(void *arg)
{
	netmem_ref netmem[TEST_PAGES / 2];
	struct pool_stress *s = arg;
	int i, nr;

	while (!kthread_should_stop()) {
		local_bh_disable();
		for (nr = 0; nr < ARRAY_SIZE(netmem); nr++) {
			netmem[nr] = page_pool_alloc_netmems(s->pool, TEST_GFP);
			if (!netmem[nr])
				break;
			pool_stress_take(s, netmem[nr]);
		}
		local_bh_enable();
		for (i = 0; i < nr; i++) {
			pool_stress_leave(netmem[i]);
			page_pool_put_full_netmem(s->pool, netmem[i], false);
		}
		cond_resched();
	}

	return 0;
}

static int pool_stress_watch(void *arg)
{
	struct pool_stress *s = arg;

	while (!kthread_should_stop()) {
		if (page_pool_inflight(s->pool, true) < 0)
			atomic_inc(&s->order);
		page_pool_ctx_trim(s->pool);
		usleep_range(500, 1000);
	}

	return 0;
}

static void page_pool_ctx_shared(struct kunit *test)
{
	struct task_struct *task[4] = {};
	struct pool_stress s = {};
	unsigned int cpu;
	int i;

	s.pool = pool_test_create(test, 0, NULL);

	cpu = cpumask_first(cpu_online_mask);
	for (i = 0; i < ARRAY_SIZE(task); i++) {
		task[i] = kthread_create(i == 3 ? pool_stress_watch :
					 i == 2 ? pool_stress_napi :
						  pool_stress_ctx,
					 &s, "page_pool_test/%d", i);
		KUNIT_EXPECT_NOT_ERR_OR_NULL(test, task[i]);
		if (IS_ERR(task[i]))
			continue;
		kthread_bind(task[i], cpu);
		cpu = cpumask_next_wrap(cpu, cpu_online_mask);
		wake_up_process(task[i]);
	}
	msleep(1500);
	for (i = 0; i < ARRAY_SIZE(task); i++) {
		if (!IS_ERR(task[i]))
			kthread_stop(task[i]);
	}

	KUNIT_EXPECT_GT(test, atomic_read(&s.allocs), 1000);
	KUNIT_EXPECT_EQ_MSG(test, atomic_read(&s.twice), 0,
			    "pages were handed out twice");
	KUNIT_EXPECT_EQ_MSG(test, atomic_read(&s.order), 0,
			    "releases were seen before holds");

	pool_test_destroy(test);
}

static int pool_test_init(struct kunit *test)
{
	struct pool_test *t = kunit_kzalloc(test, sizeof(*t), GFP_KERNEL);
	int err;

	if (!t)
		return -ENOMEM;

	init_completion(&t->ended);
	t->dev = kunit_device_register(test, "page_pool_test");
	if (IS_ERR(t->dev))
		return PTR_ERR(t->dev);
	err = dma_coerce_mask_and_coherent(t->dev, DMA_BIT_MASK(64));
	if (err)
		return err;

	test->priv = t;
	current_test = t;

	/* The thread of this test: contexts are per CPU, count those of one */
	return set_cpus_allowed_ptr(current,
				    cpumask_of(raw_smp_processor_id()));
}

static void pool_test_exit(struct kunit *test)
{
	struct pool_test *t = test->priv;

	/* after a failed assertion, with pages out: let the work finish first
	 */
	if (t && t->pool) {
		t->pool->disconnect = NULL;
		page_pool_destroy(t->pool);
	}
}

static struct kunit_case pool_test_cases[] = {
	KUNIT_CASE(page_pool_ctx_recycle),
	KUNIT_CASE(page_pool_ctx_spill),
	KUNIT_CASE(page_pool_ctx_limit),
	KUNIT_CASE(page_pool_ctx_foreign_ref),
	KUNIT_CASE(page_pool_ctx_trim_idle),
	KUNIT_CASE(page_pool_ctx_shrink_some),
	KUNIT_CASE(page_pool_ctx_close_open),
	KUNIT_CASE(page_pool_ctx_late_free),
	KUNIT_CASE(page_pool_ctx_grace),
	KUNIT_CASE(page_pool_ctx_pfmemalloc),
	KUNIT_CASE(page_pool_ctx_params),
	KUNIT_CASE(page_pool_ctx_stats),
	KUNIT_CASE_SLOW(page_pool_ctx_shared),
	{}
};

static struct kunit_suite pool_test_suite = {
	.name = "page-pool-ctx",
	.init = pool_test_init,
	.exit = pool_test_exit,
	.test_cases = pool_test_cases,
};

kunit_test_suite(pool_test_suite);

MODULE_IMPORT_NS("EXPORTED_FOR_KUNIT_TESTING");
MODULE_DESCRIPTION("KUnit tests for the allocation contexts of page pools");
MODULE_LICENSE("GPL");
