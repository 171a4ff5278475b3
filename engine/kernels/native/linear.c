/* Linear layers straight from the disk layout (CONTRACT.md, sections 4 to 6).
 *
 * The unit of work is a strip: some weight rows against all n activation rows, giving [n][rows] results. For few activation rows a
 * strip is done row by row (linear_rows.h), for many through a tile (linear_tiles.h). Both add the same terms to the same lanes in
 * the same order.
 */
#include "encodings_256.h"
#include "encodings_32.h"
#include "encodings_iq.h"
#include "functions.h"
#include "linear_floats.h"
#include "linear_rows.h"
#include "linear_tiles.h"
#include "linear_token.h"
#include "pool.h"
#include "token.h"

/* `rows` weight rows from `first` on against n activation rows: → out[n][strip width]. */
INLINE void packed_strip(packed_encoding e, const ms_weight *w, int64_t first, int rows, activations a, int64_t n, char *scratch, float *out) {
    if (n < TILE_FROM) {
        const uint8_t *row = w->data + first * w->row_bytes;
        for (int64_t i = 0; i < n; i++) rows_dot(e, row, w->row_bytes, rows, row_of(a, i), out + i * STRIP);
        return;
    }
    const tile t = tile_in(scratch, w->columns, w->columns / e.width);
    unpack_tile(e, w, first, rows, t);
    multiply_tile(e.width, e.has_minimum, t, a, (float(*)[TILE])out);
}

typedef struct {
    const float *x;
    activations a;
    int64_t n, count;
    const ms_weight *weights[3];
    float *out[3];
    const float *bias, *residual;
    float softcap; /* 0: none */
    int gated, again; /* again: the activations are there already */
    ms_activation activation;
    int width;     /* weight rows of a strip */
    int64_t grain; /* strips that a thread takes at once */
    char *scratch; /* per thread: the tile or the decoded rows, then two results [grain][n][width] */
    int64_t scratch_bytes, result_bytes;
} linear_job;

static int64_t strips(const linear_job *job, const ms_weight *w) { return (w->rows + job->width - 1) / job->width; }

/* Each encoding's strip is a function of its own: together in one they cost several per cent. */
typedef void (*strip_function)(const ms_weight *w, int64_t first, int rows, const activations *a, int64_t n, char *scratch, float *out);
#define STRIP_FUNCTION(kind, name) \
    static void kind##_##name(const ms_weight *w, int64_t first, int rows, const activations *a, int64_t n, char *scratch, float *out) { \
        kind##_strip(name, w, first, rows, *a, n, scratch, out); \
    }
#define PACKED(name) STRIP_FUNCTION(packed, name)
#define TERNARY(name) STRIP_FUNCTION(token, name)
MS_PACKED(PACKED)
MS_TERNARY(TERNARY)
#undef PACKED
#undef TERNARY

/* NULL for float weights. */
static strip_function function_for(const ms_weight *w) {
#define PACKED(name) [MS_##name] = packed_##name,
#define TERNARY(name) [MS_##name] = token_##name,
    static const strip_function packed[MS_ENCODINGS] = {MS_PACKED(PACKED)}, token[MS_ENCODINGS] = {MS_TERNARY(TERNARY)};
    return (w->row_scales ? token : packed)[w->encoding];
}

INLINE void dot(const ms_weight *w, int64_t first, const float *x, const activations *a, int64_t n, char *scratch, float *out) {
    const int width = n < TILE_FROM ? STRIP : TILE, rows = w->rows - first < width ? (int)(w->rows - first) : width;
    const strip_function multiply = function_for(w);
    if (multiply)
        multiply(w, first, rows, a, n, scratch, out);
    else
        float_strip(w, first, rows, x, n, scratch, out, width);
    if (w->scale != 1.0f)
        for (int64_t i = 0; i < n; i++)
            for (int r = 0; r < rows; r++) out[i * width + r] *= w->scale;
}

void strip_dot(const ms_weight *w, int64_t first, const float *x, const activations *a, int64_t n, char *scratch, float *out) {
    dot(w, first, x, a, n, scratch, out);
}

INLINE void strip(const linear_job *job, const ms_weight *w, int64_t first, char *scratch, float *out) {
    dot(w, first, job->x, &job->a, job->n, scratch, out);
}

static void soften(float *x, int64_t n, float cap) {
    for (int64_t i = 0; i < n; i += 8) store_some(x + i, n - i, f8_softcap(load_some(x + i, n - i), cap));
}

/* Strips first … last-1 of both weights, one weight after the other: each is read in one stream. */
static void gated_strips(const linear_job *job, int64_t first, int64_t last, char *scratch, float *result) {
    const int64_t rows = job->weights[0]->rows, total = job->weights[0]->total, n = job->n, width = job->width;
    float *out = job->out[0] + job->weights[0]->first;
    float *gate = result, *up = result + job->grain * n * width;
    for (int64_t item = first; item < last; item++) strip(job, job->weights[0], item * width, scratch, gate + (item - first) * n * width);
    for (int64_t item = first; item < last; item++) strip(job, job->weights[1], item * width, scratch, up + (item - first) * n * width);
    for (int64_t item = first; item < last; item++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t part = 0; part < width && item * width + part < rows; part += 8) {
                const int64_t at = ((item - first) * n + i) * width + part, row = item * width + part;
                const f8 value = f8_gated(job->activation, f8_load(gate + at), f8_load(up + at));
                store_some(out + i * total + row, rows - row, value);
            }
}

static void plain_strip(const linear_job *job, int which, int64_t first, char *scratch, float *result) {
    const ms_weight *w = job->weights[which];
    const int64_t count = w->rows - first < job->width ? w->rows - first : job->width, column = w->first + first;
    strip(job, w, first, scratch, result);
    for (int64_t i = 0; i < job->n; i++) {
        float *out = job->out[which] + i * w->total + column;
        const float *bias = which == 0 && job->bias ? job->bias + column : NULL;
        const float *residual = which == 0 && job->residual ? job->residual + i * w->total + column : NULL;
        for (int64_t r = 0; r < count; r++) {
            float value = result[i * job->width + r];
            if (bias) value += bias[r];
            if (residual) value += residual[r];
            out[r] = value;
        }
        if (job->softcap != 0.0f) soften(out, count, job->softcap);
    }
}

static void linear_strips(void *data, int64_t first, int64_t last, int thread) {
    const linear_job *job = data;
    char *scratch = job->scratch + thread * (job->scratch_bytes + job->result_bytes);
    float *result = (float *)(scratch + job->scratch_bytes);
    if (job->gated) {
        for (int64_t item = first; item < last; item += job->grain)
            gated_strips(job, item, item + job->grain < last ? item + job->grain : last, scratch, result);
        return;
    }
    for (int64_t item = first; item < last; item++) {
        int64_t at = item;
        int which = 0;
        while (at >= strips(job, job->weights[which])) at -= strips(job, job->weights[which++]);
        plain_strip(job, which, at * job->width, scratch, result);
    }
}

static void quantise_task(void *data, int64_t first, int64_t last, int thread) {
    (void)thread;
    const linear_job *job = data;
    if (job->weights[0]->row_scales)
        token_rows(job->x, job->a, first, last);
    else
        quantise_rows(job->x, job->a, first, last);
}

activation_bytes strip_bytes(int64_t encoding) {
#define BYTES(name) \
    case MS_##name: return bytes_for(name);
    switch (encoding) {
        MS_PACKED(BYTES)
    default: return NO_BYTES;
    }
}

int64_t strip_scratch(int64_t columns) { return (columns * (TILE_BYTES > FLOAT_BYTES ? TILE_BYTES : FLOAT_BYTES) + 63) / 64 * 64; }

int64_t strip_grain(const ms_pool *pool, int64_t n, int64_t items) {
    enum { LARGEST = 16, PER_THREAD = 4 };
    const int64_t grain = n < TILE_FROM ? items / (PER_THREAD * pool_threads(pool)) : 1;
    return grain < 1 ? 1 : grain > LARGEST ? LARGEST : grain;
}

static int run(ms_pool *pool, linear_job *job) {
    const int64_t columns = job->weights[0]->columns, n = job->n;
    job->width = n < TILE_FROM ? STRIP : TILE;
    int packed = 0, bytes = NO_BYTES;
    int64_t items = 0;
    for (int i = 0; i < job->count; i++) {
        packed |= job->weights[i]->encoding > MS_BF16;
        if (n < TILE_FROM) bytes |= strip_bytes(job->weights[i]->encoding);
        if (!job->gated || i == 0) items += strips(job, job->weights[i]);
    }
    if (packed) {
        char *memory = pool_scratch(pool, 0, activations_size(n, columns, bytes));
        if (!memory) return MS_NO_MEMORY;
        job->a = activations_in(memory, n, columns, bytes);
        if (!job->again) pool_run(pool, quantise_task, job, n, n < TOKENS ? n : TOKENS);
    }
    job->grain = strip_grain(pool, n, items);
    job->result_bytes = (2 * job->grain * n * job->width * (int64_t)sizeof(float) + 63) / 64 * 64;
    job->scratch_bytes = strip_scratch(columns);
    job->scratch = pool_scratch(pool, 1, pool_threads(pool) * (job->scratch_bytes + job->result_bytes));
    if (!job->scratch) return MS_NO_MEMORY;
    pool_run(pool, linear_strips, job, items, job->grain);
    return MS_OK;
}

int ms_linear(ms_pool *pool, const float *x, int64_t n, int64_t count, const ms_weight *w0, const ms_weight *w1, const ms_weight *w2,
              float *out0, float *out1, float *out2, const float *bias, const float *residual, float softcap,
              int64_t again) {
    linear_job job = {.x = x, .n = n, .count = count, .weights = {w0, w1, w2}, .out = {out0, out1, out2}, .bias = bias,
                      .residual = residual, .softcap = softcap, .again = again != 0};
    return run(pool, &job);
}

int ms_gated(ms_pool *pool, const float *x, int64_t n, int64_t activation, const ms_weight *gate, const ms_weight *up, float *out,
             int64_t again) {
    linear_job job = {.x = x, .n = n, .count = 2, .weights = {gate, up}, .out = {out}, .gated = 1, .again = again != 0,
                      .activation = (ms_activation)activation};
    return run(pool, &job);
}
