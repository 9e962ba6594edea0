/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Markers for the instruction counting plugin: a NOP whose displacement says
 * what it is. Executed by programs in the guest, seen by QEMU.
 */
#ifndef LAB_MARKER_H
#define LAB_MARKER_H

#define MARKER_MAGIC	0x5046		/* upper half of the displacement */
#define MARKER_STOP	0x8000
/* What comes between these two is left out: not the machine's work, but what a
 * software model does for hardware (hns3_sim has them, too).
 */
#define MARKER_PAUSE	0x4000
#define MARKER_RESUME	0x2000

/* The memory clobber keeps the compiler from moving work across. */
#define MARKER(disp)							\
	asm volatile(".byte 0x0f, 0x1f, 0x80; .long %c0"		\
		     : : "i" (MARKER_MAGIC << 16 | (disp)) : "memory")

static inline void marker_start_counting(void)
{
	MARKER(0);
}

static inline void marker_stop_counting(void)
{
	MARKER(MARKER_STOP);
}

#endif
