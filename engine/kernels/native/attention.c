/* The key-value cache and attention in chunks of 64 positions (CONTRACT.md, sections 9 and 10).
 *
 * A part is what one query makes of one chunk: its largest score, the sum of its weights, and its weighted values. Parts may be made
 * anywhere; merging them in ascending order gives the answer. A single row splits over chunks, so that threads share a long
 * history; many rows split over rows, and merge as they go. Both split over query heads where many share one key head, as those of
 * latent attention do.
 */
#include "attention_chunk.h"
#include "pool.h"

/* Rows and query heads of one key head that a thread takes together, at most, and how many of both; bytes of parts that a single row
 * keeps before it merges them; query heads from which a chunk is worth widening for a single row. */
enum { ROWS = 16, HEADS = 16, HELD = 128, PARTS_BYTES = 16 << 20, WIDEN_FROM = 12 };

typedef struct {
    const float *q, *k, *v, *sinks;
    const int32_t *until; /* per row, the end of the positions that it sees; NULL: after its own */
    const ms_cache *cache;
    int64_t n, start, n_heads, group, window;
    float scale, softcap;
    float *out;
    int64_t rows, heads, shares;  /* that a thread takes together; how often so many heads are in a group */
    int64_t last, chunks;         /* the end of what any row sees; chunks up to it */
    int64_t from, wave, held;     /* single row: the chunks whose parts are made before they are merged; room for so many */
    float *parts, *single_states; /* single row: [n_heads][held][part_floats], [n_heads][part_floats] */
    int64_t part_floats;
    char *scratch; /* per thread: a chunk of keys and of values as float32, scaled queries, parts, a state for each row and head */
    int64_t scratch_bytes;
    _Atomic int overflow;
} attention_job;

/* The scratch of one thread. */
typedef struct {
    float *keys, *values, *queries, *parts, *states;
} workplace;

static workplace workplace_of(const attention_job *job, int thread) {
    const ms_cache *c = job->cache;
    workplace w;
    w.keys = (float *)(job->scratch + thread * job->scratch_bytes);
    w.values = w.keys + CHUNK * c->key_dim;
    w.queries = w.values + (is_latent(c) ? 0 : CHUNK * c->value_dim);
    w.parts = w.queries + job->rows * job->heads * c->key_dim;
    w.states = w.parts + QUERIES * job->part_floats;
    return w;
}

/* `count` scaled queries against positions low … high-1 of a chunk. What memory brings meanwhile: the values with the keys, and the next
 * keys with the values. */
INLINE void attend(const attention_job *job, int64_t kind, const float *q, int count, const void *keys, const void *values,
                   const void *next, int low, int high, float *parts, int64_t stride) {
    const int64_t dim = job->cache->key_dim, value_dim = job->cache->value_dim, band_bytes = dim * BAND * element_bytes(kind);
    const int latent = is_latent(job->cache);
    _Alignas(32) float p[QUERIES][CHUNK];
    if (latent)
        row_scores(kind, keys, q, dim, count, low, high, p);
    else
        for (int band = low / BAND; band * BAND < high; band++)
            band_scores(kind, (const char *)keys + band * band_bytes, q, dim, count, (const char *)values + band * band_bytes,
                        (float(*)[CHUNK])(p[0] + band * BAND));
    for (int h = 0; h < count; h++) weigh_scores(p[h], low, high, job->softcap, parts + h * stride);
    weigh_values(kind, values, latent ? dim : value_dim, value_dim, p, count, low, high, next, parts + VALUES, stride);
}

/* The same with the count and the kind known to the compiler. */
static void attend_some(const attention_job *job, int64_t kind, const float *q, int count, const void *keys, const void *values,
                        const void *next, int low, int high, float *parts, int64_t stride) {
#define ATTEND(kind, count) attend(job, kind, q, count, keys, values, next, low, high, parts, stride)
#define ATTEND_KIND(count) \
    case count: \
        if (kind == MS_CACHE_F16) \
            ATTEND(MS_CACHE_F16, count); \
        else \
            ATTEND(MS_CACHE_F32, count); \
        break;
    switch (count) {
        ATTEND_KIND(1)
        ATTEND_KIND(2)
        ATTEND_KIND(3)
    default:
        if (kind == MS_CACHE_F16)
            ATTEND(MS_CACHE_F16, QUERIES);
        else
            ATTEND(MS_CACHE_F32, QUERIES);
    }
}

static void start_state(float *state, int64_t dim) {
    memset(state, 0, (size_t)(VALUES + dim) * sizeof(float));
    state[TOP] = -INFINITY;
}

static void merge(float *state, const float *part, int64_t dim) {
    float tops[8] = {0}, factors[8];
    const float top = part[TOP] > state[TOP] ? part[TOP] : state[TOP];
    tops[0] = state[TOP] - top;
    tops[1] = part[TOP] - top;
    f8_store(factors, f8_exp(f8_load(tops)));
    state[TOP] = top;
    state[TOTAL] = state[TOTAL] * factors[0] + part[TOTAL] * factors[1];
    for (int64_t d = 0; d < dim; d++) state[VALUES + d] = state[VALUES + d] * factors[0] + part[VALUES + d] * factors[1];
}

static void finish(const attention_job *job, float *state, int64_t head, float *out) {
    const int64_t dim = job->cache->value_dim;
    if (job->sinks) {
        float tops[8] = {0}, factors[8];
        const float sink = job->sinks[head], top = sink > state[TOP] ? sink : state[TOP];
        tops[0] = state[TOP] - top;
        tops[1] = sink - top;
        f8_store(factors, f8_exp(f8_load(tops)));
        state[TOTAL] = state[TOTAL] * factors[0] + factors[1];
        for (int64_t d = 0; d < dim; d++) state[VALUES + d] = state[VALUES + d] * factors[0];
    }
    for (int64_t d = 0; d < dim; d++) out[d] = state[VALUES + d] / state[TOTAL];
}

/* The positions of a chunk that the row at `position` sees: → 0 where there are none. */
static int seen(const attention_job *job, int64_t position, int64_t chunk, int *low, int *high) {
    const int64_t base = chunk * CHUNK, from = job->window && position + 1 > job->window ? position + 1 - job->window : 0;
    const int64_t end = job->until ? job->until[position - job->start] : position + 1;
    *high = end <= base ? 0 : end - base < CHUNK ? (int)(end - base) : CHUNK;
    *low = from <= base ? 0 : from - base < CHUNK ? (int)(from - base) : CHUNK;
    return *low < *high;
}

static void scale_query(const attention_job *job, int64_t row, int64_t head, float *out) {
    const int64_t dim = job->cache->key_dim;
    const float *q = job->q + (row * job->n_heads + head) * dim;
    for (int64_t i = 0; i < dim; i++) out[i] = q[i] * job->scale;
}

/* Keys and values of a chunk in the layout of an f32 cache, or as they lie: → their kind. */
static int64_t open_chunk(const attention_job *job, int64_t head, int64_t chunk, int wide, workplace w, const void **keys, const void **values) {
    const ms_cache *c = job->cache;
    const int latent = is_latent(c), as_it_is = c->kind == MS_CACHE_F32 || (c->kind == MS_CACHE_F16 && !wide);
    *keys = chunk_at(c, c->keys, c->key_dim, head, chunk);
    *values = latent ? *keys : chunk_at(c, c->values, c->value_dim, head, chunk);
    if (as_it_is) return c->kind;
    if (latent) {
        widen_rows(c, c->key_dim, *keys, w.keys);
    } else {
        widen_keys(c, *keys, w.keys);
        widen_rows(c, c->value_dim, *values, w.values);
    }
    *keys = w.keys;
    *values = latent ? w.keys : w.values;
    return MS_CACHE_F32;
}

/* Items: (kv head, chunk, share of its heads) of a single row. */
static void make_parts(void *data, int64_t first, int64_t last, int thread) {
    attention_job *job = data;
    const workplace w = workplace_of(job, thread);
    const int64_t dim = job->cache->key_dim, stride = job->held * job->part_floats;
    for (int64_t item = first; item < last; item++) {
        const int64_t share = item % job->shares, at = item / job->shares % job->wave, kv_head = item / job->shares / job->wave;
        const int64_t chunk = job->from + at, end = (share + 1) * job->heads < job->group ? (share + 1) * job->heads : job->group;
        const void *keys, *values;
        int low, high;
        if (!seen(job, job->start, chunk, &low, &high)) continue;
        const int64_t kind = open_chunk(job, kv_head, chunk, job->heads >= WIDEN_FROM, w, &keys, &values);
        const void *next = chunk_at(job->cache, job->cache->keys, dim, kv_head, chunk + 1);
        for (int64_t g = share * job->heads; g < end; g += QUERIES) {
            const int count = end - g < QUERIES ? (int)(end - g) : QUERIES;
            const int64_t head = kv_head * job->group + g;
            for (int h = 0; h < count; h++) scale_query(job, 0, head + h, w.queries + h * dim);
            attend_some(job, kind, w.queries, count, keys, values, next, low, high, job->parts + head * stride + at * job->part_floats, stride);
        }
    }
}

/* Items: heads of a single row. */
static void merge_parts(void *data, int64_t first, int64_t last, int thread) {
    (void)thread;
    attention_job *job = data;
    const int64_t dim = job->cache->value_dim;
    for (int64_t head = first; head < last; head++) {
        float *state = job->single_states + head * job->part_floats;
        int low, high;
        if (job->from == 0) start_state(state, dim);
        for (int64_t at = 0; at < job->wave; at++)
            if (seen(job, job->start, job->from + at, &low, &high)) merge(state, job->parts + (head * job->held + at) * job->part_floats, dim);
        if (job->from + job->wave == job->chunks) finish(job, state, head, job->out + head * dim);
    }
}

static int attend_row(ms_pool *pool, attention_job *job) {
    const int64_t row_bytes = job->n_heads * job->part_floats * (int64_t)sizeof(float), fit = PARTS_BYTES / row_bytes;
    job->held = fit < 1 ? 1 : fit < job->chunks ? fit : job->chunks;
    job->parts = pool_scratch(pool, 3, (job->held + 1) * row_bytes);
    if (!job->parts) return MS_NO_MEMORY;
    job->single_states = job->parts + job->held * job->n_heads * job->part_floats;
    for (job->from = 0; job->from < job->chunks; job->from += job->wave) {
        job->wave = job->chunks - job->from < job->held ? job->chunks - job->from : job->held;
        pool_run(pool, make_parts, job, job->cache->n_kv_heads * job->wave * job->shares, 1);
        pool_run(pool, merge_parts, job, job->n_heads, job->wave < 32 ? job->n_heads : 1);
    }
    return MS_OK;
}

/* How many queries from `at` on, rows from `position` with `heads` each, see the same positions of a chunk; QUERIES at most. */
static int64_t alike(const attention_job *job, int64_t position, int64_t heads, int64_t at, int64_t end, int64_t chunk, int *low, int *high) {
    int64_t count = 1;
    seen(job, position + at / heads, chunk, low, high);
    for (; count < QUERIES && at + count < end; count++) {
        int next_low, next_high;
        seen(job, position + (at + count) / heads, chunk, &next_low, &next_high);
        if (next_low != *low || next_high != *high) break;
    }
    return count;
}

/* Items: (block of rows, kv head, share of its heads). */
static void attend_rows(void *data, int64_t first, int64_t last, int thread) {
    attention_job *job = data;
    const ms_cache *c = job->cache;
    const workplace w = workplace_of(job, thread);
    const int64_t dim = c->value_dim;
    for (int64_t item = first; item < last; item++) {
        const int64_t share = item % job->shares, kv_head = item / job->shares % c->n_kv_heads, row = item / job->shares / c->n_kv_heads * job->rows;
        const int64_t rows = job->n - row < job->rows ? job->n - row : job->rows, end = job->until ? job->last : job->start + row + rows;
        const int64_t left = job->group - share * job->heads, heads = left < job->heads ? left : job->heads;
        const int64_t head = kv_head * job->group + share * job->heads;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t g = 0; g < heads; g++) {
                scale_query(job, row + r, head + g, w.queries + (r * heads + g) * c->key_dim);
                start_state(w.states + (r * heads + g) * job->part_floats, dim);
            }
        for (int64_t chunk = 0; chunk * CHUNK < end; chunk++) {
            int low, high, any = 0;
            for (int64_t r = 0; r < rows; r++) any |= seen(job, job->start + row + r, chunk, &low, &high);
            if (!any) continue;
            const void *keys, *values;
            const int64_t kind = open_chunk(job, kv_head, chunk, 1, w, &keys, &values);
            for (int64_t at = 0, count; at < rows * heads; at += count) {
                count = alike(job, job->start + row, heads, at, rows * heads, chunk, &low, &high);
                if (low >= high) continue;
                attend_some(job, kind, w.queries + at * c->key_dim, (int)count, keys, values, keys, low, high, w.parts, job->part_floats);
                for (int64_t h = 0; h < count; h++) merge(w.states + (at + h) * job->part_floats, w.parts + h * job->part_floats, dim);
            }
        }
        for (int64_t r = 0; r < rows; r++)
            for (int64_t g = 0; g < heads; g++)
                finish(job, w.states + (r * heads + g) * job->part_floats, head + g, job->out + ((row + r) * job->n_heads + head + g) * dim);
    }
}

static void store_rows(void *data, int64_t first, int64_t last, int thread) {
    (void)thread;
    attention_job *job = data;
    const ms_cache *c = job->cache;
    for (int64_t row = first; row < last; row++)
        for (int64_t head = 0; head < c->n_kv_heads; head++) {
            const int64_t position = job->start + row, chunk = position / CHUNK, at = position % CHUNK, index = row * c->n_kv_heads + head;
            char *keys = chunk_at(c, c->keys, c->key_dim, head, chunk);
            const float *key = job->k + index * c->key_dim;
            const int fits = is_latent(c) ? store_row(c, c->key_dim, keys, at, key)
                                          : store_key(c, keys, at, key) &
                                                store_row(c, c->value_dim, chunk_at(c, c->values, c->value_dim, head, chunk), at,
                                                          job->v + index * c->value_dim);
            if (!fits) job->overflow = 1;
        }
}

int ms_attention(ms_pool *pool, const float *q, const float *k, const float *v, const ms_cache *cache, int64_t n, int64_t start,
                 int64_t n_heads, float scale, int64_t window, float softcap, const float *sinks, const int32_t *until,
                 float *out) {
    attention_job job = {.q = q, .k = k, .v = v, .sinks = sinks, .until = until, .cache = cache, .n = n, .start = start, .n_heads = n_heads,
                         .group = n_heads / cache->n_kv_heads, .window = window, .scale = scale, .softcap = softcap, .out = out};
    job.last = start + n;
    for (int64_t row = 0; until && row < n; row++)
        if (until[row] > job.last) job.last = until[row];
    job.chunks = (job.last + CHUNK - 1) / CHUNK;
    job.part_floats = (VALUES + cache->value_dim + 15) / 16 * 16;
    job.shares = (job.group + HEADS - 1) / HEADS;
    job.heads = (job.group + job.shares - 1) / job.shares;
    job.rows = HELD / job.heads < ROWS ? HELD / job.heads : ROWS;
    job.scratch_bytes = (CHUNK * (cache->key_dim + (is_latent(cache) ? 0 : cache->value_dim)) + QUERIES * job.part_floats +
                         job.rows * job.heads * (cache->key_dim + job.part_floats)) * (int64_t)sizeof(float);
    job.scratch_bytes = (job.scratch_bytes + 63) / 64 * 64;
    job.scratch = pool_scratch(pool, 2, job.scratch_bytes * pool_threads(pool));
    if (!job.scratch) return MS_NO_MEMORY;
    if (k) pool_run(pool, store_rows, &job, n, CHUNK);
    if (job.overflow) return MS_OVERFLOW;
    if (n == 1) return attend_row(pool, &job);
    pool_run(pool, attend_rows, &job, (n + job.rows - 1) / job.rows * cache->n_kv_heads * job.shares, 1);
    return MS_OK;
}
