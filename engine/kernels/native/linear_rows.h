/* One packed weight row against one activation row: memory is read in one stream, and a vector's eight elements are eight units,
 * which are the contract's eight lanes. */
#ifndef MILLSTREAM_LINEAR_ROWS_H
#define MILLSTREAM_LINEAR_ROWS_H

#include "encodings.h"
#include "quantise.h"

/* Bytes that reads run ahead of the arithmetic, further than the processor would on its own. */
enum { AHEAD = 2048 };

typedef struct {
    const int16_t *q;
    const float *s;
    const int32_t *sums, *halves;
    const int8_t *low, *high;
} activation_row;

INLINE activation_row row_of(activations a, int64_t row) {
    const int64_t runs = row * a.runs, bytes = row * (a.runs / OCTET + 1) * OCTET_BYTES;
    return (activation_row){a.q + row * a.columns, a.s + runs, a.sums + runs, a.halves + 2 * runs, a.low + bytes, a.high + bytes};
}

/* The codes of run r times the activations, as eight partial sums for each half. */
INLINE void run_dots(packed_encoding e, const uint8_t *row, int64_t r, const int16_t *q, i32x8 half[2]) {
    i16x16 codes[2];
    e.codes(row, r, codes);
    half[0] = i16_dot((i32x8){0}, codes[0], i16_load(q + r * RUN));
    half[1] = i16_dot((i32x8){0}, codes[1], i16_load(q + r * RUN + 16));
}

INLINE i32x8 octet_dots(packed_encoding e, const uint8_t *row, int64_t u, const int16_t *q) {
    i32x8 part[8];
    if (e.width == RUN) {
        for (int i = 0; i < 8; i++) {
            i16x16 codes[2];
            e.codes(row, u + i, codes);
            const int16_t *at = q + (u + i) * RUN;
            part[i] = i16_dot(i16_dot((i32x8){0}, codes[0], i16_load(at)), codes[1], i16_load(at + 16));
        }
    } else {
        for (int i = 0; i < 4; i++) run_dots(e, row, u / 2 + i, q, part + 2 * i);
    }
    return i32_sums(part);
}

/* The terms of eight units from unit u on; bytes of the activations stand at octet o. */
INLINE void octet_terms(packed_encoding e, const uint8_t *row, activation_row x, int64_t u, int64_t o, f8 *term, f8 *minimum_term) {
    const int octet_bytes = 8 * e.width / RUN * e.block_bytes / e.block_runs;
    const uint8_t *ahead = row + u / 8 * octet_bytes + AHEAD;
    for (int line = 0; line < octet_bytes; line += 64) __builtin_prefetch(ahead + line);
    f8 scale, minimum, step;
    i32x8 dots, sums;
    if (e.width == RUN) {
        step = f8_load(x.s + u);
        sums = i32_load(x.sums + u);
    } else {
        const float *s = x.s + u / 2;
        step = (f8){s[0], s[0], s[1], s[1], s[2], s[2], s[3], s[3]};
        sums = i32_load(x.halves + u);
    }
    if (e.dots) {
        const octet_activations at = {x.q + u * RUN, x.sums + u, x.low + o * OCTET_BYTES, x.high + o * OCTET_BYTES};
        dots = e.dots(row, u, at);
    } else {
        dots = octet_dots(e, row, u, x.q);
    }
    e.scales(row, u, 8, &scale, &minimum);
    *term = (scale * step) * f8_from_i32(dots);
    *minimum_term = (minimum * step) * f8_from_i32(sums);
}

/* A row of fewer than eight units, which are runs then. */
INLINE float short_row_dot(packed_encoding e, const uint8_t *row, activation_row x, int64_t units) {
    float lanes[8] = {0};
    for (int64_t u = 0; u < units; u++) {
        f8 scale, minimum;
        i32x8 half[2];
        e.scales(row, u, 1, &scale, &minimum);
        run_dots(e, row, u, x.q, half);
        lanes[u] += (scale[0] * x.s[u]) * (float)i32_sum(half[0] + half[1]);
        if (e.has_minimum) lanes[u] += (minimum[0] * x.s[u]) * (float)x.sums[u];
    }
    return f8_tree(f8_load(lanes));
}

INLINE float row_dot(packed_encoding e, const uint8_t *row, activation_row x, int64_t units) {
    if (e.block_runs == 1 && units < OCTET) return short_row_dot(e, row, x, units);
    f8 lanes = f8_set(0.0f), term, minimum_term;
    int64_t u = 0;
    for (; u + OCTET <= units; u += OCTET) {
        octet_terms(e, row, x, u, u / OCTET, &term, &minimum_term);
        lanes = lanes + term;
        if (e.has_minimum) lanes = lanes + minimum_term;
    }
    const int rest = (int)(units % OCTET);
    if (e.block_runs == 1 && rest) {
        /* The last eight units again: those already added become +0, which changes no lane, and the others turn to their lanes. */
        octet_terms(e, row, x, units - OCTET, units / OCTET, &term, &minimum_term);
        const i32x8 lane = {0, 1, 2, 3, 4, 5, 6, 7}, mask = lane < rest;
        lanes = lanes + (f8)(mask & (i32x8)f8_rotate(term, rest));
        if (e.has_minimum) lanes = lanes + (f8)(mask & (i32x8)f8_rotate(minimum_term, rest));
    }
    return f8_tree(lanes);
}

#endif
