/* Up to eight packed weight rows against one activation row: memory is read in one stream, and a vector's eight elements are eight
 * units, which are the contract's eight lanes. */
#ifndef MILLSTREAM_LINEAR_ROWS_H
#define MILLSTREAM_LINEAR_ROWS_H

#include "encodings.h"
#include "linear.h"

/* Bytes that reads run ahead of the arithmetic, further than the processor would on its own. */
enum { AHEAD = 4096 };

typedef struct {
    const int16_t *q;
    const float *s;
    const int32_t *sums, *halves;
    const int8_t *bytes, *octets;
    int64_t runs;
} activation_row;

INLINE activation_row row_of(activations a, int64_t row) {
    return (activation_row){a.q + row * a.columns,
                            a.s + row * a.stride,
                            a.sums + row * a.stride,
                            a.halves + 2 * row * a.runs,
                            a.bytes ? a.bytes + row * a.runs * RUN_SIZE : NULL,
                            a.octets ? a.octets + row * (a.runs / OCTET + 1) * OCTET_SIZE : NULL,
                            a.runs};
}

/* Eight products of run r with run `at` of the activations, the first four of its first half; bytes are `offset` too high. */
INLINE i32x8 run_products(packed_encoding e, const uint8_t *row, int64_t r, activation_row x, int64_t at) {
#if BYTE_TOP
    if (e.bytes) return bytes_dot(e.bytes(row, r), x.bytes + at * RUN_SIZE);
#endif
    i16x16 codes[2];
    run_codes(e, row, r, codes);
    const i32x8 first = i16_dot((i32x8){0}, codes[0], i16_load(x.q + at * RUN));
    if (e.width == RUN) return i16_dot(first, codes[1], i16_load(x.q + at * RUN + 16));
    const i32x8 second = i16_dot((i32x8){0}, codes[1], i16_load(x.q + at * RUN + 16));
    return __builtin_shufflevector(first, second, 0, 1, 2, 3, 8, 9, 10, 11) + __builtin_shufflevector(first, second, 4, 5, 6, 7, 12, 13, 14, 15);
}

/* The exact dots of eight units from run r of `base` on, which is run `at` of the row; `sums` are those of the activations. */
INLINE i32x8 octet_dots(packed_encoding e, const uint8_t *base, int64_t r, activation_row x, int64_t at, i32x8 sums) {
    i32x8 part[8];
    for (int i = 0; i < 8 * e.width / RUN; i++) part[i] = run_products(e, base, r + i, x, at + i);
    const i32x8 dots = e.width == RUN ? i32_sums(part) : i32_half_sums(part);
    return BYTE_TOP && e.bytes ? dots - e.offset * sums : dots;
}

/* Terms of eight units, and of their minima where there are any. */
typedef struct {
    f8 dot, minimum;
} octet_terms;

INLINE octet_terms terms_of(packed_encoding e, i32x8 dots, i32x8 sums, f8 scale, f8 minimum, f8 step) {
    octet_terms t = {(scale * step) * f8_from_i32(dots), f8_set(0.0f)};
    if (e.has_minimum) t.minimum = (minimum * step) * f8_from_i32(sums);
    return t;
}

/* The terms of eight units from unit u of `base` on, which is unit `at` of the row. */
INLINE octet_terms row_terms(packed_encoding e, const uint8_t *base, int64_t u, activation_row x, int64_t at) {
    const int octet_bytes = OCTET * e.width / RUN * e.block_bytes / e.block_runs;
    const uint8_t *ahead = base + u / OCTET * octet_bytes + AHEAD;
    for (int line = 0; line < octet_bytes; line += 64) __builtin_prefetch(ahead + line);
    f8 scale, minimum, step;
    i32x8 dots, sums;
    if (e.width == RUN) {
        step = f8_load(x.s + at);
        sums = i32_load(x.sums + at);
    } else {
        const float *s = x.s + at / 2;
        step = (f8){s[0], s[0], s[1], s[1], s[2], s[2], s[3], s[3]};
        sums = i32_load(x.halves + at);
    }
    if (BYTE_TOP && e.block_dots) {
        const uint8_t *block[8];
        for (int i = 0; i < 8; i++) block[i] = base + (u + i) * e.block_bytes;
        dots = e.block_dots(block, x.octets + at / OCTET * OCTET_SIZE, sums);
    } else {
        dots = octet_dots(e, base, u * e.width / RUN, x, at * e.width / RUN, sums);
    }
    e.scales(base, u, OCTET, &scale, &minimum);
    return terms_of(e, dots, sums, scale, minimum, step);
}

INLINE f8 masked(f8 v, int64_t count, int64_t from) {
    const i32x8 lane = {0, 1, 2, 3, 4, 5, 6, 7};
    return (f8)((lane < (int32_t)count) & (i32x8)f8_rotate(v, (int)-from));
}

/* The units past the last whole octet, of as many rows at once as an octet holds. */
INLINE void add_last_blocks(packed_encoding e, const uint8_t *row, int64_t row_bytes, int rows, activation_row x, f8 lanes[STRIP]) {
    const int64_t rest = x.runs % OCTET, whole = x.runs - rest, per_octet = rows_per_octet(x.runs);
    const f8 step = f8_load(x.s + x.runs);
    const i32x8 sums = i32_load(x.sums + x.runs);
    for (int64_t first = 0; first < rows; first += per_octet) {
        const uint8_t *block[8];
        for (int64_t i = 0, which = first, at = 0; i < 8; i++) {
            block[i] = row + (which < rows ? which : rows - 1) * row_bytes + (whole + at) * e.block_bytes;
            if (++at == rest) at = 0, which++;
        }
        f8 scale, minimum;
        i32x8 dots;
        e.block_scales(block, &scale, &minimum);
        if (BYTE_TOP && e.block_dots) {
            dots = e.block_dots(block, x.octets + whole / OCTET * OCTET_SIZE, sums);
        } else {
            i32x8 part[8];
            for (int64_t i = 0, at = 0; i < 8; i++) {
                part[i] = run_products(e, block[i], 0, x, whole + at);
                if (++at == rest) at = 0;
            }
            dots = i32_sums(part);
            if (BYTE_TOP && e.bytes) dots -= e.offset * sums;
        }
        const octet_terms t = terms_of(e, dots, sums, scale, minimum, step);
        for (int64_t which = first; which < first + per_octet && which < rows; which++) {
            lanes[which] = lanes[which] + masked(t.dot, rest, (which - first) * rest);
            if (e.has_minimum) lanes[which] = lanes[which] + masked(t.minimum, rest, (which - first) * rest);
        }
    }
}

/* The same where a block holds more than one run: unit by unit. */
INLINE void add_last_units(packed_encoding e, const uint8_t *row, activation_row x, int64_t whole, int64_t units, f8 *lanes) {
    f8 scale, minimum;
    e.scales(row, whole, (int)(units - whole), &scale, &minimum);
    for (int64_t u = whole; u < units; u++) {
        const int64_t r = u * e.width / RUN;
        i16x16 codes[2];
        run_codes(e, row, r, codes);
        i32x8 dot = {0};
        for (int half = 0; half < 2; half++)
            if (e.width == RUN || u % 2 == half) dot = i16_dot(dot, codes[half], i16_load(x.q + r * RUN + 16 * half));
        const int lane = (int)(u - whole);
        (*lanes)[lane] += (scale[lane] * x.s[r]) * (float)i32_sum(dot);
        if (e.has_minimum) (*lanes)[lane] += (minimum[lane] * x.s[r]) * (float)(e.width == RUN ? x.sums[r] : x.halves[u]);
    }
}

/* out[r] = row r times x, for `count` <= 8 rows. */
INLINE void rows_dot(packed_encoding e, const uint8_t *row, int64_t row_bytes, int count, activation_row x, float *out) {
    const int64_t units = x.runs * RUN / e.width, whole = units / OCTET * OCTET;
    /* Octets that are done together, as many as a block holds: each then knows its place in it. */
    const int together = e.block_runs == 8 ? RUN / e.width : 1;
    const int64_t bytes = together * OCTET * e.width / RUN * e.block_bytes / e.block_runs;
    f8 lanes[STRIP];
    for (int r = 0; r < STRIP; r++) {
        lanes[r] = f8_set(0.0f);
        if (r >= count) continue;
        const uint8_t *base = row + r * row_bytes;
        for (int64_t at = 0; at < whole; at += together * OCTET, base += bytes)
#pragma clang loop unroll(full)
            for (int i = 0; i < together; i++) {
                const octet_terms t = row_terms(e, base, i * OCTET, x, at + i * OCTET);
                lanes[r] = lanes[r] + t.dot;
                if (e.has_minimum) lanes[r] = lanes[r] + t.minimum;
            }
        if (e.block_runs > 1 && whole < units) add_last_units(e, row + r * row_bytes, x, whole, units, lanes + r);
    }
    if (e.block_runs == 1 && whole < units) add_last_blocks(e, row, row_bytes, count, x, lanes);
    transpose((i32x8 *)lanes);
    f8_store(out, ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7])));
}

#endif
