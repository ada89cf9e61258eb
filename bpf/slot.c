//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * For tests of ranks beside others: libxdp puts this program into its dispatcher, and a rank's takes
 * its place there, by its name.
 */
#include "kernel.h"

char __license[] SEC("license") = "Dual BSD/GPL";

SEC("xdp.frags")
int xdprma_slot(struct xdp_md *ctx)
{
	return XDP_PASS;
}
