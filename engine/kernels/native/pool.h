/* Threads that share one job at a time, and the scratch memory of the job. */
#ifndef MILLSTREAM_POOL_H
#define MILLSTREAM_POOL_H

#include <stdint.h>

#include "millstream.h"

/* One share of a job: items first … last-1. `thread` is below `pool_threads`. */
typedef void (*pool_task)(void *job, int64_t first, int64_t last, int thread);

/* Run `task` over items 0 … items-1 in grains of at most `grain`; returns when every item is done. */
void pool_run(ms_pool *pool, pool_task task, void *job, int64_t items, int64_t grain);

int pool_threads(const ms_pool *pool);

/* At least `bytes` of memory, 64-byte aligned, valid until the next call for the same `slot` (0 … 7); NULL if refused. */
void *pool_scratch(ms_pool *pool, int slot, int64_t bytes);

#endif
