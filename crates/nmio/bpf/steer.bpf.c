/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Decides which received packets go to the server's rings. All other packets
 * pass to the kernel.
 *
 * shared   The server uses the interface's addresses. The ring gets unfragmented
 *          TCP and UDP packets to these addresses and the served ports. It also
 *          gets ICMP errors about packets that the server sent.
 * own      The addresses belong to the server alone. The ring gets every IP
 *          packet to them, and the ARP packets and neighbour solicitations for
 *          them.
 *
 * In both modes the frame's destination must be the interface's MAC address. ARP
 * packets and neighbour solicitations may also go to a group address. The frame
 * must be untagged, or have one 802.1Q tag of a configured VLAN.
 *
 * A packet goes to the ring of the queue on which it arrived. Packets that cannot
 * be parsed, and packets on a queue without a ring, pass to the kernel.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

/* The macros that this program needs from libbpf's <bpf/bpf_helpers.h>. */
#define SEC(name) __attribute__((section(name), used))
#define MAP_UINT(name, value) int (*name)[value]
#define MAP_TYPE(name, value) typeof(value) *name
#define ALWAYS_INLINE inline __attribute__((always_inline))
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define BE16(x) ((__be16)__builtin_bswap16(x))
#define BE32(x) ((__be32)__builtin_bswap32(x))
#else
#define BE16(x) ((__be16)(x))
#define BE32(x) ((__be32)(x))
#endif
#define NULL ((void *)0)
#define true 1
#define false 0
typedef _Bool bool;

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) =
	(void *)BPF_FUNC_map_lookup_elem;
static long (*const bpf_redirect_map)(void *map, __u64 key, __u64 flags) =
	(void *)BPF_FUNC_redirect_map;

/* Sizes of the tables. The Rust constants of these names have the same values. */
#define MAX_QUEUES 256
#define MAX_ADDRESSES 256
#define MAX_SERVICES 256
/* Maximum number of IPv6 extension headers to skip. The crate ip has the same limit. */
#define MAX_EXTENSIONS 6

#define FRAGMENT_BITS 0x3fff /* more-fragments flag and offset (RFC 791, section 3.1) */
#define FRAGMENT_BITS_V6 0xfff9 /* the same for IPv6 (RFC 8200, section 4.5) */

/* An IPv6 address, or an IPv4 one as ::ffff:a.b.c.d. */
struct address {
	__be32 word[4];
};

struct service {
	__u16 protocol; /* IPPROTO_TCP or IPPROTO_UDP */
	__be16 port;
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_XSKMAP);
	MAP_UINT(max_entries, MAX_QUEUES);
	MAP_UINT(key_size, 4);
	MAP_UINT(value_size, 4);
} xsks SEC(".maps");

struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_UINT(max_entries, MAX_ADDRESSES);
	MAP_TYPE(key, struct address);
	MAP_TYPE(value, __u32);
} addresses SEC(".maps");

struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_UINT(max_entries, MAX_SERVICES);
	MAP_TYPE(key, struct service);
	MAP_TYPE(value, __u32);
} services SEC(".maps");

/* steer.rs writes this structure before it loads the program, and again when the
 * addresses change. The first IPv4 address and the first service are also in the
 * maps. Most servers have only one of each, or use the first one most, and
 * comparing with a variable costs less than a lookup in a map. */
volatile struct {
	__u32 own; /* 1 for own mode, 0 for shared */
	__be32 first_v4; /* the first IPv4 address; 0 if there is none */
	struct service first_service; /* protocol 0 if there is none */
	__u16 mac[3]; /* the interface's MAC address, in network byte order */
	__u16 _unused;
	__u8 vlans[4096 / 8]; /* for a configured VLAN, bit ID % 8 of byte ID / 8 is set */
} rules SEC(".data.rules") = { 0 };

struct vlan {
	__be16 tag;
	__be16 protocol;
};

struct ports {
	__be16 source;
	__be16 destination;
};

struct extension {
	__u8 next;
	__u8 length; /* in units of 8 bytes, without the first 8 bytes */
	__be16 fragment; /* in a fragment header, whose length byte is 0 */
};

/* An ARP packet for IPv4 over Ethernet (RFC 826). */
struct arp {
	__be16 hardware;
	__be16 protocol;
	__u8 hardware_length;
	__u8 protocol_length;
	__be16 operation;
	__u8 sender[10];
	__u8 target_hardware[6];
	__u8 target[4];
};

/* The header of ICMP (RFC 792) and ICMPv6 (RFC 4443). Both have this layout. */
struct icmp {
	__u8 type;
	__u8 code;
	__be16 checksum;
	__be32 rest;
};

/* Message types of ICMP (RFC 792) and of ICMPv6 (RFC 4443, section 4; RFC 4861,
 * section 4.3). */
#define ICMP_UNREACHABLE 3
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETER_PROBLEM 12
#define ICMPV6_UNREACHABLE 1
#define ICMPV6_PARAMETER_PROBLEM 4 /* the last error type; types 2 and 3 are errors, too */
#define ICMPV6_SOLICITATION 135

struct solicitation {
	struct icmp header;
	struct in6_addr target;
};

static ALWAYS_INLINE bool is_our_mac(const __u8 *mac)
{
	const __u16 *words = (const void *)mac;

	return words[0] == rules.mac[0] && words[1] == rules.mac[1] &&
	       words[2] == rules.mac[2];
}

static ALWAYS_INLINE bool is_our_vlan(__be16 tag)
{
	__u32 id = BE16(tag);

	/* The compiler must not move the mask in front of the byte swap, because
	 * most kernels' verifiers know no bounds of a swapped value. */
	__asm__ volatile("" : "+r"(id));
	id &= 0xfff;
	return rules.vlans[id / 8] >> (id % 8) & 1;
}

static ALWAYS_INLINE bool is_ours(const struct address *address)
{
	return bpf_map_lookup_elem(&addresses, address) != NULL;
}

static ALWAYS_INLINE bool is_ours_v4(__be32 v4)
{
	struct address mapped = { { 0, 0, BE32(0xffff), v4 } };

	return (v4 == rules.first_v4 && v4 != 0) || is_ours(&mapped);
}

static ALWAYS_INLINE bool is_ours_v6(const struct in6_addr *v6)
{
	struct address copy = { { v6->s6_addr32[0], v6->s6_addr32[1],
				  v6->s6_addr32[2], v6->s6_addr32[3] } };

	return is_ours(&copy);
}

static ALWAYS_INLINE bool is_served(__u8 protocol, __be16 port)
{
	struct service key = { protocol, port };

	if (protocol == rules.first_service.protocol && port == rules.first_service.port &&
	    protocol != 0)
		return true;
	return (protocol == IPPROTO_TCP || protocol == IPPROTO_UDP) &&
	       bpf_map_lookup_elem(&services, &key) != NULL;
}

/* Returns the end of the IPv6 extension headers, or NULL if the packet ends
 * earlier. Skips the header of an atomic fragment (RFC 6946), but stops at any
 * other fragment header. */
static ALWAYS_INLINE void *skip_extensions(void *next, void *end, __u8 *protocol)
{
#pragma unroll
	for (int i = 0; i < MAX_EXTENSIONS; i++) {
		struct extension *extension = next;

		if (*protocol != IPPROTO_HOPOPTS && *protocol != IPPROTO_ROUTING &&
		    *protocol != IPPROTO_DSTOPTS && *protocol != IPPROTO_FRAGMENT)
			return next;
		if ((void *)(extension + 1) > end)
			return NULL;
		if (*protocol == IPPROTO_FRAGMENT &&
		    (extension->length || extension->fragment & BE16(FRAGMENT_BITS_V6)))
			return next;
		*protocol = extension->next;
		/* The volatile access reads the length again. Otherwise the verifier
		 * would know that it is 0 for some kinds, and would check every
		 * sequence of kinds separately. */
		next += (*(volatile __u8 *)&extension->length + 1) * 8;
	}
	return next;
}

static ALWAYS_INLINE bool is_served_source(__u8 protocol, void *transport, void *end)
{
	struct ports *ports = transport;

	return (void *)(ports + 1) <= end && is_served(protocol, ports->source);
}

/* Returns true if an ICMP error is about a packet that the server sent. */
static ALWAYS_INLINE bool is_our_error_v4(void *transport, void *end)
{
	struct icmp *icmp = transport;
	struct iphdr *sent = transport + sizeof(*icmp);

	if ((void *)(sent + 1) > end)
		return false;
	if (icmp->type != ICMP_UNREACHABLE && icmp->type != ICMP_TIME_EXCEEDED &&
	    icmp->type != ICMP_PARAMETER_PROBLEM)
		return false;
	return is_ours_v4(sent->saddr) &&
	       is_served_source(sent->protocol, (void *)sent + sent->ihl * 4, end);
}

static ALWAYS_INLINE bool is_our_error_v6(void *transport, void *end)
{
	struct icmp *icmp = transport;
	struct ipv6hdr *sent = transport + sizeof(*icmp);
	__u8 protocol;
	void *next;

	if ((void *)(sent + 1) > end)
		return false;
	if (icmp->type < ICMPV6_UNREACHABLE || icmp->type > ICMPV6_PARAMETER_PROBLEM)
		return false;
	protocol = sent->nexthdr;
	next = skip_extensions(sent + 1, end, &protocol);
	return next && is_ours_v6(&sent->saddr) && is_served_source(protocol, next, end);
}

static ALWAYS_INLINE bool steers_v4(void *data, void *end)
{
	struct iphdr *ip = data;
	struct ports *ports;

	if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl < 5 ||
	    !is_ours_v4(ip->daddr))
		return false;
	if (rules.own)
		return true;
	if (ip->frag_off & BE16(FRAGMENT_BITS))
		return false;
	ports = data + ip->ihl * 4;
	if (ip->protocol == IPPROTO_ICMP)
		return is_our_error_v4(ports, end);
	return (void *)(ports + 1) <= end && is_served(ip->protocol, ports->destination);
}

/* Returns true for a neighbour solicitation for one of the server's addresses,
 * sent to a solicited-node multicast group ff02::1:ffxx:xxxx (RFC 4861, section
 * 4.3; RFC 4291, section 2.7.1). */
static ALWAYS_INLINE bool is_solicitation(void *data, void *end)
{
	struct ipv6hdr *ip = data;
	struct solicitation *ns = (void *)(ip + 1);

	return (void *)(ns + 1) <= end && ip->version == 6 && ip->nexthdr == IPPROTO_ICMPV6 &&
	       ip->daddr.s6_addr32[0] == BE32(0xff020000) && ip->daddr.s6_addr32[1] == 0 &&
	       ip->daddr.s6_addr32[2] == BE32(1) && ip->daddr.s6_addr[12] == 0xff &&
	       ns->header.type == ICMPV6_SOLICITATION && is_ours_v6(&ns->target);
}

static ALWAYS_INLINE bool steers_v6(void *data, void *end)
{
	struct ipv6hdr *ip = data;
	struct ports *ports;
	__u8 protocol;

	if ((void *)(ip + 1) > end || ip->version != 6)
		return false;
	if (!is_ours_v6(&ip->daddr))
		return rules.own && is_solicitation(ip, end);
	if (rules.own)
		return true;
	protocol = ip->nexthdr;
	ports = skip_extensions(ip + 1, end, &protocol);
	if (!ports)
		return false;
	if (protocol == IPPROTO_ICMPV6)
		return is_our_error_v6(ports, end);
	return (void *)(ports + 1) <= end && is_served(protocol, ports->destination);
}

static ALWAYS_INLINE bool steers_arp(void *data, void *end)
{
	struct arp *arp = data;
	__be32 target;

	if (!rules.own || (void *)(arp + 1) > end || arp->protocol != BE16(ETH_P_IP) ||
	    arp->hardware_length != ETH_ALEN || arp->protocol_length != sizeof(target))
		return false;
	__builtin_memcpy(&target, arp->target, sizeof(target));
	return is_ours_v4(target);
}

SEC("xdp")
int steer(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	__be16 protocol;
	bool to_us, ours;

	if ((void *)(eth + 1) > end)
		return XDP_PASS;
	to_us = is_our_mac(eth->h_dest);
	if (!to_us && !(eth->h_dest[0] & 1))
		return XDP_PASS;
	protocol = eth->h_proto;
	data = eth + 1;
	if (protocol == BE16(ETH_P_8021Q)) {
		struct vlan *vlan = data;

		if ((void *)(vlan + 1) > end || !is_our_vlan(vlan->tag))
			return XDP_PASS;
		protocol = vlan->protocol;
		data = vlan + 1;
	}
	if (protocol == BE16(ETH_P_IP))
		ours = to_us && steers_v4(data, end);
	else if (protocol == BE16(ETH_P_IPV6))
		ours = to_us ? steers_v6(data, end) : rules.own && is_solicitation(data, end);
	else if (protocol == BE16(ETH_P_ARP))
		ours = steers_arp(data, end);
	else
		ours = false;
	return ours ? bpf_redirect_map(&xsks, ctx->rx_queue_index, XDP_PASS) : XDP_PASS;
}

const char license_name[] SEC("license") = "MIT";
