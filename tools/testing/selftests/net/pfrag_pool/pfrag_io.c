// SPDX-License-Identifier: GPL-2.0
/* Send bytes over TCP in every way sendmsg() knows, and check each of them.
 *
 * All bytes come from one table of random bytes whose length is a prime number,
 * read round and round; each flow starts at a place of its own. So the
 * receiver knows what byte N of a flow must be without being told, a byte that
 * is lost, repeated, stale or another flow's does not match, and as the table
 * never changes, MSG_ZEROCOPY, splice and sendfile may send straight from it.
 *
 * On the wire: struct hello, then the data until FIN; the receiver answers
 * with a struct verdict.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <error.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/errqueue.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <linux/types.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define TABLE_LEN	1048573U	/* a prime */
#define WRITE_MAX	0x100000U
#define MAGIC		0x70667267U
#define RX_BUF		(256 * 1024)
#define PIPES		4

struct hello {
	__u32 magic;
	__u32 phase;		/* where in the table this flow starts */
};

struct verdict {
	__u64 bytes;
	__u64 bad;
};

enum method {
	M_WRITE, M_MORE, M_SPLICE, M_SENDFILE, M_ZEROCOPY, M_FAULT, M_REPAIR,
	M_COUNT,
};

static const char *const method_names[M_COUNT] = {
	"write", "more", "splice", "sendfile", "zerocopy", "fault", "repair",
};

static const char *cfg_peer;
static const char *cfg_dev;
static const char *cfg_progress;
static const char *cfg_port = "5201";
static unsigned int cfg_methods = 1 << M_WRITE;
static unsigned int cfg_size_min = 65536, cfg_size_max = 65536;
static unsigned int cfg_flows = 1;
static unsigned int cfg_patience = 60;
static unsigned int cfg_seed;
static unsigned int cfg_stalled;
static __u64 cfg_bytes;
static __u64 cfg_quiet_after = ~0ULL;
static __u64 cfg_rate;
static __s64 cfg_corrupt = -1;
static double cfg_seconds;
static int cfg_buf;
static bool cfg_fastopen, cfg_hold, cfg_rx_splice, cfg_sniff;

static char *table;		/* twice over, and WRITE_MAX: no wrapping */
static int table_fd;

static int signaled;
static __u64 deadline_ms;

static __u64 now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000ULL + ts.tv_nsec / 1000000;
}

static __u64 splitmix(__u64 *s)
{
	__u64 z = (*s += 0x9e3779b97f4a7c15ULL);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

static void make_table(void)
{
	size_t len = TABLE_LEN + WRITE_MAX, i;
	__u64 s = MAGIC;

	table_fd = memfd_create("pfrag_io", 0);
	if (table_fd < 0 || ftruncate(table_fd, len))
		error(1, errno, "memfd_create");
	table = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED,
		     table_fd, 0);
	if (table == MAP_FAILED)
		error(1, errno, "mmap of the table");
	for (i = 0; i + 8 <= TABLE_LEN; i += 8) {
		__u64 v = splitmix(&s);

		memcpy(table + i, &v, 8);
	}
	for (; i < TABLE_LEN; i++)
		table[i] = splitmix(&s);
	for (i = TABLE_LEN; i < len; i++)
		table[i] = table[i - TABLE_LEN];
}

static void note_progress(__u64 bytes)
{
	static int fd = -1;
	char buf[32];
	int len;

	if (!cfg_progress)
		return;
	if (fd < 0) {
		fd = open(cfg_progress, O_WRONLY | O_CREAT | O_TRUNC, 0644);
		if (fd < 0)
			error(1, errno, "%s", cfg_progress);
	}
	len = snprintf(buf, sizeof(buf), "%020llu\n",
		       (unsigned long long)bytes);
	if (pwrite(fd, buf, len, 0) != len)
		error(1, errno, "%s", cfg_progress);
}

static bool go_on(void)
{
	return __atomic_load_n(&signaled, __ATOMIC_RELAXED);
}

static void on_signal(int sig)
{
	__atomic_store_n(&signaled, 1, __ATOMIC_RELAXED);
}

/* ---- sender ---- */

struct flow {
	pthread_t thread;
	__u64 rnd;
	__u64 sent;		/* data bytes handed to the kernel */
	__u32 phase;
	unsigned int zc_pending;
	unsigned int id;
	int pipe[2];
	int fd;
	bool done;
	char *guard;		/* 64 KiB of memory, and a hole after it */
};

static int open_flow(struct flow *f, const char *port)
{
	struct addrinfo hints = {
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICHOST,
	}, *ai;
	struct hello hello = { .magic = MAGIC };
	struct msghdr msg = {};
	struct iovec iov[2];
	int one = 1, err;
	ssize_t ret;

	f->rnd = cfg_seed + 0x1000003ULL * f->id;
	f->phase = splitmix(&f->rnd) % TABLE_LEN;
	hello.phase = f->phase;

	err = getaddrinfo(cfg_peer, port, &hints, &ai);
	if (err)
		error(1, 0, "%s: %s", cfg_peer, gai_strerror(err));
	f->fd = socket(ai->ai_family, SOCK_STREAM, 0);
	if (f->fd < 0)
		error(1, errno, "socket");
	if (cfg_dev && setsockopt(f->fd, SOL_SOCKET, SO_BINDTODEVICE, cfg_dev,
				  strlen(cfg_dev) + 1))
		error(1, errno, "bind to device %s", cfg_dev);
	if (cfg_buf && setsockopt(f->fd, SOL_SOCKET, SO_SNDBUF, &cfg_buf,
				  sizeof(cfg_buf)))
		error(1, errno, "SO_SNDBUF");
	if ((cfg_methods & (1 << M_ZEROCOPY)) &&
	    setsockopt(f->fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one)))
		error(1, errno, "SO_ZEROCOPY");

	iov[0].iov_base = &hello;
	iov[0].iov_len = sizeof(hello);
	iov[1].iov_base = table + f->phase;
	iov[1].iov_len = 0;
	msg.msg_iov = iov;
	msg.msg_iovlen = 2;
	if (cfg_fastopen) {
		/* more than a SYN carries, so that the rest goes the usual
		 * way in the same call
		 */
		iov[1].iov_len = 20000;
		if (cfg_bytes && cfg_bytes < iov[1].iov_len)
			iov[1].iov_len = cfg_bytes;
		msg.msg_name = ai->ai_addr;
		msg.msg_namelen = ai->ai_addrlen;
	} else if (connect(f->fd, ai->ai_addr, ai->ai_addrlen)) {
		error(1, errno, "connect to %s", cfg_peer);
	}
	freeaddrinfo(ai);

	ret = sendmsg(f->fd, &msg, cfg_fastopen ? MSG_FASTOPEN : 0);
	if (ret < (ssize_t)sizeof(hello))
		error(1, errno, "flow %u: first write", f->id);
	f->sent = ret - sizeof(hello);
	return f->fd;
}

static void reap_zerocopy(struct flow *f, bool wait)
{
	char control[256];

	while (f->zc_pending) {
		struct msghdr msg = {
			.msg_control = control,
			.msg_controllen = sizeof(control),
		};
		struct cmsghdr *cm;

		if (recvmsg(f->fd, &msg, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
			struct pollfd p = { .fd = f->fd };

			if (errno != EAGAIN)
				error(1, errno, "flow %u: error queue", f->id);
			if (!wait)
				return;
			poll(&p, 1, 100);
			continue;
		}
		for (cm = CMSG_FIRSTHDR(&msg); cm; cm = CMSG_NXTHDR(&msg, cm)) {
			struct sock_extended_err *e = (void *)CMSG_DATA(cm);

			if (e->ee_origin == SO_EE_ORIGIN_ZEROCOPY)
				f->zc_pending -= e->ee_data - e->ee_info + 1;
		}
	}
}

/* A write whose memory ends in the middle: the kernel may take what lies
 * before the hole, or nothing, but not a byte of what it did not copy.
 */
static ssize_t send_fault(struct flow *f, const char *data, size_t len)
{
	size_t have = 1 + splitmix(&f->rnd) % 65536;
	ssize_t ret;

	if (!f->guard) {
		f->guard = mmap(NULL, 131072, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (f->guard == MAP_FAILED ||
		    mprotect(f->guard + 65536, 65536, PROT_NONE))
			error(1, errno, "guard page");
	}
	if (have > len)
		have = len;
	memcpy(f->guard + 65536 - have, data, have);
	ret = send(f->fd, f->guard + 65536 - have, have + 1000, 0);
	if (ret > (ssize_t)have)
		error(1, 0, "flow %u: the kernel took %zd bytes of %zu",
		      f->id, ret, have);
	if (ret < 0 && errno == EFAULT)
		return 0;
	return ret;
}

/* In repair mode the data are queued as if they had been sent already */
static ssize_t send_repair(struct flow *f, const char *data, size_t len)
{
	int on = TCP_REPAIR_ON, off = TCP_REPAIR_OFF, queue = TCP_SEND_QUEUE;
	ssize_t ret;

	if (setsockopt(f->fd, IPPROTO_TCP, TCP_REPAIR, &on, sizeof(on)) ||
	    setsockopt(f->fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, &queue,
		       sizeof(queue)))
		error(1, errno, "flow %u: TCP_REPAIR", f->id);
	ret = send(f->fd, data, len > 4096 ? 4096 : len, MSG_DONTWAIT);
	if (ret < 0 && errno == EAGAIN)
		ret = 0;
	if (setsockopt(f->fd, IPPROTO_TCP, TCP_REPAIR, &off, sizeof(off)))
		error(1, errno, "flow %u: TCP_REPAIR off", f->id);
	return ret;
}

static ssize_t send_splice(struct flow *f, off_t off, size_t len)
{
	size_t done = 0;
	ssize_t n, m;
	loff_t pos = off;

	if (!f->pipe[1] && pipe(f->pipe))
		error(1, errno, "pipe");
	n = splice(table_fd, &pos, f->pipe[1], NULL, len, 0);
	if (n <= 0)
		return n;
	while (done < (size_t)n) {
		m = splice(f->pipe[0], NULL, f->fd, NULL, n - done,
			   splitmix(&f->rnd) & 1 ? SPLICE_F_MORE : 0);
		if (m <= 0)
			return m;
		done += m;
	}
	return done;
}

static ssize_t send_some(struct flow *f, enum method m, size_t len)
{
	off_t off = (f->phase + f->sent) % TABLE_LEN;
	ssize_t ret;
	char *copy;

	if (cfg_corrupt >= (__s64)f->sent &&
	    cfg_corrupt < (__s64)(f->sent + len)) {
		copy = malloc(len);
		memcpy(copy, table + off, len);
		copy[cfg_corrupt - f->sent] ^= 1;
		ret = send(f->fd, copy, len, 0);
		free(copy);
		return ret;
	}

	switch (m) {
	case M_MORE:
		return send(f->fd, table + off, len, MSG_MORE);
	case M_SPLICE:
		return send_splice(f, off, len);
	case M_SENDFILE:
		return sendfile(f->fd, table_fd, &off, len);
	case M_ZEROCOPY:
		for (;;) {
			ret = send(f->fd, table + off, len, MSG_ZEROCOPY);
			if (ret >= 0) {
				f->zc_pending++;
				reap_zerocopy(f, false);
				return ret;
			}
			if (errno != ENOBUFS)
				return ret;
			reap_zerocopy(f, true);
		}
	case M_FAULT:
		return send_fault(f, table + off, len);
	case M_REPAIR:
		return send_repair(f, table + off, len);
	default:
		return send(f->fd, table + off, len, 0);
	}
}

static bool flow_finished(struct flow *f)
{
	if (cfg_bytes)
		return f->sent >= cfg_bytes;
	return go_on() || now_ms() >= deadline_ms;
}

static enum method pick_method(struct flow *f)
{
	enum method m;

	do {
		m = splitmix(&f->rnd) % M_COUNT;
		/* each repair costs a retransmission timeout */
		if (m == M_REPAIR && splitmix(&f->rnd) % 32)
			m = M_WRITE;
	} while (!(cfg_methods & (1 << m)));
	return m;
}

static size_t pick_size(struct flow *f)
{
	__u64 r = splitmix(&f->rnd);
	unsigned int lo = cfg_size_min, hi = cfg_size_max, top;

	if (lo == hi)
		return lo;
	/* as many small ones as big ones */
	top = lo;
	while (top < hi && (r & 1)) {
		top = top < hi / 2 ? top * 2 : hi;
		r >>= 1;
	}
	top = (r & 6) ? top : hi;
	return lo + (r >> 8) % (top - lo + 1);
}

static void finish_flow(struct flow *f)
{
	struct verdict v;
	ssize_t ret;

	reap_zerocopy(f, true);
	if (shutdown(f->fd, SHUT_WR))
		error(1, errno, "flow %u: shutdown", f->id);
	ret = recv(f->fd, &v, sizeof(v), MSG_WAITALL);
	if (ret != sizeof(v))
		error(1, ret < 0 ? errno : 0,
		      "flow %u: no answer from the receiver", f->id);
	if (v.bytes != f->sent || v.bad)
		error(1, 0,
		      "flow %u: %llu bytes sent, %llu received, %llu wrong",
		      f->id, (unsigned long long)f->sent,
		      (unsigned long long)v.bytes, (unsigned long long)v.bad);
	f->done = true;
}

static void *sender_thread(void *arg)
{
	struct flow *f = arg;

	while (!flow_finished(f)) {
		size_t len = pick_size(f);
		ssize_t ret;

		if (cfg_bytes && len > cfg_bytes - f->sent)
			len = cfg_bytes - f->sent;
		ret = send_some(f, pick_method(f), len);
		if (ret < 0)
			error(1, errno, "flow %u: write after %llu bytes",
			      f->id, (unsigned long long)f->sent);
		f->sent += ret;
	}
	if (!cfg_hold)
		finish_flow(f);
	else
		f->done = true;
	return NULL;
}

static __u64 acked_bytes(struct flow *flows, bool *all_done)
{
	__u64 sum = 0;
	unsigned int i;

	*all_done = true;
	for (i = 0; i < cfg_flows; i++) {
		__u64 sent = __atomic_load_n(&flows[i].sent,
						__ATOMIC_RELAXED);
		int queued = 0;

		ioctl(flows[i].fd, SIOCOUTQ, &queued);
		sum += sent > (__u64)queued ? sent - queued : 0;
		if (!__atomic_load_n(&flows[i].done, __ATOMIC_RELAXED))
			*all_done = false;
	}
	return sum;
}

/* Hold one unsent small write in each of cfg_stalled sockets whose peer (on
 * the next port) does not read, and turn the allocator over between them, by
 * way of flow 0, which is read.
 */
static void stall_sockets(struct flow *bulk)
{
	struct flow *s = calloc(cfg_stalled, sizeof(*s));
	socklen_t len;
	char port[16];
	unsigned int i;
	__u64 end;
	int queued;

	snprintf(port, sizeof(port), "%d", atoi(cfg_port) + 1);
	for (i = 0; i < cfg_stalled; i++) {
		struct tcp_info info;

		s[i].id = 1000 + i;
		open_flow(&s[i], port);
		end = now_ms() + cfg_patience * 1000;
		do {
			if (send(s[i].fd, table, 500, MSG_DONTWAIT) < 0 &&
			    errno != EAGAIN)
				error(1, errno, "stalled socket %u", i);
			usleep(1000);
			len = sizeof(info);
			memset(&info, 0, sizeof(info));
			if (getsockopt(s[i].fd, IPPROTO_TCP, TCP_INFO, &info,
				       &len))
				error(1, errno, "TCP_INFO");
			if (now_ms() > end)
				error(1, 0, "socket %u: its peer still reads",
				      i);
		} while (info.tcpi_snd_wnd || !info.tcpi_notsent_bytes);

		if (send(bulk->fd, table + (bulk->phase + bulk->sent) %
			 TABLE_LEN, 65536, 0) != 65536)
			error(1, errno, "bulk flow");
		bulk->sent += 65536;
		end = now_ms() + cfg_patience * 1000;
		do {
			if (ioctl(bulk->fd, SIOCOUTQ, &queued))
				error(1, errno, "SIOCOUTQ");
			if (now_ms() > end)
				error(1, 0, "the bulk flow is stuck");
		} while (queued && !usleep(200));
		note_progress(i + 1);
	}
}

static int sender(void)
{
	struct flow *flows = calloc(cfg_flows, sizeof(*flows));
	__u64 acked = 0, last = 0, last_change, total = 0;
	bool all_done = false;
	unsigned int i;
	int sniff;

	if (cfg_sniff) {
		struct sockaddr_ll ll = {
			.sll_family = AF_PACKET,
			.sll_protocol = htons(ETH_P_ALL),
		};

		/* never read: its queue keeps clones of what was sent */
		sniff = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
		if (sniff < 0 ||
		    bind(sniff, (struct sockaddr *)&ll, sizeof(ll)))
			error(1, errno, "packet socket");
	}

	note_progress(0);
	for (i = 0; i < cfg_flows; i++) {
		flows[i].id = i;
		open_flow(&flows[i], cfg_port);
	}
	if (cfg_stalled)
		stall_sockets(&flows[0]);

	deadline_ms = now_ms() + cfg_seconds * 1000;
	if (cfg_hold) {
		/* a thread each would be what is measured */
		for (i = 0; i < cfg_flows && !cfg_stalled; i++)
			sender_thread(&flows[i]);
		printf("holding %u sockets\n", cfg_flows + cfg_stalled);
		fflush(stdout);
		while (!go_on())
			usleep(20000);
		for (i = 0; i < cfg_flows; i++)
			finish_flow(&flows[i]);
		return 0;
	}

	for (i = 0; i < cfg_flows; i++) {
		errno = pthread_create(&flows[i].thread, NULL, sender_thread,
				       &flows[i]);
		if (errno)
			error(1, errno, "pthread_create");
	}
	last_change = now_ms();
	while (!all_done) {
		/* looking at thousands of sockets takes its time, too */
		usleep(20000 + 1000 * cfg_flows);
		acked = acked_bytes(flows, &all_done);
		if (acked != last) {
			last = acked;
			last_change = now_ms();
			note_progress(acked);
		} else if (now_ms() - last_change > cfg_patience * 1000ULL) {
			error(1, 0, "no progress for %u s at byte %llu",
			      cfg_patience, (unsigned long long)acked);
		}
	}
	for (i = 0; i < cfg_flows; i++) {
		pthread_join(flows[i].thread, NULL);
		total += flows[i].sent;
		close(flows[i].fd);
	}
	printf("sent %llu bytes in %u flows\n", (unsigned long long)total,
	       cfg_flows);
	return 0;
}

/* ---- receiver ---- */

struct conn {
	int fd;
	unsigned int head;	/* bytes of the hello so far */
	struct hello hello;
	__u64 bytes;
	__u64 bad;
	int pipes[PIPES][2];
	unsigned int next_pipe;
	bool quiet;
	struct conn *next;	/* in one of the lists */
};

static struct conn *quiet_list;
static struct conn *answered, **answered_tail = &answered;
static unsigned int finished;
static __u64 rx_total, rx_bad;
static int epfd;

static void check(struct conn *c, const char *buf, size_t len)
{
	while (len && c->head < sizeof(c->hello)) {
		((char *)&c->hello)[c->head++] = *buf++;
		len--;
		if (c->head == sizeof(c->hello) &&
		    (c->hello.magic != MAGIC || c->hello.phase >= TABLE_LEN)) {
			fprintf(stderr, "a flow begins with wrong bytes\n");
			c->hello.phase = 0;
			c->bad++;
		}
	}
	if (!len)
		return;
	if (memcmp(buf, table + (c->hello.phase + c->bytes) % TABLE_LEN, len)) {
		const char *want = table + (c->hello.phase + c->bytes) %
				   TABLE_LEN;
		size_t i, first = len, n = 0;

		for (i = 0; i < len; i++) {
			if (buf[i] == want[i])
				continue;
			if (first == len)
				first = i;
			n++;
		}
		if (!c->bad)
			fprintf(stderr,
				"%zu wrong bytes from byte %llu on (%02x, not %02x)\n",
				n, (unsigned long long)c->bytes + first,
				(unsigned char)buf[first],
				(unsigned char)want[first]);
		c->bad += n;
	}
	c->bytes += len;
	rx_total += len;
}

static ssize_t drain_pipe(struct conn *c, unsigned int k, char *buf)
{
	ssize_t n, sum = 0;

	if (!c->pipes[k][1])
		return 0;
	while ((n = read(c->pipes[k][0], buf, RX_BUF)) > 0) {
		check(c, buf, n);
		sum += n;
	}
	return sum;
}

/* The bytes stay in the pipe, as references to the sender's or the driver's
 * pages, while the flow goes on: they must not change there.
 */
static ssize_t receive_splice(struct conn *c, char *buf)
{
	unsigned int k = c->next_pipe, i;
	ssize_t ret;

	if (!c->pipes[k][1]) {
		if (pipe2(c->pipes[k], O_NONBLOCK))
			error(1, errno, "pipe2");
		fcntl(c->pipes[k][0], F_SETPIPE_SZ, RX_BUF);
	}
	drain_pipe(c, k, buf);
	ret = splice(c->fd, NULL, c->pipes[k][1], NULL, RX_BUF,
		     SPLICE_F_NONBLOCK);
	if (ret > 0) {
		c->next_pipe = (k + 1) % PIPES;
	} else if (!ret) {
		for (i = 1; i < PIPES; i++)
			drain_pipe(c, (k + i) % PIPES, buf);
	}
	return ret;
}

static void watch(struct conn *c)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = c };

	if (epoll_ctl(epfd, EPOLL_CTL_ADD, c->fd, &ev))
		error(1, errno, "epoll_ctl");
}

static void make_quiet(struct conn *c)
{
	c->quiet = true;
	c->next = quiet_list;
	quiet_list = c;
}

static void free_conn(struct conn *c)
{
	int i;

	for (i = 0; i < PIPES; i++) {
		if (c->pipes[i][1]) {
			close(c->pipes[i][0]);
			close(c->pipes[i][1]);
		}
	}
	rx_bad += c->bad;
	finished++;
	close(c->fd);
	free(c);
}

/* All has been received: answer. The connection is closed when the sender has
 * acknowledged that, as it may be lost when nobody has the socket open.
 */
static void answer(struct conn *c)
{
	struct verdict v = { .bytes = c->bytes, .bad = c->bad };

	if (send(c->fd, &v, sizeof(v), MSG_NOSIGNAL) != sizeof(v))
		error(0, errno, "answer to the sender");
	epoll_ctl(epfd, EPOLL_CTL_DEL, c->fd, NULL);
	c->next = NULL;
	*answered_tail = c;
	answered_tail = &c->next;
}

static bool acknowledged(struct conn *c)
{
	struct tcp_info info = {};
	socklen_t len = sizeof(info);

	getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &len);
	return !info.tcpi_unacked && !info.tcpi_notsent_bytes;
}

static void close_answered(void)
{
	struct conn *c;

	while ((c = answered) && acknowledged(c)) {
		answered = c->next;
		if (!answered)
			answered_tail = &answered;
		free_conn(c);
	}
}

static void receive_some(struct conn *c, char *buf)
{
	ssize_t n;

	if (cfg_rx_splice) {
		n = receive_splice(c, buf);
	} else {
		n = recv(c->fd, buf, RX_BUF, MSG_DONTWAIT);
		if (n > 0)
			check(c, buf, n);
	}
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0) {
		error(0, errno, "receive after %llu bytes",
		      (unsigned long long)c->bytes);
		rx_bad++;
		n = 0;
	}
	if (!n) {
		answer(c);
	} else if (!go_on() && c->bytes >= cfg_quiet_after) {
		epoll_ctl(epfd, EPOLL_CTL_DEL, c->fd, NULL);
		make_quiet(c);
	}
}

static int receiver(void)
{
	struct sockaddr_in6 addr = {
		.sin6_family = AF_INET6,
		.sin6_port = htons(atoi(cfg_port)),
	};
	struct epoll_event ev = { .events = EPOLLIN }, evs[64];
	int lfd, one = 1, zero = 0, qlen = 64, n, i;
	char *buf = malloc(RX_BUF);
	__u64 start = 0;
	struct conn *c;

	lfd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (lfd < 0)
		error(1, errno, "socket");
	setsockopt(lfd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	setsockopt(lfd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
	if (cfg_buf && setsockopt(lfd, SOL_SOCKET, SO_RCVBUF, &cfg_buf,
				  sizeof(cfg_buf)))
		error(1, errno, "SO_RCVBUF");
	if (cfg_fastopen && setsockopt(lfd, IPPROTO_TCP, TCP_FASTOPEN, &qlen,
				       sizeof(qlen)))
		error(1, errno, "TCP_FASTOPEN");
	if (bind(lfd, (struct sockaddr *)&addr, sizeof(addr)) ||
	    listen(lfd, 1024))
		error(1, errno, "listen on port %s", cfg_port);

	note_progress(0);
	epfd = epoll_create1(0);
	if (epfd < 0 || epoll_ctl(epfd, EPOLL_CTL_ADD, lfd, &ev))
		error(1, errno, "epoll");

	while (finished < cfg_flows) {
		if (go_on()) {
			while (quiet_list) {
				c = quiet_list;
				quiet_list = c->next;
				c->quiet = false;
				watch(c);
			}
		}
		close_answered();
		n = epoll_wait(epfd, evs, 64, answered ? 20 : 100);
		for (i = 0; i < n; i++) {
			c = evs[i].data.ptr;
			if (c) {
				receive_some(c, buf);
				continue;
			}
			c = calloc(1, sizeof(*c));
			c->fd = accept4(lfd, NULL, NULL, SOCK_NONBLOCK);
			if (c->fd < 0) {
				free(c);
				continue;
			}
			if (!start)
				start = now_ms();
			if (!cfg_quiet_after && !go_on())
				make_quiet(c);
			else
				watch(c);
		}
		while (cfg_rate && start && rx_total * 1000 / cfg_rate >
		       now_ms() - start)
			usleep(2000);
		note_progress(rx_total);
	}
	if (rx_bad)
		error(1, 0, "%llu of %llu bytes were wrong",
		      (unsigned long long)rx_bad,
		      (unsigned long long)rx_total);
	printf("received %llu bytes in %u flows, each as it was sent\n",
	       (unsigned long long)rx_total, finished);
	return 0;
}

static __u64 number(const char *s)
{
	char *end;
	__u64 v = strtoull(s, &end, 0);
	unsigned int shift = 0;

	if (*end == 'K')
		shift = 10;
	else if (*end == 'M')
		shift = 20;
	else if (*end == 'G')
		shift = 30;
	if (shift)
		end++;
	if (*end && *end != ':')
		error(2, 0, "'%s': digits and K, M or G are expected", s);
	return v << shift;
}

static void parse_methods(char *list)
{
	char *tok;
	int i;

	cfg_methods = 0;
	for (tok = strtok(list, ","); tok; tok = strtok(NULL, ",")) {
		for (i = 0; i < M_COUNT; i++)
			if (!strcmp(tok, method_names[i]))
				break;
		if (i == M_COUNT)
			error(2, 0, "unknown method '%s'", tok);
		cfg_methods |= 1 << i;
	}
}

static const char usage[] =
"receive: pfrag_io -l [options]            send: pfrag_io -c ADDRESS [options]\n"
"  -p PORT     TCP port (5201)             -n N      flows (1)\n"
"  -B BYTES    socket buffer               -F        TCP Fast Open\n"
"  -P FILE     keep the number of bytes received, or acknowledged, there\n"
"receive:\n"
"  -q BYTES    stop reading a flow after that many, until SIGUSR1\n"
"  -r RATE     bytes per second            -s        by way of splice\n"
"send:\n"
"  -b BYTES    per flow                    -d SECS   instead of -b, or SIGUSR1\n"
"  -w MIN[:MAX] size of a write, at most 1M (64K)\n"
"  -m LIST     of write,more,splice,sendfile,zerocopy,fault,repair\n"
"  -D DEV      bind to a device            -t SECS   give up without progress (60)\n"
"  -H          keep the sockets after -b bytes, until SIGUSR1\n"
"  -A N        and N sockets stalled by a peer on PORT + 1\n"
"  -K          with a packet socket open that nobody reads\n"
"  -X OFFSET   send a wrong byte there     -S SEED   of sizes and methods\n";

int main(int argc, char **argv)
{
	struct sigaction sa = {
		.sa_handler = on_signal,
		.sa_flags = SA_RESTART,
	};
	struct rlimit rl = { 65536, 65536 };
	bool listening = false;
	char *colon;
	int c;

	cfg_seed = getpid();
	while ((c = getopt(argc, argv,
			   "lc:p:n:B:FP:q:r:sb:d:w:m:D:t:HA:KX:S:h")) != -1) {
		switch (c) {
		case 'l':
			listening = true;
			break;
		case 'c':
			cfg_peer = optarg;
			break;
		case 'p':
			cfg_port = optarg;
			break;
		case 'n':
			cfg_flows = number(optarg);
			break;
		case 'B':
			cfg_buf = number(optarg);
			break;
		case 'F':
			cfg_fastopen = true;
			break;
		case 'P':
			cfg_progress = optarg;
			break;
		case 'q':
			cfg_quiet_after = number(optarg);
			break;
		case 'r':
			cfg_rate = number(optarg);
			break;
		case 's':
			cfg_rx_splice = true;
			break;
		case 'b':
			cfg_bytes = number(optarg);
			break;
		case 'd':
			cfg_seconds = atof(optarg);
			break;
		case 'w':
			cfg_size_min = number(optarg);
			colon = strchr(optarg, ':');
			cfg_size_max = colon ? number(colon + 1) : cfg_size_min;
			break;
		case 'm':
			parse_methods(optarg);
			break;
		case 'D':
			cfg_dev = optarg;
			break;
		case 't':
			cfg_patience = number(optarg);
			break;
		case 'H':
			cfg_hold = true;
			break;
		case 'A':
			cfg_stalled = number(optarg);
			break;
		case 'K':
			cfg_sniff = true;
			break;
		case 'X':
			cfg_corrupt = number(optarg);
			break;
		case 'S':
			cfg_seed = number(optarg);
			break;
		default:
			fputs(usage, c == 'h' ? stdout : stderr);
			return c == 'h' ? 0 : 2;
		}
	}
	if (listening == !!cfg_peer || optind < argc)
		error(2, 0, "either -l or -c ADDRESS is needed; -h shows more");
	if (cfg_peer && !cfg_bytes && !cfg_seconds)
		error(2, 0, "-b or -d must say how much to send");
	if (!cfg_size_min || cfg_size_min > cfg_size_max ||
	    cfg_size_max > WRITE_MAX)
		error(2, 0, "a write has 1 byte to 1M");
	if (!cfg_methods || !cfg_flows)
		error(2, 0, "nothing to do");

	sigaction(SIGUSR1, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
	setrlimit(RLIMIT_NOFILE, &rl);
	make_table();
	return listening ? receiver() : sender();
}
