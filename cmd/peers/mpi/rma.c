/*
 * What `xdprma perf` measures, with an MPI library: one-sided operations between
 * rank 0, the origin, and rank 1, or of all ranks, messages and collectives. Usage: rma TEST BYTES WINDOW.
 * Prints test, bytes, window, median and 99th percentile in us, and 10^6
 * operations a second; 0 where a figure does not apply.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	SAMPLES = 200000,
	WARM = 200,
	WARM_TOGETHER = 5,
	TRIALS = 5,
	PATIENCE = 3, /* seconds for the library to end: with more ranks than processors some take minutes */
};

static const double TIME = 0.4; /* seconds of a timed loop */

static MPI_Win win;
static int rank, ranks, bytes, window;
static char *origin, *result;
static double sample[SAMPLES], gathered[SAMPLES];

static void put(int at) { MPI_Put(origin + at, bytes, MPI_BYTE, 1, at, bytes, MPI_BYTE, win); }
static void get(int at) { MPI_Get(result + at, bytes, MPI_BYTE, 1, at, bytes, MPI_BYTE, win); }
static void accumulate(int at)
{
	MPI_Accumulate(origin + at, bytes / 8, MPI_INT64_T, 1, at, bytes / 8, MPI_INT64_T, MPI_SUM, win);
}
static void fetch(int at) { MPI_Fetch_and_op(origin, result + at, MPI_INT64_T, 1, at, MPI_SUM, win); }
static void swap(int at) { MPI_Compare_and_swap(origin, origin + 8, result + at, MPI_INT64_T, 1, at, win); }

static const struct {
	const char *name;
	void (*call)(int);
} operations[] = {
	{ "put", put }, { "get", get }, { "accumulate", accumulate }, { "fetch-and-op", fetch }, { "compare-and-swap", swap },
};
static void (*operation)(int);

/* The passes: what one turn of a timed loop does. */

static void windowed(void)
{
	for (int i = 0; i < window; i++)
		operation(i * bytes);
	MPI_Win_flush(1, win);
}

static void locked(void)
{
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
	put(0);
	MPI_Win_unlock(1, win);
}

static void put_to_all(void)
{
	for (int r = 1; r < ranks; r++)
		MPI_Put(origin, bytes, MPI_BYTE, (rank + r) % ranks, 0, bytes, MPI_BYTE, win);
	MPI_Win_flush_all(win);
}

static void barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }

static void message(void)
{
	if (rank == 0)
		MPI_Send(origin, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
	MPI_Recv(result, bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (rank == 1)
		MPI_Send(origin, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
}

static void allreduce(void)
{
	MPI_Allreduce(origin, result, bytes / 8, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void report(const char *test, double *values, int n, double rate)
{
	double p50 = 0, p99 = 0;
	if (n > 0) {
		qsort(values, n, sizeof *values, ascending);
		p50 = values[n / 2];
		p99 = values[(int)(n * 0.99)];
	}
	printf("%s %d %d %.3f %.3f %.6f\n", test, bytes, window, p50, p99, rate);
	fflush(stdout);
}

/* Passes of rank 0 alone, within a shared lock if so asked. */
static void alone(const char *test, void (*pass)(void), int in_epoch, int rated)
{
	double begin, last, now;
	int n = 0;
	if (rank != 0)
		return;
	if (in_epoch)
		MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win);
	begin = MPI_Wtime();
	for (int i = 0; i < WARM && MPI_Wtime() - begin < TIME / 10; i++)
		pass();
	begin = last = MPI_Wtime();
	while (n < SAMPLES && last - begin < TIME) {
		pass();
		now = MPI_Wtime();
		sample[n++] = (now - last) * 1e6;
		last = now;
	}
	if (in_epoch)
		MPI_Win_unlock(1, win);
	report(test, sample, rated ? 0 : n, rated ? 1e-6 * n * window / (last - begin) : 0);
}

/* Passes of all ranks, as many at each. */
static void together(const char *test, void (*pass)(void))
{
	double begin, last, now;
	int n;
	MPI_Win_lock_all(0, win);
	begin = MPI_Wtime();
	for (int i = 0; i < WARM_TOGETHER; i++)
		pass();
	n = (int)(TIME * WARM_TOGETHER / (MPI_Wtime() - begin)) + WARM_TOGETHER;
	if (n > SAMPLES / ranks)
		n = SAMPLES / ranks;
	MPI_Bcast(&n, 1, MPI_INT, 0, MPI_COMM_WORLD);
	MPI_Barrier(MPI_COMM_WORLD);
	last = MPI_Wtime();
	for (int i = 0; i < n; i++) {
		pass();
		now = MPI_Wtime();
		sample[i] = (now - last) * 1e6;
		last = now;
	}
	MPI_Win_unlock_all(win);
	MPI_Gather(sample, n, MPI_DOUBLE, gathered, n, MPI_DOUBLE, 0, MPI_COMM_WORLD);
	if (rank == 0)
		report(test, gathered, n * ranks, 0);
}

/* A fetch_and_op while the target computes for 100 ms without calling MPI. */
static void progress(const char *test)
{
	for (int i = 0; i < TRIALS; i++) {
		double begin;
		MPI_Barrier(MPI_COMM_WORLD);
		begin = MPI_Wtime();
		if (rank == 1) {
			while (MPI_Wtime() - begin < 0.1)
				continue;
		} else if (rank == 0) {
			while (MPI_Wtime() - begin < 0.01)
				continue;
			begin = MPI_Wtime();
			MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win);
			windowed();
			MPI_Win_unlock(1, win);
			sample[i] = (MPI_Wtime() - begin) * 1e6;
		}
	}
	if (rank == 0)
		report(test, sample, TRIALS, 0);
}

/* Keeps this thread on the rank-th of its processors, if each rank has one: the
 * launchers cannot know that their two hosts are one machine. */
static void bind_to_processor(void)
{
	cpu_set_t all, one;
	int seen = 0;
	if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < ranks)
		return;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, &all) && seen++ == rank) {
			CPU_ZERO(&one);
			CPU_SET(cpu, &one);
			sched_setaffinity(0, sizeof one, &one);
			return;
		}
	}
}

static void run(const char *test)
{
	size_t length = strlen(test);
	const char *suffix = strrchr(test, '-');
	if (strcmp(test, "lock-put-unlock") == 0) {
		alone(test, locked, 0, 0);
		return;
	}
	if (strcmp(test, "barrier") == 0 || strcmp(test, "scale-barrier") == 0) {
		together(test, barrier);
		return;
	}
	if (strcmp(test, "message-latency") == 0) {
		together(test, message);
		return;
	}
	if (strcmp(test, "allreduce-latency") == 0) {
		together(test, allreduce);
		return;
	}
	if (strcmp(test, "scale-put") == 0) {
		together(test, put_to_all);
		return;
	}
	if (strcmp(test, "progress") == 0) {
		operation = fetch;
		progress(test);
		return;
	}
	if (suffix != NULL)
		length -= strlen(suffix);
	for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
		if (strlen(operations[i].name) == length && strncmp(test, operations[i].name, length) == 0)
			operation = operations[i].call;
	if (operation == NULL) {
		fprintf(stderr, "rma: there is no test %s\n", test);
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	alone(test, windowed, 1, strcmp(suffix, "-latency") != 0);
}

int main(int argc, char **argv)
{
	char *base;
	size_t size;
	if (argc != 4 || (bytes = atoi(argv[2])) < 8 || (window = atoi(argv[3])) < 1) {
		fprintf(stderr, "usage: rma TEST BYTES WINDOW\n");
		return 2;
	}
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	size = (size_t)bytes * window + 16;
	origin = calloc(2, size);
	result = origin + size;
	MPI_Win_allocate((MPI_Aint)size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
	memset(base, 0, size);
	if (strcmp(argv[1], "progress") != 0)
		bind_to_processor();
	MPI_Barrier(MPI_COMM_WORLD);
	run(argv[1]);
	MPI_Barrier(MPI_COMM_WORLD);
	alarm(PATIENCE);
	MPI_Win_free(&win);
	MPI_Finalize();
	return 0;
}
