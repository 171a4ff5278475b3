/* Linear layers straight from the disk layout (CONTRACT.md, sections 4 to 6).
 *
 * The unit of work is a strip: eight weight rows against all n activation rows, giving [n][8] results. For few activation rows a
 * strip is done row by row, so that memory is read in one stream; a vector then holds eight units, which are the contract's eight
 * lanes. For many, its codes are unpacked once into a tile that interleaves neighbouring input pairs of the eight rows, so that one
 * multiply-add against a broadcast pair gives eight rows' sums; the lanes are then eight vectors. Both add the same terms to
 * the same lanes in the same order.
 */
#include "encodings.h"
#include "millstream.h"
#include "pool.h"
#include "quantise.h"

/* Bytes that reads run ahead of the arithmetic, further than the processor would on its own. */
enum { AHEAD = 2048 };

enum { STRIP = 8, GRAIN_STRIPS = 8, TILE_FROM = 4 };

#if defined(__AVX512VL__)
enum { TOKENS = 8 }; /* activation rows per pass over a tile: as many as the registers hold */
#else
enum { TOKENS = 4 };
#endif

/* ---- one weight row, one activation row ---- */

typedef struct {
    octet_activations bytes;
    const float *s;
    const int32_t *sums;
} activation_row;

INLINE activation_row row_of(activations a, int64_t row) {
    const int64_t bytes = row * (a.units / OCTET + 1) * OCTET_BYTES;
    return (activation_row){{a.q + row * a.columns, a.low + bytes, a.high + bytes}, a.s + row * a.units, a.sums + row * a.units};
}

INLINE i32x8 unit_dot(packed_encoding e, const uint8_t *p, const int16_t *q) {
    i16x16 codes[2];
    e.codes(p, codes);
    return i16_dot(i16_dot((i32x8){0}, codes[0], i16_load(q)), codes[1], i16_load(q + 16));
}

/* The terms of the eight units from p on, the activations standing at unit u and their bytes at octet o. */
INLINE void octet_terms(packed_encoding e, const uint8_t *p, activation_row x, int64_t u, int64_t o, f8 *term, f8 *minimum_term) {
    for (int line = 0; line < OCTET * e.unit_bytes; line += 64) __builtin_prefetch(p + AHEAD + line);
    const octet_activations at = {x.bytes.q + u * UNIT, x.bytes.low + o * OCTET_BYTES, x.bytes.high + o * OCTET_BYTES};
    const f8 step = f8_load(x.s + u);
    f8 scale, minimum;
    i32x8 dots;
    if (e.dots) {
        dots = e.dots(p, at);
    } else {
        i32x8 part[8];
        for (int i = 0; i < 8; i++) part[i] = unit_dot(e, p + i * e.unit_bytes, at.q + i * UNIT);
        dots = i32_sums(part);
    }
    e.scales(p, 8, &scale, &minimum);
    *term = (scale * step) * f8_from_i32(dots);
    *minimum_term = (minimum * step) * f8_from_i32(i32_load(x.sums + u));
}

/* A row of fewer than eight units. */
INLINE float short_row_dot(packed_encoding e, const uint8_t *p, activation_row x, int64_t units) {
    float lanes[8] = {0};
    for (int64_t u = 0; u < units; u++) {
        f8 scale, minimum;
        e.scales(p + u * e.unit_bytes, 1, &scale, &minimum);
        lanes[u] += (scale[0] * x.s[u]) * (float)i32_sum(unit_dot(e, p + u * e.unit_bytes, x.bytes.q + u * UNIT));
        if (e.has_minimum) lanes[u] += (minimum[0] * x.s[u]) * (float)x.sums[u];
    }
    return f8_tree(f8_load(lanes));
}

INLINE float row_dot(packed_encoding e, const uint8_t *p, activation_row x, int64_t units) {
    if (units < OCTET) return short_row_dot(e, p, x, units);
    const int rest = (int)(units % OCTET);
    f8 lanes = f8_set(0.0f), term, minimum_term;
    int64_t u = 0;
    for (; u + OCTET <= units; u += OCTET) {
        octet_terms(e, p + u * e.unit_bytes, x, u, u / OCTET, &term, &minimum_term);
        lanes = lanes + term;
        if (e.has_minimum) lanes = lanes + minimum_term;
    }
    if (rest) {
        /* The last eight units again: those already added become +0, which changes no lane, and the others turn to their lanes. */
        octet_terms(e, p + (units - OCTET) * e.unit_bytes, x, units - OCTET, units / OCTET, &term, &minimum_term);
        const i32x8 lane = {0, 1, 2, 3, 4, 5, 6, 7}, mask = lane < rest;
        lanes = lanes + (f8)(mask & (i32x8)f8_rotate(term, rest));
        if (e.has_minimum) lanes = lanes + (f8)(mask & (i32x8)f8_rotate(minimum_term, rest));
    }
    return f8_tree(lanes);
}

/* ---- eight weight rows, many activation rows ---- */

INLINE void transpose(i32x8 v[8]) {
    i32x8 a[8], b[8];
    for (int i = 0; i < 4; i++) {
        a[2 * i] = __builtin_shufflevector(v[2 * i], v[2 * i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
        a[2 * i + 1] = __builtin_shufflevector(v[2 * i], v[2 * i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            b[i + j] = __builtin_shufflevector(a[i + j], a[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            b[i + j + 2] = __builtin_shufflevector(a[i + j], a[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    for (int i = 0; i < 4; i++) {
        v[i] = __builtin_shufflevector(b[i], b[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        v[i + 4] = __builtin_shufflevector(b[i], b[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

typedef struct {
    int16_t *pairs;  /* [columns / 2][8 rows][2] */
    f8 *scale;       /* [units], one element a row */
    f8 *minimum;     /* [units] */
} tile;

INLINE void unpack_tile(packed_encoding e, const ms_weight *w, int64_t first, int rows, int64_t units, tile t) {
    const uint8_t *row = w->data + first * w->row_bytes;
    for (int64_t u = 0; u < units; u++) {
        i32x8 pairs[2][8];
        for (int r = 0; r < 8; r++) {
            i16x16 codes[2] = {{0}, {0}};
            if (r < rows) e.codes(row + r * w->row_bytes + u * e.unit_bytes, codes);
            pairs[0][r] = (i32x8)codes[0];
            pairs[1][r] = (i32x8)codes[1];
        }
        for (int half = 0; half < 2; half++) {
            transpose(pairs[half]);
            memcpy(t.pairs + (u * 2 + half) * 128, pairs[half], sizeof pairs[half]);
        }
    }
    for (int64_t u = 0; u < units; u += 8) {
        const int count = units - u < 8 ? (int)(units - u) : 8;
        f8 scale[8], minimum[8];
        for (int r = 0; r < 8; r++) {
            scale[r] = minimum[r] = f8_set(0.0f);
            if (r < rows) e.scales(row + r * w->row_bytes + u * e.unit_bytes, count, &scale[r], &minimum[r]);
        }
        transpose((i32x8 *)scale);
        memcpy(t.scale + u, scale, (size_t)count * sizeof(f8));
        if (e.has_minimum) {
            transpose((i32x8 *)minimum);
            memcpy(t.minimum + u, minimum, (size_t)count * sizeof(f8));
        }
    }
}

INLINE i16x16 broadcast_pair(const int16_t *q) {
    int32_t pair;
    memcpy(&pair, q, sizeof pair);
    return (i16x16)(i32x8){pair, pair, pair, pair, pair, pair, pair, pair};
}

/* `tokens` activation rows from `row` against the tile. */
INLINE void tile_dot(packed_encoding e, tile t, activations a, int64_t row, int tokens, int64_t units, float (*out)[STRIP]) {
    const int16_t *q = a.q + row * a.columns;
    const float *s = a.s + row * a.units;
    const int32_t *sums = a.sums + row * a.units;
    f8 lanes[TOKENS][8];
    for (int lane = 0; lane < 8; lane++) {
        f8 total[TOKENS];
        for (int k = 0; k < tokens; k++) total[k] = f8_set(0.0f);
        for (int64_t u = lane; u < units; u += 8) {
            i32x8 dot[TOKENS];
            for (int k = 0; k < tokens; k++) dot[k] = (i32x8){0};
            for (int p = 0; p < UNIT / 2; p++) {
                const i16x16 codes = i16_load(t.pairs + (u * (UNIT / 2) + p) * 16);
                for (int k = 0; k < tokens; k++)
                    dot[k] = i16_dot(dot[k], codes, broadcast_pair(q + k * a.columns + u * UNIT + 2 * p));
            }
            for (int k = 0; k < tokens; k++) {
                const float step = s[k * a.units + u];
                total[k] = total[k] + (t.scale[u] * step) * f8_from_i32(dot[k]);
                if (e.has_minimum) total[k] = total[k] + (t.minimum[u] * step) * (float)sums[k * a.units + u];
            }
        }
        for (int k = 0; k < tokens; k++) lanes[k][lane] = total[k];
    }
    for (int k = 0; k < tokens; k++) {
        const f8 *l = lanes[k];
        f8_store(out[row + k], ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7])));
    }
}

INLINE void packed_strip(packed_encoding e, const ms_weight *w, int64_t first, int rows, activations a, int64_t n, char *scratch,
                         float (*out)[STRIP]) {
    const int64_t units = a.columns / UNIT;
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

/* ---- float weights ---- */

static void decode_floats(const uint8_t *data, int64_t encoding, int64_t n, float *out) {
    typedef uint16_t u16x8 __attribute__((vector_size(16)));
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        u16x8 bits;
        memcpy(&bits, data + 2 * i, sizeof bits);
        f8_store(out + i, encoding == MS_F16 ? __builtin_convertvector((h8)bits, f8) : (f8)(__builtin_convertvector(bits, i32x8) << 16));
    }
    for (; i < n; i++) {
        uint16_t half;
        memcpy(&half, data + 2 * i, 2);
        const uint32_t bits = (uint32_t)half << 16;
        memcpy(out + i, &bits, 4);
        if (encoding == MS_F16) out[i] = half_to_float(&half);
    }
}

INLINE void float_strip(const ms_weight *w, int64_t first, int rows, const float *x, int64_t n, char *scratch, float (*out)[STRIP]) {
    const int64_t columns = w->columns;
    const float *row[STRIP];
    for (int r = 0; r < STRIP; r++) {
        const uint8_t *data = w->data + (first + (r < rows ? r : 0)) * w->row_bytes;
        row[r] = (const float *)data;
        if (w->encoding != MS_F32) {
            float *decoded = (float *)scratch + r * columns;
            decode_floats(data, w->encoding, columns, decoded);
            row[r] = decoded;
        }
    }
    for (int64_t i = 0; i < n; i++) {
        const float *v = x + i * columns;
        f8 lanes[STRIP];
        for (int r = 0; r < STRIP; r++) lanes[r] = f8_set(0.0f);
        int64_t c = 0;
        for (; c + 8 <= columns; c += 8) {
            const f8 value = f8_load(v + c);
            for (int r = 0; r < STRIP; r++) lanes[r] = lanes[r] + value * f8_load(row[r] + c);
        }
        for (int lane = 0; c < columns; c++, lane++)
            for (int r = 0; r < STRIP; r++) {
                float weight;
                memcpy(&weight, row[r] + c, sizeof weight);
                lanes[r][lane] += v[c] * weight;
            }
        for (int r = 0; r < STRIP; r++) out[i][r] = f8_tree(lanes[r]);
    }
}

/* ---- the job ---- */

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
    switch (w->encoding) {
    case MS_Q4_1: packed_strip(Q4_1, w, first, rows, job->a, job->n, scratch, out); break;
    case MS_Q8_0: packed_strip(Q8_0, w, first, rows, job->a, job->n, scratch, out); break;
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
        packed |= job->weights[i]->encoding >= MS_Q4_1;
        if (!job->gated || i == 0) items += strips(job->weights[i]);
    }
    if (packed) {
        activations *a = &job->a;
        a->columns = columns;
        a->units = columns / UNIT;
        const int64_t bytes = n < TILE_FROM && a->units >= OCTET ? n * (a->units / OCTET + 1) * OCTET_BYTES : 0;
        char *memory = pool_scratch(pool, 0, n * (columns * 2 + a->units * 8) + 2 * bytes);
        if (!memory) return MS_NO_MEMORY;
        a->q = (int16_t *)memory;
        a->s = (float *)(a->q + n * columns);
        a->sums = (int32_t *)(a->s + n * a->units);
        if (bytes) {
            a->low = (int8_t *)(a->sums + n * a->units);
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
