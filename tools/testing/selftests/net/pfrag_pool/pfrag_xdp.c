// SPDX-License-Identifier: GPL-2.0
/* Hold an XDP program or an AF_XDP socket on a device until a signal comes.
 *   pfrag_xdp DEV drv|generic	XDP_PASS
 *   pfrag_xdp DEV xsk [QUEUE]	an AF_XDP socket, zero copy where it can
 */
#include <errno.h>
#include <error.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef AF_XDP
#define AF_XDP 44
#endif
#ifndef SOL_XDP
#define SOL_XDP 283
#endif

#define FRAMES		64
#define FRAME_SIZE	4096

static int bpf(int cmd, union bpf_attr *attr)
{
	return syscall(__NR_bpf, cmd, attr, sizeof(*attr));
}

static int load_pass(void)
{
	const struct bpf_insn pass[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .imm = XDP_PASS },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	union bpf_attr attr = {
		.prog_type = BPF_PROG_TYPE_XDP,
		.insns = (unsigned long)pass,
		.insn_cnt = 2,
		.license = (unsigned long)"GPL",
	};

	return bpf(BPF_PROG_LOAD, &attr);
}

static void attach_prog(int ifindex, unsigned int flags)
{
	union bpf_attr attr = {};
	int prog = load_pass();

	if (prog < 0)
		error(1, errno, "load an XDP program");
	attr.link_create.prog_fd = prog;
	attr.link_create.target_ifindex = ifindex;
	attr.link_create.attach_type = BPF_XDP;
	attr.link_create.flags = flags;
	if (bpf(BPF_LINK_CREATE, &attr) < 0)
		error(1, errno, "attach an XDP program");
}

static const char *attach_socket(int ifindex, int queue)
{
	struct xdp_umem_reg reg = {
		.len = FRAMES * FRAME_SIZE,
		.chunk_size = FRAME_SIZE,
	};
	struct sockaddr_xdp addr = {
		.sxdp_family = AF_XDP,
		.sxdp_ifindex = ifindex,
		.sxdp_queue_id = queue,
		.sxdp_flags = XDP_ZEROCOPY,
	};
	int ring = FRAMES, fd;
	void *umem;

	umem = mmap(NULL, reg.len, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	reg.addr = (unsigned long)umem;
	fd = socket(AF_XDP, SOCK_RAW, 0);
	if (fd < 0)
		error(1, errno, "AF_XDP socket");
	if (setsockopt(fd, SOL_XDP, XDP_UMEM_REG, &reg, sizeof(reg)) ||
	    setsockopt(fd, SOL_XDP, XDP_UMEM_FILL_RING, &ring, sizeof(ring)) ||
	    setsockopt(fd, SOL_XDP, XDP_UMEM_COMPLETION_RING, &ring,
		       sizeof(ring)) ||
	    setsockopt(fd, SOL_XDP, XDP_RX_RING, &ring, sizeof(ring)) ||
	    setsockopt(fd, SOL_XDP, XDP_TX_RING, &ring, sizeof(ring)))
		error(1, errno, "AF_XDP rings");
	if (!bind(fd, (struct sockaddr *)&addr, sizeof(addr)))
		return "zero copy";
	addr.sxdp_flags = XDP_COPY;
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)))
		error(1, errno, "bind an AF_XDP socket");
	return "copy";
}

int main(int argc, char **argv)
{
	const char *how = "";
	sigset_t set;
	int ifindex, sig;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);

	if (argc < 3)
		error(2, 0, "usage: DEV drv|generic|xsk [QUEUE]");
	ifindex = if_nametoindex(argv[1]);
	if (!ifindex)
		error(1, errno, "%s", argv[1]);
	if (!strcmp(argv[2], "drv"))
		attach_prog(ifindex, XDP_FLAGS_DRV_MODE);
	else if (!strcmp(argv[2], "generic"))
		attach_prog(ifindex, XDP_FLAGS_SKB_MODE);
	else if (!strcmp(argv[2], "xsk"))
		how = attach_socket(ifindex, argc > 3 ? atoi(argv[3]) : 0);
	else
		error(2, 0, "unknown mode '%s'", argv[2]);

	printf("attached %s\n", how);
	fflush(stdout);
	sigwait(&set, &sig);
	return 0;
}
