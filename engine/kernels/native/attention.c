/* The key-value cache and attention in chunks of 64 positions (CONTRACT.md, sections 9 and 10).
 *
 * A part is what one query makes of one chunk: its largest score, the sum of its weights, and its weighted values. Parts may be made
 * anywhere; merging them in ascending order gives the answer. A single row splits over chunks, so that threads share a long
 * history; many rows split over rows, and merge as they go.
 */
#include "cache.h"
#include "millstream.h"
#include "pool.h"
#include "simd.h"

enum { ROWS = 16, VECTORS = BAND / 8 };

#if defined(__AVX512VL__) || defined(__ARM_NEON)
enum { QUERIES = 4 }; /* queries that share a read of keys or values: as many as the registers hold */
#else
enum { QUERIES = 3 };
#endif

typedef struct {
    const float *q, *k, *v, *sinks;
    const int32_t *until; /* per row, the end of the positions that it sees; NULL: after its own */
    const ms_cache *cache;
    int64_t n, start, n_heads, group, window;
    float scale, softcap;
    float *out;
    int64_t chunks; /* of the whole history */
    float *parts;   /* single row: [n_heads][chunks][part_floats] */
    int64_t part_floats;
    char *scratch; /* per thread: a chunk of keys and of values as float32, scaled queries, parts, a state for each row and head */
    int64_t scratch_bytes;
    _Atomic int overflow;
} attention_job;

/* A part or a state: largest score, sum of weights, then value_dim weighted values. */
enum { TOP, TOTAL, VALUES };

/* The scratch of one thread. */
typedef struct {
    float *keys, *values, *queries, *parts, *states;
} workplace;

static workplace workplace_of(const attention_job *job, int thread) {
    const ms_cache *c = job->cache;
    workplace w;
    w.keys = (float *)(job->scratch + thread * job->scratch_bytes);
    w.values = w.keys + CHUNK * c->key_dim;
    w.queries = w.values + CHUNK * c->value_dim;
    w.parts = w.queries + ROWS * job->group * c->key_dim;
    w.states = w.parts + QUERIES * job->part_floats;
    return w;
}

INLINE int element_bytes(int64_t kind) { return kind == MS_CACHE_F16 ? 2 : 4; }

INLINE f8 element_vector(int64_t kind, const void *base, int64_t at) {
    return kind == MS_CACHE_F16 ? f8_from_half((const _Float16 *)base + at) : f8_load((const float *)base + at);
}

/* Scores of `count` queries against one band of keys: lane sums, with neighbouring positions side by side. As many bytes as are read
 * are fetched from `ahead`. */
INLINE void band_scores(int64_t kind, const void *band, const float *q, int64_t dim, int count, const char *ahead, float (*out)[CHUNK]) {
    f8 lanes[8][QUERIES][VECTORS];
    int64_t at = 0;
    for (int lane = 0; lane < 8; lane++) {
        f8 sum[QUERIES][VECTORS];
        for (int h = 0; h < count; h++)
            for (int v = 0; v < VECTORS; v++) sum[h][v] = f8_set(0.0f);
        for (int64_t i = lane; i < dim; i += 8, at += BAND) {
            for (int line = 0; line < BAND * element_bytes(kind); line += 64) __builtin_prefetch(ahead + at * element_bytes(kind) + line);
            for (int v = 0; v < VECTORS; v++) {
                const f8 key = element_vector(kind, band, at + 8 * v);
                for (int h = 0; h < count; h++) sum[h][v] = sum[h][v] + key * q[h * dim + i];
            }
        }
        for (int h = 0; h < count; h++)
            for (int v = 0; v < VECTORS; v++) lanes[lane][h][v] = sum[h][v];
    }
    for (int h = 0; h < count; h++)
        for (int v = 0; v < VECTORS; v++) {
#define LANE(i) lanes[i][h][v]
            f8_store(out[h] + 8 * v, ((LANE(0) + LANE(4)) + (LANE(2) + LANE(6))) + ((LANE(1) + LANE(5)) + (LANE(3) + LANE(7))));
        }
}

/* `width` <= VECTORS vectors of `count` results from element d on: values of positions low … high-1 weighted and summed in order. */
INLINE void weigh_vectors(int64_t kind, const void *values, int64_t dim, float (*p)[CHUNK], int count, int low, int high, int64_t d,
                          int width, const char *ahead, float *out, int64_t stride) {
    f8 sum[QUERIES][VECTORS];
    for (int h = 0; h < count; h++)
        for (int v = 0; v < width; v++) sum[h][v] = f8_set(0.0f);
    for (int j = low; j < high; j++) {
        const int bytes = 8 * width * element_bytes(kind);
        for (int line = 0; line < bytes; line += 64) __builtin_prefetch(ahead + d * CHUNK * element_bytes(kind) + j * bytes + line);
        for (int v = 0; v < width; v++) {
            const f8 value = element_vector(kind, values, j * dim + d + 8 * v);
            for (int h = 0; h < count; h++) sum[h][v] = sum[h][v] + value * p[h][j];
        }
    }
    for (int h = 0; h < count; h++)
        for (int v = 0; v < width; v++) f8_store(out + h * stride + d + 8 * v, sum[h][v]);
}

INLINE void weigh_values(int64_t kind, const void *values, int64_t dim, float (*p)[CHUNK], int count, int low, int high, const char *ahead,
                         float *out, int64_t stride) {
    int64_t d = 0;
    for (; d + BAND <= dim; d += BAND) weigh_vectors(kind, values, dim, p, count, low, high, d, VECTORS, ahead, out, stride);
    for (; d + 8 <= dim; d += 8) weigh_vectors(kind, values, dim, p, count, low, high, d, 1, ahead, out, stride);
    for (; d < dim; d++)
        for (int h = 0; h < count; h++) {
            float sum = 0.0f;
            for (int j = low; j < high; j++)
                sum += (kind == MS_CACHE_F16 ? (float)((const _Float16 *)values)[j * dim + d] : ((const float *)values)[j * dim + d]) * p[h][j];
            out[h * stride + d] = sum;
        }
}

/* Scores of positions low … high-1 become weights; those beside them, up to a multiple of 8, become 0. The part gets its largest score
 * and its sum. */
INLINE void weigh_seen(float *p, int low, int high, int whole, float softcap, float *part) {
    const i32x8 lane = {0, 1, 2, 3, 4, 5, 6, 7};
    const int first = low & ~7;
    f8 top = f8_set(-INFINITY), total = f8_set(0.0f);
    for (int j = first; j < high; j += 8) {
        f8 s = f8_load(p + j);
        if (softcap != 0.0f) f8_store(p + j, s = f8_tanh(s / softcap) * softcap);
        if (!whole) s = f8_select((lane + j >= low) & (lane + j < high), s, f8_set(-INFINITY));
        top = f8_max(s, top);
    }
    float most = -INFINITY;
    for (int i = 0; i < 8; i++) most = top[i] > most ? top[i] : most;
    for (int j = first; j < high; j += 8) {
        f8 weight = f8_exp(f8_load(p + j) - most);
        if (!whole) weight = f8_select((lane + j >= low) & (lane + j < high), weight, f8_set(0.0f));
        f8_store(p + j, weight);
        total = total + weight;
    }
    part[TOP] = most;
    part[TOTAL] = f8_tree(total);
}

static void weigh_scores(float *p, int low, int high, float softcap, float *part) {
    if (low == 0 && high == CHUNK)
        weigh_seen(p, 0, CHUNK, 1, softcap, part);
    else
        weigh_seen(p, low, high, 0, softcap, part);
}

/* `count` scaled queries against positions low … high-1 of a chunk. What memory brings meanwhile: the values with the keys, and the next
 * keys with the values. */
INLINE void attend(const attention_job *job, int64_t kind, const float *q, int count, const void *keys, const void *values,
                   const void *next, int low, int high, float *parts, int64_t stride) {
    const int64_t dim = job->cache->key_dim, band_bytes = dim * BAND * element_bytes(kind);
    _Alignas(32) float p[QUERIES][CHUNK];
    for (int band = low / BAND; band * BAND < high; band++)
        band_scores(kind, (const char *)keys + band * band_bytes, q, dim, count, (const char *)values + band * band_bytes,
                    (float(*)[CHUNK])(p[0] + band * BAND));
    for (int h = 0; h < count; h++) weigh_scores(p[h], low, high, job->softcap, parts + h * stride);
    weigh_values(kind, values, job->cache->value_dim, p, count, low, high, next, parts + VALUES, stride);
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
    *keys = chunk_at(c, c->keys, c->key_dim, head, chunk);
    *values = chunk_at(c, c->values, c->value_dim, head, chunk);
    if (c->kind == MS_CACHE_F32 || (c->kind == MS_CACHE_F16 && !wide)) return c->kind;
    widen_keys(c, *keys, w.keys);
    widen_values(c, *values, w.values);
    *keys = w.keys;
    *values = w.values;
    return MS_CACHE_F32;
}

/* Items: (kv head, chunk) of a single row. */
static void make_parts(void *data, int64_t first, int64_t last, int thread) {
    attention_job *job = data;
    const workplace w = workplace_of(job, thread);
    const int64_t dim = job->cache->key_dim, stride = job->chunks * job->part_floats;
    for (int64_t item = first; item < last; item++) {
        const int64_t kv_head = item / job->chunks, chunk = item % job->chunks;
        const void *keys, *values;
        int low, high;
        if (!seen(job, job->start, chunk, &low, &high)) continue;
        const int64_t kind = open_chunk(job, kv_head, chunk, 0, w, &keys, &values);
        const void *next = chunk_at(job->cache, job->cache->keys, dim, kv_head, chunk + 1);
        for (int64_t g = 0; g < job->group; g += QUERIES) {
            const int count = job->group - g < QUERIES ? (int)(job->group - g) : QUERIES;
            const int64_t head = kv_head * job->group + g;
            for (int h = 0; h < count; h++) scale_query(job, 0, head + h, w.queries + h * dim);
            attend_some(job, kind, w.queries, count, keys, values, next, low, high, job->parts + head * stride + chunk * job->part_floats, stride);
        }
    }
}

/* Items: heads of a single row. */
static void merge_parts(void *data, int64_t first, int64_t last, int thread) {
    attention_job *job = data;
    float *state = workplace_of(job, thread).states;
    const int64_t dim = job->cache->value_dim;
    for (int64_t head = first; head < last; head++) {
        int low, high;
        start_state(state, dim);
        for (int64_t chunk = 0; chunk < job->chunks; chunk++)
            if (seen(job, job->start, chunk, &low, &high))
                merge(state, job->parts + (head * job->chunks + chunk) * job->part_floats, dim);
        finish(job, state, head, job->out + head * dim);
    }
}

/* How many queries from `at` on, rows from `position` with `group` each, see the same positions of a chunk; QUERIES at most. */
static int64_t alike(const attention_job *job, int64_t position, int64_t at, int64_t end, int64_t chunk, int *low, int *high) {
    int64_t count = 1;
    seen(job, position + at / job->group, chunk, low, high);
    for (; count < QUERIES && at + count < end; count++) {
        int next_low, next_high;
        seen(job, position + (at + count) / job->group, chunk, &next_low, &next_high);
        if (next_low != *low || next_high != *high) break;
    }
    return count;
}

/* Items: (block of ROWS rows, kv head). */
static void attend_rows(void *data, int64_t first, int64_t last, int thread) {
    attention_job *job = data;
    const ms_cache *c = job->cache;
    const workplace w = workplace_of(job, thread);
    const int64_t dim = c->value_dim;
    for (int64_t item = first; item < last; item++) {
        const int64_t kv_head = item % c->n_kv_heads, row = item / c->n_kv_heads * ROWS;
        const int64_t rows = job->n - row < ROWS ? job->n - row : ROWS, end = job->until ? job->start + job->n : job->start + row + rows;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t g = 0; g < job->group; g++) {
                scale_query(job, row + r, kv_head * job->group + g, w.queries + (r * job->group + g) * c->key_dim);
                start_state(w.states + (r * job->group + g) * job->part_floats, dim);
            }
        for (int64_t chunk = 0; chunk * CHUNK < end; chunk++) {
            int low, high, any = 0;
            for (int64_t r = 0; r < rows; r++) any |= seen(job, job->start + row + r, chunk, &low, &high);
            if (!any) continue;
            const void *keys, *values;
            const int64_t kind = open_chunk(job, kv_head, chunk, 1, w, &keys, &values);
            for (int64_t at = 0, count; at < rows * job->group; at += count) {
                count = alike(job, job->start + row, at, rows * job->group, chunk, &low, &high);
                if (low >= high) continue;
                attend_some(job, kind, w.queries + at * c->key_dim, (int)count, keys, values, keys, low, high, w.parts, job->part_floats);
                for (int64_t h = 0; h < count; h++) merge(w.states + (at + h) * job->part_floats, w.parts + h * job->part_floats, dim);
            }
        }
        for (int64_t r = 0; r < rows; r++)
            for (int64_t g = 0; g < job->group; g++) {
                const int64_t head = kv_head * job->group + g;
                finish(job, w.states + (r * job->group + g) * job->part_floats, head, job->out + ((row + r) * job->n_heads + head) * dim);
            }
    }
}

static void store_rows(void *data, int64_t first, int64_t last, int thread) {
    (void)thread;
    attention_job *job = data;
    const ms_cache *c = job->cache;
    for (int64_t row = first; row < last; row++)
        for (int64_t head = 0; head < c->n_kv_heads; head++) {
            const int64_t position = job->start + row, chunk = position / CHUNK, at = position % CHUNK, index = row * c->n_kv_heads + head;
            const int fits = store_key(c, chunk_at(c, c->keys, c->key_dim, head, chunk), at, job->k + index * c->key_dim) &
                             store_value(c, chunk_at(c, c->values, c->value_dim, head, chunk), at, job->v + index * c->value_dim);
            if (!fits) job->overflow = 1;
        }
}

int ms_attention(ms_pool *pool, const float *q, const float *k, const float *v, const ms_cache *cache, int64_t n, int64_t start,
                 int64_t n_heads, float scale, int64_t window, float softcap, const float *sinks, const int32_t *until,
                 float *out) {
    attention_job job = {.q = q, .k = k, .v = v, .sinks = sinks, .until = until, .cache = cache, .n = n, .start = start, .n_heads = n_heads,
                         .group = n_heads / cache->n_kv_heads, .window = window, .scale = scale, .softcap = softcap, .out = out};
    job.chunks = (start + n + CHUNK - 1) / CHUNK;
    job.part_floats = (VALUES + cache->value_dim + 15) / 16 * 16;
    job.scratch_bytes = (CHUNK * (cache->key_dim + cache->value_dim) + ROWS * job.group * (cache->key_dim + job.part_floats) +
                         QUERIES * job.part_floats) * (int64_t)sizeof(float);
    job.scratch_bytes = (job.scratch_bytes + 63) / 64 * 64;
    job.scratch = pool_scratch(pool, 2, job.scratch_bytes * pool_threads(pool));
    if (!job.scratch) return MS_NO_MEMORY;
    if (k) pool_run(pool, store_rows, &job, n, CHUNK);
    if (job.overflow) return MS_OVERFLOW;
    if (n == 1) {
        job.parts = pool_scratch(pool, 3, n_heads * job.chunks * job.part_floats * (int64_t)sizeof(float));
        if (!job.parts) return MS_NO_MEMORY;
        pool_run(pool, make_parts, &job, cache->n_kv_heads * job.chunks, 1);
        pool_run(pool, merge_parts, &job, n_heads, job.chunks < 32 ? n_heads : 1);
    } else {
        pool_run(pool, attend_rows, &job, (n + ROWS - 1) / ROWS * cache->n_kv_heads, 1);
    }
    return MS_OK;
}
