/* Eight packed weight rows against many activation rows.
 *
 * The codes are unpacked once into a tile that interleaves neighbouring input pairs of the eight rows, so that one multiply-add
 * against a broadcast pair gives eight rows' sums. A vector's elements are eight rows; the contract's lanes are eight vectors.
 */
#ifndef MILLSTREAM_LINEAR_TILES_H
#define MILLSTREAM_LINEAR_TILES_H

#include "encodings.h"
#include "millstream.h"
#include "quantise.h"

enum { STRIP = 8, TILE_FROM = 4 }; /* weight rows of a strip; activation rows from which a tile pays */

#if defined(__AVX512VL__)
enum { TOKENS = 8 }; /* activation rows per pass over a tile: as many as the registers hold */
#else
enum { TOKENS = 4 };
#endif

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
    for (int64_t run = 0; run < w->columns / RUN; run++) {
        i32x8 pairs[2][8];
        for (int r = 0; r < 8; r++) {
            i16x16 codes[2] = {{0}, {0}};
            if (r < rows) e.codes(row + r * w->row_bytes, run, codes);
            pairs[0][r] = (i32x8)codes[0];
            pairs[1][r] = (i32x8)codes[1];
        }
        for (int half = 0; half < 2; half++) {
            transpose(pairs[half]);
            memcpy(t.pairs + (run * 2 + half) * 128, pairs[half], sizeof pairs[half]);
        }
    }
    for (int64_t u = 0; u < units; u += 8) {
        const int count = units - u < 8 ? (int)(units - u) : 8;
        f8 scale[8], minimum[8];
        for (int r = 0; r < 8; r++) {
            scale[r] = minimum[r] = f8_set(0.0f);
            if (r < rows) e.scales(row + r * w->row_bytes, u, count, &scale[r], &minimum[r]);
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
    const int64_t per_run = RUN / e.width; /* units */
    const float *s = a.s + row * a.runs;
    const int32_t *sums = e.width == RUN ? a.sums + row * a.runs : a.halves + 2 * row * a.runs;
    f8 lanes[TOKENS][8];
    for (int lane = 0; lane < 8; lane++) {
        f8 total[TOKENS];
        for (int k = 0; k < tokens; k++) total[k] = f8_set(0.0f);
        for (int64_t u = lane; u < units; u += 8) {
            i32x8 dot[TOKENS];
            for (int k = 0; k < tokens; k++) dot[k] = (i32x8){0};
            for (int p = 0; p < e.width / 2; p++) {
                const i16x16 codes = i16_load(t.pairs + (u * (e.width / 2) + p) * 16);
                for (int k = 0; k < tokens; k++)
                    dot[k] = i16_dot(dot[k], codes, broadcast_pair(q + k * a.columns + u * e.width + 2 * p));
            }
            for (int k = 0; k < tokens; k++) {
                const float step = s[k * a.runs + u / per_run];
                total[k] = total[k] + (t.scale[u] * step) * f8_from_i32(dot[k]);
                if (e.has_minimum) total[k] = total[k] + (t.minimum[u] * step) * (float)sums[k * a.runs * per_run + u];
            }
        }
        for (int k = 0; k < tokens; k++) lanes[k][lane] = total[k];
    }
    for (int k = 0; k < tokens; k++) {
        const f8 *l = lanes[k];
        f8_store(out[row + k], ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7])));
    }
}

#endif
