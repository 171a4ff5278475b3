/* One packed weight row against one activation row: memory is read in one stream, and a vector's eight elements are eight units,
 * which are the contract's eight lanes. */
#ifndef MILLSTREAM_LINEAR_ROWS_H
#define MILLSTREAM_LINEAR_ROWS_H

#include "encodings.h"
#include "quantise.h"

/* Bytes that reads run ahead of the arithmetic, further than the processor would on its own. */
enum { AHEAD = 2048 };

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

#endif
