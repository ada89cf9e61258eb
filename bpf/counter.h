/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The fates of frames. */
#ifndef XDPRMA_COUNTER_H
#define XDPRMA_COUNTER_H

/* Indexes of `counters`. User space takes the names from here, through BTF. */
enum counter {
	COUNTER_PASSED,          /* to the kernel: not addressed to our ports at our address */
	COUNTER_FRAGMENT,        /* to the kernel: a fragment of an IPv4 UDP datagram to our address */
	COUNTER_REDIRECTED,      /* to the socket of the frame's receive queue */
	COUNTER_BAD_LENGTH,      /* dropped: IP, UDP and frame lengths contradict each other */
	COUNTER_TOO_SHORT,       /* dropped: no room for our header */
	COUNTER_SPLIT_HEADER,    /* dropped: our header is not in the frame's first buffer */
	COUNTER_BAD_MAGIC,       /* dropped */
	COUNTER_BAD_VERSION,     /* dropped */
	COUNTER_UNKNOWN_KIND,    /* dropped */
	COUNTER_UNKNOWN_SESSION, /* dropped */
	COUNTER_OTHER_JOB,       /* dropped: a hello of another job, or of no hello's length */
	COUNTER_BAD_CODE,        /* dropped: a handshake that nobody made who has the job's key */
	COUNTER_HELLO_LIMITED,   /* dropped: more handshakes than the limit on their rate */
	COUNTER_NO_SOCKET,       /* to the kernel: no socket on the frame's receive queue */
	COUNTER_JOINED,          /* to the kernel, which takes them apart: sent to the UDP socket, or several frames in one */
	COUNTER_SOCKET,          /* to the kernel: to a rank that shares the program, and no express frame */
	/* Express frames. Functions return one of these to say what becomes of a request, or of an answer. */
	COUNTER_EXPRESS_EXECUTED,     /* and answered */
	COUNTER_EXPRESS_REPEATED,     /* answered: executed before */
	COUNTER_EXPRESS_BAD_FORM,     /* dropped: contradicts the protocol */
	COUNTER_EXPRESS_BAD_CHECKSUM, /* dropped: damaged on the way */
	COUNTER_EXPRESS_BAD_CODE,     /* dropped: damaged, or not of its session's peer */
	COUNTER_EXPRESS_STALE,        /* dropped: of an exchange that is not the next */
	COUNTER_EXPRESS_BUSY,         /* dropped: of an exchange that is under way */
	COUNTER_EXPRESS_USER,         /* to the socket, like all that follow: asks for it */
	COUNTER_EXPRESS_NO_SLOT,      /* its session has none */
	COUNTER_EXPRESS_PATH,         /* from elsewhere, or with IPv4 options */
	COUNTER_EXPRESS_NO_WINDOW,    /* of no window in reach */
	COUNTER_EXPRESS_NO_ACCESS,    /* of an origin that may not do that with the window */
	COUNTER_EXPRESS_BOUNDS,       /* outside of the window, or not in one page of it */
	COUNTER_EXPRESS_OPERATION,    /* with a record that is not executed here */
	COUNTER_EXPRESS_LOCKED,       /* the lock is not free */
	COUNTER_EXPRESS_INTERRUPTED,  /* others were in the way all the time */
	COUNTER_EXPRESS_AWAITED,      /* executed, now or before; requests wait for the lock, or somebody for the notification */
	COUNTER_EXPRESS_NO_ROOM,      /* an answer, for which the ring has no room */
	COUNTER_EXPRESS_HANDED,       /* to the ring: an answer */
	COUNTERS,
};

#endif
