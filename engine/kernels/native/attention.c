/* The key-value cache and attention in chunks of 64 positions (CONTRACT.md, sections 9 and 10).
 *
 * A part is what one query row and head make of one chunk: its largest score, the sum of its weights, and its weighted values.
 * Parts may be made anywhere; merging them in ascending order gives the answer. A single row splits over chunks, so that
 * threads share a long history; many rows split over rows, and merge as they go.
 */
#include "millstream.h"
#include "pool.h"
#include "simd.h"

enum { CHUNK = 64, ROWS = 8 };

typedef struct {
    const float *q, *k, *v;
    const ms_cache *cache;
    int64_t n, start, n_heads, group, window;
    float scale, softcap;
    float *out;
    int64_t chunks;   /* of the whole history */
    float *parts;     /* single row: [n_heads][chunks][part_floats] */
    int64_t part_floats;
    char *scratch;    /* per thread: a chunk of keys and values as float32, scaled queries, a part, a state for each row and head */
    int64_t scratch_bytes;
    _Atomic int overflow;
} attention_job;

/* A part or a state: largest score, sum of weights, then value_dim weighted values. */
enum { TOP, TOTAL, VALUES };

static void store_row(attention_job *job, const float *x, void *base, int64_t dim, int64_t head, int64_t position) {
    const ms_cache *c = job->cache;
    const int64_t at = (head * c->capacity + position) * dim;
    if (!c->half) {
        memcpy((float *)base + at, x, (size_t)dim * sizeof(float));
        return;
    }
    _Float16 *out = (_Float16 *)base + at;
    for (int64_t i = 0; i < dim; i++) {
        out[i] = (_Float16)x[i];
        uint16_t bits;
        memcpy(&bits, out + i, 2);
        if ((bits & 0x7fff) == 0x7c00 && isfinite(x[i])) job->overflow = 1;
    }
}

static void store_rows(void *data, int64_t first, int64_t last, int thread) {
    (void)thread;
    attention_job *job = data;
    const ms_cache *c = job->cache;
    for (int64_t row = first; row < last; row++)
        for (int64_t head = 0; head < c->n_kv_heads; head++) {
            store_row(job, job->k + (row * c->n_kv_heads + head) * c->key_dim, c->keys, c->key_dim, head, job->start + row);
            store_row(job, job->v + (row * c->n_kv_heads + head) * c->value_dim, c->values, c->value_dim, head, job->start + row);
        }
}

static void widen(const ms_cache *c, const void *base, int64_t dim, int64_t head, int64_t position, int64_t count, float *out) {
    const int64_t at = (head * c->capacity + position) * dim, n = count * dim;
    if (!c->half) {
        memcpy(out, (const float *)base + at, (size_t)n * sizeof(float));
        return;
    }
    const _Float16 *in = (const _Float16 *)base + at;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) f8_store(out + i, f8_from_half(in + i));
    for (; i < n; i++) out[i] = (float)in[i];
}

INLINE float lane_dot(const float *a, const float *b, int64_t n) {
    f8 lanes = f8_set(0.0f);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) lanes = lanes + f8_load(a + i) * f8_load(b + i);
    for (int lane = 0; i < n; i++, lane++) lanes[lane] += a[i] * b[i];
    return f8_tree(lanes);
}

/* `count` <= 8 vectors of the result from element d on: their sums wait for each other, so that eight go side by side. */
INLINE void weigh_vectors(const float *values, int64_t dim, const float *p, int low, int high, int64_t d, int count, float *out) {
    f8 a[8];
    for (int i = 0; i < count; i++) a[i] = f8_set(0.0f);
    for (int j = low; j < high; j++)
        for (int i = 0; i < count; i++) a[i] = a[i] + f8_load(values + j * dim + d + 8 * i) * p[j];
    for (int i = 0; i < count; i++) f8_store(out + d + 8 * i, a[i]);
}

/* Values of positions low … high-1 weighted and summed. */
INLINE void weigh_values(const float *values, int64_t dim, const float *p, int low, int high, float *out) {
    int64_t d = 0;
    for (; d + 64 <= dim; d += 64) weigh_vectors(values, dim, p, low, high, d, 8, out);
    for (; d + 8 <= dim; d += 8) weigh_vectors(values, dim, p, low, high, d, 1, out);
    for (; d < dim; d++) {
        float a = 0.0f;
        for (int j = low; j < high; j++) a += values[j * dim + d] * p[j];
        out[d] = a;
    }
}

/* One scaled query against positions low … high-1 of a widened chunk. */
static void attend(const attention_job *job, const float *q, const float *keys, const float *values, int low, int high, float *part) {
    const int64_t key_dim = job->cache->key_dim;
    float p[CHUNK];
    f8 lanes = f8_set(0.0f);
    float top = -INFINITY;
    for (int j = 0; j < CHUNK; j++) p[j] = 0.0f;
    for (int j = low; j < high; j++) p[j] = lane_dot(q, keys + j * key_dim, key_dim);
    if (job->softcap != 0.0f)
        for (int j = 0; j < CHUNK; j += 8) f8_store(p + j, f8_tanh(f8_load(p + j) / job->softcap) * job->softcap);
    for (int j = low; j < high; j++) top = p[j] > top ? p[j] : top;
    for (int j = 0; j < CHUNK; j += 8) {
        f8_store(p + j, f8_exp(f8_load(p + j) - top));
        for (int i = j; i < j + 8; i++)
            if (i < low || i >= high) p[i] = 0.0f;
        lanes = lanes + f8_load(p + j);
    }
    part[TOP] = top;
    part[TOTAL] = f8_tree(lanes);
    weigh_values(values, job->cache->value_dim, p, low, high, part + VALUES);
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

static void finish(const float *state, int64_t dim, float *out) {
    for (int64_t d = 0; d < dim; d++) out[d] = state[VALUES + d] / state[TOTAL];
}

/* The first position that the row at `position` sees. */
static int64_t first_seen(const attention_job *job, int64_t position) {
    return job->window && position + 1 > job->window ? position + 1 - job->window : 0;
}

static float *widen_chunk(const attention_job *job, int64_t head, int64_t chunk, int64_t end, int thread) {
    const ms_cache *c = job->cache;
    float *keys = (float *)(job->scratch + thread * job->scratch_bytes);
    const int64_t first = chunk * CHUNK, count = end - first < CHUNK ? end - first : CHUNK;
    widen(c, c->keys, c->key_dim, head, first, count, keys);
    widen(c, c->values, c->value_dim, head, first, count, keys + CHUNK * c->key_dim);
    return keys;
}

static void scale_query(const attention_job *job, const float *q, float *out) {
    for (int64_t i = 0; i < job->cache->key_dim; i++) out[i] = q[i] * job->scale;
}

/* Items: (kv head, chunk) of a single row. */
static void make_parts(void *data, int64_t first, int64_t last, int thread) {
    attention_job *job = data;
    const ms_cache *c = job->cache;
    const int64_t position = job->start, from = first_seen(job, position);
    for (int64_t item = first; item < last; item++) {
        const int64_t kv_head = item / job->chunks, chunk = item % job->chunks, base = chunk * CHUNK;
        const int high = position + 1 - base < CHUNK ? (int)(position + 1 - base) : CHUNK;
        const int low = from > base ? (int)(from - base) : 0;
        if (low >= high) continue;
        float *keys = widen_chunk(job, kv_head, chunk, position + 1, thread), *values = keys + CHUNK * c->key_dim;
        float *q = values + CHUNK * c->value_dim;
        for (int64_t g = 0; g < job->group; g++) {
            const int64_t head = kv_head * job->group + g;
            scale_query(job, job->q + head * c->key_dim, q);
            attend(job, q, keys, values, low, high, job->parts + (head * job->chunks + chunk) * job->part_floats);
        }
    }
}

static void merge_parts(attention_job *job) {
    const int64_t dim = job->cache->value_dim, first_chunk = first_seen(job, job->start) / CHUNK;
    float *state = (float *)job->scratch;
    for (int64_t head = 0; head < job->n_heads; head++) {
        start_state(state, dim);
        for (int64_t chunk = first_chunk; chunk < job->chunks; chunk++)
            merge(state, job->parts + (head * job->chunks + chunk) * job->part_floats, dim);
        finish(state, dim, job->out + head * dim);
    }
}

/* Items: (block of ROWS rows, kv head). */
static void attend_rows(void *data, int64_t first, int64_t last, int thread) {
    attention_job *job = data;
    const ms_cache *c = job->cache;
    const int64_t dim = c->value_dim;
    for (int64_t item = first; item < last; item++) {
        const int64_t kv_head = item % c->n_kv_heads, row = item / c->n_kv_heads * ROWS;
        const int64_t rows = job->n - row < ROWS ? job->n - row : ROWS, heads = rows * job->group;
        const int64_t end = job->start + row + rows;
        float *keys = (float *)(job->scratch + thread * job->scratch_bytes), *values = keys + CHUNK * c->key_dim;
        float *q = values + CHUNK * dim, *part = q + ROWS * job->group * c->key_dim, *states = part + job->part_floats;
        for (int64_t i = 0; i < heads; i++) {
            const int64_t at = (row + i / job->group) * job->n_heads + kv_head * job->group + i % job->group;
            scale_query(job, job->q + at * c->key_dim, q + i * c->key_dim);
            start_state(states + i * job->part_floats, dim);
        }
        for (int64_t chunk = first_seen(job, job->start + row) / CHUNK; chunk * CHUNK < end; chunk++) {
            widen_chunk(job, kv_head, chunk, end, thread);
            for (int64_t i = 0; i < heads; i++) {
                const int64_t position = job->start + row + i / job->group, base = chunk * CHUNK, from = first_seen(job, position);
                const int high = position + 1 - base < CHUNK ? (int)(position + 1 - base) : CHUNK;
                const int low = from > base ? (int)(from - base) : 0;
                if (low >= high) continue;
                attend(job, q + i * c->key_dim, keys, values, low, high, part);
                merge(states + i * job->part_floats, part, dim);
            }
        }
        for (int64_t i = 0; i < heads; i++) {
            const int64_t at = (row + i / job->group) * job->n_heads + kv_head * job->group + i % job->group;
            finish(states + i * job->part_floats, dim, job->out + at * dim);
        }
    }
}

int ms_attention(ms_pool *pool, const float *q, const float *k, const float *v, const ms_cache *cache, int64_t n, int64_t start,
                 int64_t n_heads, float scale, int64_t window, float softcap, float *out) {
    attention_job job = {.q = q, .k = k, .v = v, .cache = cache, .n = n, .start = start, .n_heads = n_heads,
                         .group = n_heads / cache->n_kv_heads, .window = window, .scale = scale, .softcap = softcap, .out = out};
    job.chunks = (start + n + CHUNK - 1) / CHUNK;
    job.part_floats = (VALUES + cache->value_dim + 15) / 16 * 16;
    const int64_t heads = ROWS * job.group;
    job.scratch_bytes = (CHUNK * (cache->key_dim + cache->value_dim) + heads * cache->key_dim + (heads + 1) * job.part_floats) *
                        (int64_t)sizeof(float);
    job.scratch_bytes = (job.scratch_bytes + 63) / 64 * 64;
    job.scratch = pool_scratch(pool, 2, job.scratch_bytes * pool_threads(pool));
    if (!job.scratch) return MS_NO_MEMORY;
    pool_run(pool, store_rows, &job, n, 16);
    if (job.overflow) return MS_OVERFLOW;
    if (n == 1) {
        job.parts = pool_scratch(pool, 3, n_heads * job.chunks * job.part_floats * (int64_t)sizeof(float));
        if (!job.parts) return MS_NO_MEMORY;
        pool_run(pool, make_parts, &job, cache->n_kv_heads * job.chunks, 1);
        merge_parts(&job);
    } else {
        pool_run(pool, attend_rows, &job, (n + ROWS - 1) / ROWS * cache->n_kv_heads, 1);
    }
    return MS_OK;
}
