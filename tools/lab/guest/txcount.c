// SPDX-License-Identifier: GPL-2.0
/*
 * The traffic of "make run": a sender whose work between two markers is known
 * exactly, and its peer. One program for guest and host.
 *
 *   txcount sink PORT            serve connections, for ever
 *   txcount send ADDR PORT [-w SIZE] [-n BYTES] [-u BYTES] [-r ROUNDS]
 *           [-g] [-c COMMAND] [-f FLOWS] [-z | -s]
 *     Connect, send BYTES (-u) to warm up, then ROUNDS times: marker, BYTES
 *     (-n) in writes of SIZE, wait until the peer has read them and nothing is
 *     left in the socket, marker. With -g the peer reads nothing before all of a
 *     round has been written, so the writes meet a closed window, and coalesce:
 *     what they cost then does not depend on when the peer reads. Prints for each
 *     round: "round N BYTES NANOSECONDS". -c runs "COMMAND start" and "COMMAND
 *     stop" around each round. With -f the bytes go by so many connections, a
 *     write each in turn; not with -g. -z writes with MSG_ZEROCOPY, and a round
 *     lasts until the last page has been given back; -s sends a file's pages by
 *     sendfile().
 *   txcount put ADDR PORT FILE   send a file in writes of changing size,
 *     print the number of bytes
 *   txcount get ADDR PORT FILE   receive one
 *   txcount keep PORT DIR        the peer of put and get: DIR/down is what get
 *     gets, DIR/up is where put's bytes land
 *
 *   txcount tsc                  measure this machine's time stamp counter, kHz
 *
 * Static, so that it runs in a guest of another age than the host.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <linux/errqueue.h>
#include <linux/sockios.h>

#include "marker.h"

#define MIB (1 << 20)
/* Closes the window of a peer that does not read; nobody measures its writes */
#define PLUG (128 << 10)
#define MAX_FLOWS 1000

/* What the sender says first. */
struct hello {
	uint64_t warm;		/* bytes before the first round */
	uint64_t bytes;		/* bytes per round */
	char mode;		/* 's'ink, 'p'ut, 'g'et */
	char gate;		/* read a round when told to */
	char pad[6];
};

static char buf[MIB];

static void die(const char *what)
{
	fprintf(stderr, "txcount: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void write_all(int fd, const void *data, size_t len)
{
	while (len) {
		ssize_t n = write(fd, data, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			die("write");
		data = (const char *)data + n;
		len -= n;
	}
}

static void read_all(int fd, void *data, size_t len)
{
	while (len) {
		ssize_t n = read(fd, data, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			die(n ? "read" : "read: the peer has gone");
		data = (char *)data + n;
		len -= n;
	}
}

static int dial(const char *host, const char *port)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET,
				  .sin_port = htons(atoi(port)) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6,
				   .sin6_port = htons(atoi(port)) };
	int fd, err;

	if (inet_pton(AF_INET, host, &v4.sin_addr) == 1) {
		fd = socket(AF_INET, SOCK_STREAM, 0);
		err = connect(fd, (struct sockaddr *)&v4, sizeof(v4));
	} else if (inet_pton(AF_INET6, host, &v6.sin6_addr) == 1) {
		fd = socket(AF_INET6, SOCK_STREAM, 0);
		err = connect(fd, (struct sockaddr *)&v6, sizeof(v6));
	} else {
		fprintf(stderr, "txcount: %s is no address\n", host);
		exit(2);
	}
	if (err)
		die("connect");
	return fd;
}

/* Read and forget. */
static int swallow(int fd, uint64_t bytes)
{
	while (bytes) {
		size_t want = bytes < MIB ? bytes : MIB;
		ssize_t n = recv(fd, NULL, want, MSG_TRUNC);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		bytes -= n;
	}
	return 0;
}

/*
 * The gate: the peer reads nothing of a round before a datagram says that all
 * of it has been written.
 */
static int gate_open(uint16_t *port)
{
	struct sockaddr_in6 any = { .sin6_family = AF_INET6 };
	struct timeval limit = { .tv_sec = 20 };
	socklen_t len = sizeof(any);
	int zero = 0, fd = socket(AF_INET6, SOCK_DGRAM, 0);

	setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (bind(fd, (struct sockaddr *)&any, len) ||
	    getsockname(fd, (struct sockaddr *)&any, &len))
		die("bind");
	*port = any.sin6_port;
	return fd;
}

static void serve(int fd, const char *dir)
{
	struct hello hello;
	int file, gate = -1, small = 64 << 10;
	uint16_t port;
	char path[4096];
	ssize_t n;

	if (recv(fd, &hello, sizeof(hello), MSG_WAITALL) != sizeof(hello))
		exit(0);
	switch (hello.mode) {
	case 's':
		if (hello.gate) {
			gate = gate_open(&port);
			write_all(fd, &port, sizeof(port));
			/* What the peer's buffer takes is sent at once. */
			setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small,
				   sizeof(small));
		}
		if (swallow(fd, hello.warm))
			exit(0);
		write_all(fd, "", 1);
		for (;;) {
			char byte;

			if (gate >= 0 && recv(gate, &byte, 1, 0) != 1)
				exit(0);
			if (swallow(fd, hello.bytes +
					(hello.gate ? PLUG : 0)))
				exit(0);
			write_all(fd, "", 1);
		}
		break;
	case 'p':
		snprintf(path, sizeof(path), "%s/up", dir);
		file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
		if (file < 0)
			die(path);
		while ((n = read(fd, buf, sizeof(buf))) > 0)
			write_all(file, buf, n);
		if (n < 0)
			die("read");
		write_all(fd, "", 1);
		break;
	case 'g':
		snprintf(path, sizeof(path), "%s/down", dir);
		file = open(path, O_RDONLY);
		if (file < 0)
			die(path);
		while ((n = read(file, buf, sizeof(buf))) > 0)
			write_all(fd, buf, n);
		break;
	}
	exit(0);
}

static int sink(const char *port, const char *dir)
{
	struct sockaddr_in6 any = { .sin6_family = AF_INET6,
				    .sin6_port = htons(atoi(port)) };
	int one = 1, zero = 0, fd, s = socket(AF_INET6, SOCK_STREAM, 0);

	if (s < 0)
		die("socket");
	signal(SIGCHLD, SIG_IGN);
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
	if (bind(s, (struct sockaddr *)&any, sizeof(any)) || listen(s, 64))
		die("bind");
	while ((fd = accept(s, NULL, NULL)) >= 0) {
		if (!fork()) {
			close(s);
			signal(SIGCHLD, SIG_DFL);
			serve(fd, dir);
		}
		close(fd);
	}
	die("accept");
	return 1;
}

/* How to write, and what of it is still out */
static int zerocopy, file = -1;
static uint32_t lent[MAX_FLOWS];

/* Take back what MSG_ZEROCOPY has lent. */
static void take_back(int fd, uint32_t *out)
{
	char control[256];
	struct msghdr msg = { .msg_control = control };
	struct sock_extended_err *err;
	struct cmsghdr *c;

	while (*out) {
		struct pollfd p = { .fd = fd };

		msg.msg_controllen = sizeof(control);
		if (recvmsg(fd, &msg, MSG_ERRQUEUE) < 0) {
			if (errno != EAGAIN)
				die("MSG_ERRQUEUE");
			poll(&p, 1, 1000);
			continue;
		}
		for (c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
			err = (void *)CMSG_DATA(c);
			if (err->ee_origin == SO_EE_ORIGIN_ZEROCOPY)
				*out -= err->ee_data - err->ee_info + 1;
		}
	}
}

static void send_one(int fd, int flow, size_t len)
{
	const char *data = buf;

	if (file >= 0) {
		off_t off = 0;

		while (off < (off_t)len) {
			if (sendfile(fd, file, &off, len - off) <= 0)
				die("sendfile");
		}
		return;
	}
	if (!zerocopy) {
		write_all(fd, buf, len);
		return;
	}
	while (len) {
		ssize_t n = send(fd, data, len, MSG_ZEROCOPY);

		if (n < 0 && errno == ENOBUFS) {
			take_back(fd, &lent[flow]);
			continue;
		}
		if (n <= 0)
			die("MSG_ZEROCOPY");
		lent[flow]++;
		data += n;
		len -= n;
	}
}

static void send_bytes(const int *fd, int flows, uint64_t bytes, size_t size)
{
	int i;

	while (bytes) {
		size_t n = bytes < size ? bytes : size;

		for (i = 0; i < flows; i++)
			send_one(fd[i], i, n);
		bytes -= n;
	}
}

static void drain(const int *fd, int flows)
{
	char ack;
	int i, left;

	for (i = 0; i < flows; i++) {
		/* The peer answers when it has read all of it ... */
		read_all(fd[i], &ack, 1);
		/* ... and then its ACK has normally come too. */
		while (!ioctl(fd[i], SIOCOUTQ, &left) && left)
			usleep(1000);
		take_back(fd[i], &lent[i]);
	}
}

/* Pages that sendfile() sends */
static int make_file(void)
{
	int fd = memfd_create("txcount", 0);

	if (fd < 0)
		die("memfd_create");
	write_all(fd, buf, sizeof(buf));
	return fd;
}

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void run(const char *command, const char *what)
{
	char line[512];

	snprintf(line, sizeof(line), "%s %s", command, what);
	if (system(line))
		die(line);
}

/* A socket to the gate of the peer that FD is connected to. */
static int gate_dial(int fd, uint16_t port)
{
	struct sockaddr_in6 peer;
	socklen_t len = sizeof(peer);
	int gate;

	getpeername(fd, (struct sockaddr *)&peer, &len);
	peer.sin6_port = port;		/* where sin_port is, too */
	gate = socket(peer.sin6_family, SOCK_DGRAM, 0);
	if (gate < 0 || connect(gate, (struct sockaddr *)&peer, len))
		die("gate");
	return gate;
}

static int sender(int argc, char **argv)
{
	struct hello hello = { .bytes = 4 * MIB, .warm = 4 * MIB, .mode = 's' };
	const char *command = NULL;
	int opt, i, round, rounds = 1, gate = -1, room = 16 * MIB;
	int flows = 1, one = 1, fd[MAX_FLOWS], use_file = 0;
	size_t size = 65536;

	while ((opt = getopt(argc, argv, "w:n:u:r:gc:f:zs")) != -1) {
		uint64_t value = optarg ? strtoull(optarg, NULL, 0) : 0;

		switch (opt) {
		case 'w': size = value; break;
		case 'n': hello.bytes = value; break;
		case 'u': hello.warm = value; break;
		case 'r': rounds = value; break;
		case 'g': hello.gate = 1; break;
		case 'c': command = optarg; break;
		case 'f': flows = value; break;
		case 'z': zerocopy = 1; break;
		case 's': use_file = 1; break;
		default: return 2;
		}
	}
	if (argc - optind != 2 || size < 1 || size > sizeof(buf) || flows < 1 ||
	    flows > MAX_FLOWS || (flows > 1 && hello.gate)) {
		fprintf(stderr, "txcount: send [options] ADDR PORT\n");
		return 2;
	}
	memset(buf, 'p', sizeof(buf));
	if (use_file)
		file = make_file();
	/* Whole writes on each connection */
	if (flows > 1) {
		hello.bytes = (hello.bytes / flows + size - 1) / size * size;
		hello.warm = (hello.warm / flows + size - 1) / size * size;
	}
	for (i = 0; i < flows; i++) {
		fd[i] = dial(argv[optind], argv[optind + 1]);
		if (zerocopy && setsockopt(fd[i], SOL_SOCKET, SO_ZEROCOPY, &one,
					   sizeof(one)))
			die("SO_ZEROCOPY");
		write_all(fd[i], &hello, sizeof(hello));
	}
	if (hello.gate) {
		uint16_t port;

		read_all(fd[0], &port, sizeof(port));
		gate = gate_dial(fd[0], port);
		/* Room for all of a round, needs root. */
		if (setsockopt(fd[0], SOL_SOCKET, SO_SNDBUFFORCE, &room,
			       sizeof(room)))
			die("SO_SNDBUFFORCE");
	}
	send_bytes(fd, flows, hello.warm, size);
	drain(fd, flows);
	if (gate >= 0) {
		/* Once unmeasured, so that the pool has what a round takes. */
		send_bytes(fd, 1, hello.bytes + PLUG, size);
		write_all(gate, "", 1);
		drain(fd, 1);
	}
	for (round = 0; round < rounds; round++) {
		int64_t start;

		if (gate >= 0)
			send_bytes(fd, 1, PLUG, size);
		if (command)
			run(command, "start");
		start = now();
		marker_start_counting();
		send_bytes(fd, flows, hello.bytes, size);
		if (gate >= 0)
			write_all(gate, "", 1);
		drain(fd, flows);
		marker_stop_counting();
		start = now() - start;
		if (command)
			run(command, "stop");
		printf("round %d %llu %lld\n", round,
		       (unsigned long long)hello.bytes * flows,
		       (long long)start);
		fflush(stdout);
	}
	return 0;
}

static int put(const char *host, const char *port, const char *path)
{
	/* Sizes around pages, frags and skbs: the tail of each is an edge. */
	static const size_t sizes[] = {
		65536, 1, 4096, 32767, 1448, 100000, 128, 32768, 8192, 65537,
		4095, 262144, 13, 32769, 1024, 2897,
	};
	struct hello hello = { .mode = 'p' };
	int fd = dial(host, port), file = open(path, O_RDONLY);
	unsigned long long sum = 0;
	unsigned int i = 0;
	ssize_t n;
	char ack;

	if (file < 0)
		die(path);
	write_all(fd, &hello, sizeof(hello));
	while ((n = read(file, buf, sizes[i++ % 16])) > 0) {
		write_all(fd, buf, n);
		sum += n;
	}
	shutdown(fd, SHUT_WR);
	read_all(fd, &ack, 1);
	printf("%llu\n", sum);
	return 0;
}

static int get(const char *host, const char *port, const char *path)
{
	struct hello hello = { .mode = 'g' };
	int fd = dial(host, port);
	int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	unsigned long long sum = 0;
	ssize_t n;

	if (file < 0)
		die(path);
	write_all(fd, &hello, sizeof(hello));
	while ((n = read(fd, buf, sizeof(buf))) > 0) {
		write_all(file, buf, n);
		sum += n;
	}
	if (n < 0)
		die("read");
	printf("%llu\n", sum);
	return 0;
}

static uint64_t tsc(void)
{
	return __builtin_ia32_rdtsc();
}

/* Both clocks at one moment: the try that took least is the one to trust. */
static int64_t both(uint64_t *counter)
{
	uint64_t best = ~0ULL;
	int64_t at = 0;
	int i;

	for (i = 0; i < 50; i++) {
		uint64_t before = tsc();
		int64_t t = now();
		uint64_t took = tsc() - before;

		if (took < best) {
			best = took;
			*counter = before + took / 2;
			at = t;
		}
	}
	return at;
}

static int measure_tsc(void)
{
	uint64_t c0, c1;
	int64_t t0, t1;

	t0 = both(&c0);
	usleep(200000);
	t1 = both(&c1);
	printf("%llu\n", (unsigned long long)((c1 - c0) * 1e6 / (t1 - t0)));
	return 0;
}

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	if (argc == 3 && !strcmp(argv[1], "sink"))
		return sink(argv[2], ".");
	if (argc == 4 && !strcmp(argv[1], "keep"))
		return sink(argv[2], argv[3]);
	if (argc > 2 && !strcmp(argv[1], "send"))
		return sender(argc - 1, argv + 1);
	if (argc == 5 && !strcmp(argv[1], "put"))
		return put(argv[2], argv[3], argv[4]);
	if (argc == 5 && !strcmp(argv[1], "get"))
		return get(argv[2], argv[3], argv[4]);
	if (argc == 2 && !strcmp(argv[1], "tsc"))
		return measure_tsc();
	fprintf(stderr, "txcount: sink, keep, send, put, get or tsc; see its source\n");
	return 2;
}
