/* A tile of packed weight rows against many activation rows.
 *
 * The codes are unpacked once, interleaving neighbouring input pairs of the tile's rows, so that one multiply-add against a broadcast
 * pair gives all rows' sums. A vector's elements are rows; the contract's lanes are eight vectors.
 */
#ifndef MILLSTREAM_LINEAR_TILES_H
#define MILLSTREAM_LINEAR_TILES_H

#include "linear_rows.h"
#include "millstream.h"

typedef float tile_floats __attribute__((vector_size(4 * TILE)));
typedef int32_t tile_sums __attribute__((vector_size(4 * TILE)));
typedef int16_t tile_pairs __attribute__((vector_size(4 * TILE)));

typedef struct {
    tile_pairs *pairs;    /* [columns / 2] */
    tile_floats *scale;   /* [units] */
    tile_floats *minimum; /* [units] */
} tile;

enum { TILE_BYTES = TILE * 5 / 2 }; /* for each column, units being 16 weights or more */

INLINE tile tile_in(char *memory, int64_t columns, int64_t units) {
    tile_floats *scale = (tile_floats *)(memory + columns * TILE * 2);
    return (tile){(tile_pairs *)memory, scale, scale + units};
}

INLINE void unpack_tile(packed_encoding e, const ms_weight *w, int64_t first, int rows, tile t) {
    const int64_t units = w->columns / e.width;
    for (int eight = 0; eight < TILE; eight += 8) {
        const uint8_t *row[8];
        for (int r = 0; r < 8; r++) row[r] = eight + r < rows ? w->data + (first + eight + r) * w->row_bytes : NULL;
        for (int64_t run = 0; run < w->columns / RUN; run++) {
            i32x8 pairs[2][8];
            for (int r = 0; r < 8; r++) {
                i16x16 codes[2] = {{0}, {0}};
                if (row[r]) run_codes(e, row[r], run, codes);
                pairs[0][r] = (i32x8)codes[0];
                pairs[1][r] = (i32x8)codes[1];
            }
            for (int half = 0; half < 2; half++) {
                transpose(pairs[half]);
                for (int p = 0; p < 8; p++) memcpy((int32_t *)(t.pairs + run * 16 + half * 8 + p) + eight, &pairs[half][p], 32);
            }
        }
        for (int64_t u = 0; u < units; u += 8) {
            const int count = units - u < 8 ? (int)(units - u) : 8;
            f8 scale[8], minimum[8];
            for (int r = 0; r < 8; r++) {
                scale[r] = minimum[r] = f8_set(0.0f);
                if (row[r]) e.scales(row[r], u, count, &scale[r], &minimum[r]);
            }
            transpose((i32x8 *)scale);
            for (int i = 0; i < count; i++) memcpy((float *)(t.scale + u + i) + eight, &scale[i], 32);
            if (!e.has_minimum) continue;
            transpose((i32x8 *)minimum);
            for (int i = 0; i < count; i++) memcpy((float *)(t.minimum + u + i) + eight, &minimum[i], 32);
        }
    }
}

/* The pair at q times the pairs of the tile's rows, added to sum. */
INLINE tile_sums pair_dot(tile_sums sum, tile_pairs codes, const int16_t *q) {
    int32_t pair;
    memcpy(&pair, q, sizeof pair);
    const tile_pairs all = (tile_pairs)((tile_sums){0} + pair);
#if defined(__AVX512VNNI__)
    return (tile_sums)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)codes, (__m512i)all);
#else
    return i16_dot(sum, codes, all);
#endif
}

/* out[k] = the tile times activation row `row` + k, for `tokens` of them. Rows past the last are computed too, but not given. */
INLINE void tile_dot(int width, int has_minimum, tile t, activations a, int64_t row, int tokens, float (*out)[TILE]) {
    const int64_t per_run = RUN / width, units = a.runs * per_run;
    const int16_t *q = a.q + row * a.columns;
    const float *s = a.s + row * a.stride;
    const int32_t *sums = per_run == 1 ? a.sums + row * a.stride : a.halves + 2 * row * a.runs;
    const int64_t sums_stride = per_run == 1 ? a.stride : 2 * a.runs;
    tile_floats lanes[8][TOKENS];
    for (int lane = 0; lane < 8; lane++)
        for (int k = 0; k < tokens; k++) lanes[lane][k] = (tile_floats){0};
    for (int64_t u = 0; u < units; u++) {
        tile_floats *total = lanes[u % 8];
        tile_sums dot[TOKENS];
        for (int k = 0; k < tokens; k++) dot[k] = (tile_sums){0};
        for (int p = 0; p < width / 2; p++) {
            const int64_t at = u * (width / 2) + p;
            const tile_pairs codes = t.pairs[at];
            for (int k = 0; k < tokens; k++) dot[k] = pair_dot(dot[k], codes, q + (at * TOKENS + k) * 2);
        }
        for (int k = 0; k < tokens; k++) {
            const float step = s[k * a.stride + u / per_run];
            total[k] = total[k] + (t.scale[u] * step) * __builtin_convertvector(dot[k], tile_floats);
            if (has_minimum) total[k] = total[k] + (t.minimum[u] * step) * (float)sums[k * sums_stride + u];
        }
    }
    for (int k = 0; k < tokens && row + k < a.n; k++) {
#define LANE(i) lanes[i][k]
        const tile_floats sum = ((LANE(0) + LANE(4)) + (LANE(2) + LANE(6))) + ((LANE(1) + LANE(5)) + (LANE(3) + LANE(7)));
#undef LANE
        memcpy(out[k], &sum, sizeof sum);
    }
}

INLINE void tile_rows(int width, int has_minimum, tile t, activations a, float (*out)[TILE]) {
    for (int64_t row = 0; row < a.n; row += TOKENS)
        if (a.n - row > 4)
            tile_dot(width, has_minimum, t, a, row, TOKENS, out + row);
        else
            tile_dot(width, has_minimum, t, a, row, 4, out + row);
}

/* The tile times all activation rows. */
static void multiply_tile(int width, int has_minimum, tile t, activations a, float (*out)[TILE]) {
    if (width == RUN)
        has_minimum ? tile_rows(RUN, 1, t, a, out) : tile_rows(RUN, 0, t, a, out);
    else
        has_minimum ? tile_rows(16, 1, t, a, out) : tile_rows(16, 0, t, a, out);
}

#endif
