// SPDX-License-Identifier: GPL-2.0
/*
 * Count the instructions that a guest executes between two markers, in total
 * and for each symbol of its kernel.
 *
 * Why: an x86 guest of QEMU's TCG has no performance counters. Its instruction
 * count is the one figure on such a machine that does not depend on what else
 * the machine does.
 *
 * A marker is an instruction that does nothing, a NOP with an odd displacement
 * (see marker.h); any program in the guest can execute one, without privileges
 * and without a system call. Each instruction counts into the slot of the
 * kernel symbol it belongs to: QEMU inlines that addition, so the breakdown
 * costs no more than the total would.
 *
 * Debian ships QEMU without its plugin header. The few declarations needed
 * are below; they are the stable interface of plugin API 1 (QEMU 4.2 to 8.2).
 *
 * Arguments: out=FILE  where the records go, one line each:
 *			"stop ID TOTAL USER REPMOVS", then, with profile=on,
 *			"sym COUNT NAME" lines
 *	      map=FILE  System.map of a kernel booted with nokaslr
 *	      profile=on
 *
 * One vCPU only: the inlined additions are not atomic.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "marker.h"

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef struct {
	const char *target_name;
	struct { int min, cur; } version;
	bool system_emulation;
	union { struct { int smp_vcpus, max_vcpus; } system; };
} qemu_info_t;
enum { QEMU_PLUGIN_CB_NO_REGS };
enum { QEMU_PLUGIN_INLINE_ADD_U64 };

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
		void (*cb)(qemu_plugin_id_t id, struct qemu_plugin_tb *tb));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *
qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t idx);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *insn,
		int op, void *ptr, uint64_t imm);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn,
		void (*cb)(unsigned int vcpu, void *data), int flags,
		void *data);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

/* Slots that are no symbols come first. */
enum { USER, MODULE, OTHER, FIRST_SYMBOL };

struct slot {
	uint64_t addr;		/* where the symbol starts */
	uint64_t count;
	uint64_t started;	/* the count at the start marker */
	uint64_t paused;	/* the count when counting was last paused */
	char *name;
};

static struct slot *slot;
static size_t slots = FIRST_SYMBOL;
static uint64_t text_end, repmovs, repmovs_started, repmovs_paused;
static bool profile;
static FILE *out;

static int by_addr(const void *a, const void *b)
{
	const struct slot *x = a, *y = b;

	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static int by_count(const void *a, const void *b)
{
	const struct slot *x = *(struct slot * const *)a;
	const struct slot *y = *(struct slot * const *)b;
	uint64_t p = x->count - x->started, q = y->count - y->started;

	return p < q ? 1 : p > q ? -1 : 0;
}

static struct slot *find_slot(uint64_t addr)
{
	size_t low = FIRST_SYMBOL, high = slots;

	if (addr < 1ULL << 47)
		return &slot[USER];
	if (addr >= 0xffffffffa0000000 && addr < 0xffffffffff000000)
		return &slot[MODULE];
	if (high == low || addr < slot[low].addr || addr >= text_end)
		return &slot[OTHER];
	while (high - low > 1) {
		size_t mid = (low + high) / 2;

		if (slot[mid].addr <= addr)
			low = mid;
		else
			high = mid;
	}
	return &slot[low];
}

static bool read_map(const char *path)
{
	FILE *map = fopen(path, "r");
	char type, name[512];
	uint64_t addr;

	if (!map)
		return false;
	while (fscanf(map, "%lx %c %511s", &addr, &type, name) == 3) {
		if (!strcmp(name, "_etext"))
			text_end = addr;
		if (!strchr("tTwW", type) || !strncmp(name, "__pfx_", 6))
			continue;
		slot = realloc(slot, (slots + 1) * sizeof(*slot));
		slot[slots++] = (struct slot){ .addr = addr,
					       .name = strdup(name) };
	}
	fclose(map);
	qsort(slot + FIRST_SYMBOL, slots - FIRST_SYMBOL, sizeof(*slot), by_addr);
	return text_end;
}

static void marker_start(unsigned int vcpu, void *data)
{
	size_t i;

	for (i = 0; i < slots; i++)
		slot[i].started = slot[i].count;
	repmovs_started = repmovs;
}

static void marker_pause(unsigned int vcpu, void *data)
{
	size_t i;

	for (i = 0; i < slots; i++)
		slot[i].paused = slot[i].count;
	repmovs_paused = repmovs;
}

/* As if it had been executed before the start */
static void marker_resume(unsigned int vcpu, void *data)
{
	size_t i;

	for (i = 0; i < slots; i++)
		slot[i].started += slot[i].count - slot[i].paused;
	repmovs_started += repmovs - repmovs_paused;
}

static void marker_stop(unsigned int vcpu, void *data)
{
	static struct slot **sorted;
	uint64_t total = 0;
	size_t i;

	for (i = 0; i < slots; i++)
		total += slot[i].count - slot[i].started;
	fprintf(out, "stop %lu %lu %lu %lu\n", (uintptr_t)data, total,
		slot[USER].count - slot[USER].started,
		repmovs - repmovs_started);
	if (profile) {
		if (!sorted)
			sorted = malloc(slots * sizeof(*sorted));
		for (i = 0; i < slots; i++)
			sorted[i] = &slot[i];
		qsort(sorted, slots, sizeof(*sorted), by_count);
		for (i = 0; i < slots; i++) {
			uint64_t n = sorted[i]->count - sorted[i]->started;

			if (!n)
				break;
			fprintf(out, "sym %lu %s\n", n, sorted[i]->name);
		}
	}
	fflush(out);
}

static void translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	size_t i, n = qemu_plugin_tb_n_insns(tb);

	for (i = 0; i < n; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		const uint8_t *code = qemu_plugin_insn_data(insn);
		size_t size = qemu_plugin_insn_size(insn);
		uint32_t disp;

		qemu_plugin_register_vcpu_insn_exec_inline(insn,
			QEMU_PLUGIN_INLINE_ADD_U64,
			&find_slot(qemu_plugin_insn_vaddr(insn))->count, 1);
		/* rep movsb: one iteration counts as one instruction */
		if (size == 2 && code[0] == 0xf3 && code[1] == 0xa4)
			qemu_plugin_register_vcpu_insn_exec_inline(insn,
				QEMU_PLUGIN_INLINE_ADD_U64, &repmovs, 1);
		if (size != 7 || code[0] != 0x0f || code[1] != 0x1f ||
		    code[2] != 0x80)
			continue;
		memcpy(&disp, code + 3, sizeof(disp));
		if (disp >> 16 != MARKER_MAGIC)
			continue;
		qemu_plugin_register_vcpu_insn_exec_cb(insn,
			disp & MARKER_STOP ? marker_stop :
			disp & MARKER_PAUSE ? marker_pause :
			disp & MARKER_RESUME ? marker_resume : marker_start,
			QEMU_PLUGIN_CB_NO_REGS,
			(void *)(uintptr_t)(disp & (MARKER_STOP - 1)));
	}
}

__attribute__((visibility("default")))
int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info,
			int argc, char **argv)
{
	const char *map = NULL;
	int i;

	slot = calloc(FIRST_SYMBOL, sizeof(*slot));
	slot[USER].name = "[user]";
	slot[MODULE].name = "[module]";
	slot[OTHER].name = "[other]";
	for (i = 0; i < argc; i++) {
		if (!strncmp(argv[i], "out=", 4)) {
			out = fopen(argv[i] + 4, "w");
		} else if (!strncmp(argv[i], "map=", 4)) {
			map = argv[i] + 4;
		} else if (!strncmp(argv[i], "profile=", 8)) {
			profile = !strcmp(argv[i] + 8, "on");
		}
	}
	/* Markers go through all slots: have no more than it takes. */
	if (profile && map && !read_map(map)) {
		fprintf(stderr, "insn plugin: %s is no System.map\n", map);
		return -1;
	}
	if (!out) {
		fprintf(stderr, "insn plugin: out=FILE cannot be written\n");
		return -1;
	}
	if (info->system_emulation && info->system.max_vcpus > 1) {
		fprintf(stderr, "insn plugin: it can count one vCPU only\n");
		return -1;
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
	return 0;
}
