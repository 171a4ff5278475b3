/* What this machine can do at most: read memory and nothing else, multiply and add in registers and nothing else. */
#include <stdatomic.h>

#include "millstream.h"
#include "pool.h"
#include "simd.h"

/* Several places at once: one stream alone does not keep the memory busy. */
enum { STREAMS = 4, PIECE = 65536 }; /* PIECE in vectors: 2 MiB, a large page */

INLINE uint64_t folded(i32x8 v) {
    uint64_t words[4];
    memcpy(words, &v, sizeof words);
    return (words[0] ^ words[1]) ^ (words[2] ^ words[3]);
}

typedef struct {
    const uint8_t *data;
    _Atomic uint64_t mixed;
} read_job;

static void read_vectors(void *data, int64_t first, int64_t last, int thread) {
    (void)thread;
    read_job *job = data;
    const int64_t length = (last - first) / STREAMS;
    i32x8 mixed[STREAMS] = {0};
    for (int64_t i = 0; i < length; i++)
        for (int s = 0; s < STREAMS; s++) mixed[s] ^= i32_load(job->data + (first + s * length + i) * 32);
    for (int64_t i = first + STREAMS * length; i < last; i++) mixed[0] ^= i32_load(job->data + i * 32);
    for (int s = 1; s < STREAMS; s++) mixed[0] ^= mixed[s];
    atomic_fetch_xor(&job->mixed, folded(mixed[0]));
}

int ms_read(ms_pool *pool, const void *data, int64_t bytes, uint64_t *mixed) {
    read_job job = {data, 0};
    pool_run(pool, read_vectors, &job, bytes / 32, PIECE);
    *mixed = job.mixed;
    return MS_OK;
}

/* As many sums as hide the latency of one, and as the registers hold beside the factors. */
#if defined(__AVX2__)
enum { SUMS = 12 };
#else
enum { SUMS = 5 };
#endif
enum { ROUNDS = 4096 };

typedef struct {
    i16x16 factors;
    _Atomic uint64_t mixed;
} multiply_job;

/* Each product takes the sum before it, so that none can be left out or shared. By these factors a sum wanders about zero, where
 * its upper half draws it back: it neither dies out nor overflows. */
static void multiply_rounds(void *data, int64_t first, int64_t last, int thread) {
    (void)thread;
    multiply_job *job = data;
    const i16x16 factors = job->factors;
    i32x8 sums[SUMS];
    for (int s = 0; s < SUMS; s++) sums[s] = (i32x8){1, 2, 3, 4, 5, 6, 7, 8} + s;
    for (int64_t i = first; i < last; i++) {
#pragma clang loop unroll(full) /* or the sums would lie in memory */
        for (int s = 0; s < SUMS; s++) sums[s] = i16_dot(sums[s], (i16x16)sums[s], factors);
    }
    for (int s = 1; s < SUMS; s++) sums[0] ^= sums[s];
    atomic_fetch_xor(&job->mixed, folded(sums[0]));
}

int ms_multiply_adds(ms_pool *pool, int64_t rounds, int64_t *done, uint64_t *mixed) {
    multiply_job job = {{2, -1, 2, -1, 2, -1, 2, -1, 2, -1, 2, -1, 2, -1, 2, -1}, 0};
    pool_run(pool, multiply_rounds, &job, rounds, ROUNDS);
    *mixed = job.mixed;
    *done = rounds * SUMS * 16;
    return MS_OK;
}
