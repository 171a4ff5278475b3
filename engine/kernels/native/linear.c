/* Linear layers straight from the disk layout (CONTRACT.md, sections 4 to 6).
 *
 * The unit of work is a strip: eight weight rows against all n activation rows, giving [n][8] results. For few activation rows a
 * strip is done row by row (linear_rows.h), for many through a tile (linear_tiles.h). Both add the same terms to the same lanes in
 * the same order.
 */
#include "encodings_256.h"
#include "encodings_32.h"
#include "linear_floats.h"
#include "linear_rows.h"
#include "linear_tiles.h"
#include "pool.h"

enum { GRAIN_STRIPS = 8 };

INLINE void packed_strip(packed_encoding e, const ms_weight *w, int64_t first, int rows, activations a, int64_t n, char *scratch,
                         float (*out)[STRIP]) {
    const int64_t units = a.columns / e.width;
    if (n < TILE_FROM) {
        for (int64_t row = 0; row < n; row++)
            for (int r = 0; r < rows; r++) out[row][r] = row_dot(e, w->data + (first + r) * w->row_bytes, row_of(a, row), units);
        return;
    }
    tile t = {(int16_t *)scratch, (f8 *)(scratch + a.columns * 16), (f8 *)(scratch + a.columns * 16) + units};
    unpack_tile(e, w, first, rows, units, t);
    int64_t row = 0;
    for (; row + TOKENS <= n; row += TOKENS) tile_dot(e, t, a, row, TOKENS, units, out);
    for (; row < n; row++) tile_dot(e, t, a, row, 1, units, out);
}

typedef struct {
    const float *x;
    activations a;
    int64_t n, count;
    const ms_weight *weights[3];
    float *out[3];
    const float *bias, *residual;
    int gated;
    int64_t grain; /* strips that a thread takes at once */
    char *scratch; /* per thread: the tile or the decoded rows, then two results [grain][n][8] */
    int64_t scratch_bytes, result_bytes;
} linear_job;

static int64_t strips(const ms_weight *w) { return (w->rows + STRIP - 1) / STRIP; }

static void strip(const linear_job *job, const ms_weight *w, int64_t first, char *scratch, float (*out)[STRIP]) {
    const int rows = w->rows - first < STRIP ? (int)(w->rows - first) : STRIP;
#define PACKED(name) \
    case MS_##name: packed_strip(name, w, first, rows, job->a, job->n, scratch, out); break;
    switch (w->encoding) {
        MS_PACKED(PACKED)
    default: float_strip(w, first, rows, job->x, job->n, scratch, out);
    }
}

/* Strips first … last-1 of both weights, one weight after the other: each is read in one stream. */
static void gated_strips(const linear_job *job, int64_t first, int64_t last, char *scratch, float (*result)[STRIP]) {
    float(*gate)[STRIP] = result, (*up)[STRIP] = result + job->grain * job->n;
    const int64_t rows = job->weights[0]->rows, n = job->n;
    for (int64_t item = first; item < last; item++) strip(job, job->weights[0], item * STRIP, scratch, gate + (item - first) * n);
    for (int64_t item = first; item < last; item++) strip(job, job->weights[1], item * STRIP, scratch, up + (item - first) * n);
    for (int64_t item = first; item < last; item++)
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = (item - first) * n + i;
            const f8 value = f8_silu(f8_load(gate[at])) * f8_load(up[at]);
            for (int r = 0; r < STRIP && item * STRIP + r < rows; r++) job->out[0][i * rows + item * STRIP + r] = value[r];
        }
}

static void plain_strip(const linear_job *job, int which, int64_t first, char *scratch, float (*result)[STRIP]) {
    const int64_t rows = job->weights[which]->rows;
    strip(job, job->weights[which], first, scratch, result);
    for (int64_t i = 0; i < job->n; i++)
        for (int r = 0; r < STRIP && first + r < rows; r++) {
            const int64_t at = i * rows + first + r;
            float value = result[i][r];
            if (job->bias && which == 0) value += job->bias[first + r];
            if (job->residual && which == 0) value += job->residual[at];
            job->out[which][at] = value;
        }
}

static void linear_strips(void *data, int64_t first, int64_t last, int thread) {
    const linear_job *job = data;
    char *scratch = job->scratch + thread * (job->scratch_bytes + job->result_bytes);
    float(*result)[STRIP] = (float(*)[STRIP])(scratch + job->scratch_bytes);
    if (job->gated) {
        for (int64_t item = first; item < last; item += job->grain)
            gated_strips(job, item, item + job->grain < last ? item + job->grain : last, scratch, result);
        return;
    }
    for (int64_t item = first; item < last; item++) {
        int64_t at = item;
        int which = 0;
        while (at >= strips(job->weights[which])) at -= strips(job->weights[which++]);
        plain_strip(job, which, at * STRIP, scratch, result);
    }
}

static void quantise_task(void *data, int64_t first, int64_t last, int thread) {
    (void)thread;
    const linear_job *job = data;
    quantise_rows(job->x, job->a, first, last);
}

static int run(ms_pool *pool, linear_job *job) {
    const int64_t columns = job->weights[0]->columns, n = job->n;
    int packed = 0;
    int64_t items = 0;
    for (int i = 0; i < job->count; i++) {
        packed |= job->weights[i]->encoding > MS_BF16;
        if (!job->gated || i == 0) items += strips(job->weights[i]);
    }
    if (packed) {
        activations *a = &job->a;
        a->columns = columns;
        a->runs = columns / RUN;
        const int64_t bytes = n < TILE_FROM && a->runs >= OCTET ? n * (a->runs / OCTET + 1) * OCTET_BYTES : 0;
        char *memory = pool_scratch(pool, 0, n * (columns * 2 + a->runs * 16) + 2 * bytes);
        if (!memory) return MS_NO_MEMORY;
        a->q = (int16_t *)memory;
        a->s = (float *)(a->q + n * columns);
        a->sums = (int32_t *)(a->s + n * a->runs);
        a->halves = a->sums + n * a->runs;
        if (bytes) {
            a->low = (int8_t *)(a->halves + 2 * n * a->runs);
            a->high = a->low + bytes;
        }
        pool_run(pool, quantise_task, job, n, n < 8 ? n : 8);
    }
    job->grain = n < TILE_FROM ? GRAIN_STRIPS : 1;
    job->result_bytes = 2 * job->grain * n * STRIP * (int64_t)sizeof(float);
    job->scratch_bytes = (columns * 32 + 63) / 64 * 64;
    job->scratch = pool_scratch(pool, 1, pool_threads(pool) * (job->scratch_bytes + job->result_bytes));
    if (!job->scratch) return MS_NO_MEMORY;
    pool_run(pool, linear_strips, job, items, job->grain);
    return MS_OK;
}

int ms_linear(ms_pool *pool, const float *x, int64_t n, int64_t count, const ms_weight *w0, const ms_weight *w1, const ms_weight *w2,
              float *out0, float *out1, float *out2, const float *bias, const float *residual) {
    linear_job job = {.x = x, .n = n, .count = count, .weights = {w0, w1, w2}, .out = {out0, out1, out2}, .bias = bias,
                      .residual = residual};
    return run(pool, &job);
}

int ms_gated_silu(ms_pool *pool, const float *x, int64_t n, const ms_weight *gate, const ms_weight *up, float *out) {
    linear_job job = {.x = x, .n = n, .count = 2, .weights = {gate, up}, .out = {out}, .gated = 1};
    return run(pool, &job);
}
