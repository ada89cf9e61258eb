/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Finds the UDP payload of a frame that is addressed to one of our ports. */
#ifndef XDPRMA_PARSE_H
#define XDPRMA_PARSE_H

#include "kernel.h"

enum parsed {
	PARSED_OTHER,      /* another protocol or port, or headers we do not read */
	PARSED_FRAGMENT,   /* a fragment of an IPv4 UDP datagram; its port is not known */
	PARSED_BAD_LENGTH, /* to our port, but the lengths contradict each other */
	PARSED_OURS,
};

struct ports {
	__u16 base;
	__u16 count; /* one port a receive queue */
};

struct datagram {
	__u32 offset; /* of the UDP payload from the frame's start */
	__u32 len;    /* of the UDP payload */
};

/*
 * Reads Ethernet with up to two VLAN tags, IPv4 with options or IPv6 without
 * extension headers, and UDP. Offsets are scalars added to the frame's start
 * each time: subtracting packet pointers takes CAP_PERFMON.
 */
static __always_inline enum parsed parse(struct xdp_md *ctx, const struct ports *ports,
					 struct datagram *out)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u64 total = bpf_xdp_get_buff_len(ctx);
	__u32 at = sizeof(struct ethhdr);
	__u32 ip_payload;

	struct ethhdr *eth = data;
	if ((void *)(eth + 1) > end)
		return PARSED_OTHER;
	__be16 proto = eth->proto;

#pragma unroll
	for (int i = 0; i < 2; i++) {
		if (proto != bpf_htons(ETH_P_8021Q) && proto != bpf_htons(ETH_P_8021AD))
			break;
		struct vlanhdr *vlan = data + at;
		if ((void *)(vlan + 1) > end)
			return PARSED_OTHER;
		proto = vlan->proto;
		at += sizeof(*vlan);
	}

	if (proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = data + at;
		if ((void *)(ip + 1) > end)
			return PARSED_OTHER;
		__u32 header = (ip->version_ihl & 0xf) * 4;
		if (ip->version_ihl >> 4 != 4 || header < sizeof(*ip) ||
		    ip->protocol != IPPROTO_UDP)
			return PARSED_OTHER;
		if (ip->frag_off & bpf_htons(0x3fff)) /* more to come, or an offset */
			return PARSED_FRAGMENT;
		__u32 len = bpf_ntohs(ip->tot_len);
		ip_payload = len < header ? 0 : len - header;
		at += header;
	} else if (proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip6 = data + at;
		if ((void *)(ip6 + 1) > end)
			return PARSED_OTHER;
		if (bpf_ntohl(ip6->version_class_flow) >> 28 != 6 || ip6->nexthdr != IPPROTO_UDP)
			return PARSED_OTHER;
		ip_payload = bpf_ntohs(ip6->payload_len);
		at += sizeof(*ip6);
	} else {
		return PARSED_OTHER;
	}

	struct udphdr *udp = data + at;
	if ((void *)(udp + 1) > end)
		return PARSED_OTHER;
	if ((__u16)(bpf_ntohs(udp->dest) - ports->base) >= ports->count)
		return PARSED_OTHER;
	/* A frame may be longer than its datagram: short ones are padded. */
	__u32 len = bpf_ntohs(udp->len);
	if (len < sizeof(*udp) || len != ip_payload || at + len > total)
		return PARSED_BAD_LENGTH;

	out->offset = at + sizeof(*udp);
	out->len = len - sizeof(*udp);
	return PARSED_OURS;
}

#endif
