/*
 * What `xdprma perf` measures, with an MPI library: one-sided operations between
 * rank 0, the origin, and rank 1, or among all ranks. One line a figure:
 * test, bytes, window, value, unit.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 20, SAMPLES = 4000 };

static MPI_Win win;
static int rank, ranks;
static char *origin, *result;

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void put(int n) { MPI_Put(origin, n, MPI_BYTE, 1, 0, n, MPI_BYTE, win); }
static void get(int n) { MPI_Get(result, n, MPI_BYTE, 1, 0, n, MPI_BYTE, win); }
static void fetch(int n)
{
	(void)n;
	MPI_Fetch_and_op(origin, result, MPI_INT64_T, 1, 0, MPI_SUM, win);
}
static void swap(int n)
{
	(void)n;
	MPI_Compare_and_swap(origin, result + 8, result, MPI_INT64_T, 1, 0, win);
}

static void flushed(void (*op)(int), int n)
{
	op(n);
	MPI_Win_flush(1, win);
}

static void report(const char *test, int n, int window, double value, const char *unit)
{
	printf("%s %d %d %.4f %s\n", test, n, window, value, unit);
	fflush(stdout);
}

static void latency(const char *test, void (*op)(int), int n)
{
	static double sample[SAMPLES];
	if (rank == 0) {
		MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win);
		for (int i = -SAMPLES / 10; i < SAMPLES; i++) {
			double begin = MPI_Wtime();
			flushed(op, n);
			if (i >= 0)
				sample[i] = (MPI_Wtime() - begin) * 1e6;
		}
		MPI_Win_unlock(1, win);
		qsort(sample, SAMPLES, sizeof *sample, ascending);
		report(test, n, 1, sample[SAMPLES / 2], "us");
	}
	MPI_Barrier(MPI_COMM_WORLD);
}

static void epochs(int n)
{
	static double sample[SAMPLES];
	if (rank == 0) {
		for (int i = -SAMPLES / 10; i < SAMPLES; i++) {
			double begin = MPI_Wtime();
			MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
			put(n);
			MPI_Win_unlock(1, win);
			if (i >= 0)
				sample[i] = (MPI_Wtime() - begin) * 1e6;
		}
		qsort(sample, SAMPLES, sizeof *sample, ascending);
		report("lock-put-unlock", n, 1, sample[SAMPLES / 2], "us");
	}
	MPI_Barrier(MPI_COMM_WORLD);
}

/* Windows of operations, each flushed, for half a second. */
static void stream(const char *test, void (*op)(int), int n, int window, int bandwidth)
{
	if (rank == 0) {
		double begin, spent;
		long done = 0;
		MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win);
		begin = MPI_Wtime();
		do {
			for (int i = 0; i < window; i++)
				op(n);
			MPI_Win_flush(1, win);
			done += window;
			spent = MPI_Wtime() - begin;
		} while (spent < 0.5);
		MPI_Win_unlock(1, win);
		if (bandwidth)
			report(test, n, window, 1e-6 * n * done / spent, "MB/s");
		else
			report(test, n, window, 1e-6 * done / spent, "Mop/s");
	}
	MPI_Barrier(MPI_COMM_WORLD);
}

/* A fetch_and_op while the target computes for 100 ms without calling MPI. */
static void passive(void)
{
	double sample[5];
	for (int i = 0; i < 5; i++) {
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
			flushed(fetch, 8);
			MPI_Win_unlock(1, win);
			sample[i] = (MPI_Wtime() - begin) * 1e6;
		}
		MPI_Barrier(MPI_COMM_WORLD);
	}
	if (rank == 0) {
		qsort(sample, 5, sizeof *sample, ascending);
		report("progress", 8, 1, sample[2], "us");
	}
}

/* Every rank puts 8 bytes to every other and flushes; then a barrier. */
static void all_to_all(void)
{
	enum { PASSES = 20 };
	double begin = 0;
	MPI_Win_lock_all(0, win);
	for (int i = -2; i < PASSES; i++) {
		if (i == 0)
			begin = MPI_Wtime();
		for (int r = 1; r < ranks; r++)
			MPI_Put(origin, 8, MPI_BYTE, (rank + r) % ranks, 8 * rank, 8, MPI_BYTE, win);
		MPI_Win_flush_all(win);
		MPI_Barrier(MPI_COMM_WORLD);
	}
	begin = (MPI_Wtime() - begin) * 1e6 / PASSES;
	MPI_Win_unlock_all(win);
	if (rank == 0)
		report("all-to-all", 8, ranks, begin, "us");
}

int main(int argc, char **argv)
{
	char *base;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	origin = calloc(2, MOST);
	result = origin + MOST;
	MPI_Win_allocate(MOST, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
	memset(base, 0, MOST);
	MPI_Barrier(MPI_COMM_WORLD);
	if (ranks > 2) {
		all_to_all();
	} else {
		latency("put-latency", put, 8);
		latency("get-latency", get, 8);
		latency("fetch-and-op-latency", fetch, 8);
		latency("compare-and-swap-latency", swap, 8);
		epochs(8);
		stream("put-rate", put, 8, 64, 0);
		stream("put-rate", put, 8, 1024, 0);
		stream("fetch-and-op-rate", fetch, 8, 64, 0);
		stream("put-bandwidth", put, MOST, 4, 1);
		stream("get-bandwidth", get, MOST, 4, 1);
		passive();
	}
	MPI_Win_free(&win);
	MPI_Finalize();
	return 0;
}
