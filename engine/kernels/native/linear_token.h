/* Ternary rows against tokens of int8: one exact sum and one scale a row (CONTRACT.md, section 6). */
#ifndef MILLSTREAM_LINEAR_TOKEN_H
#define MILLSTREAM_LINEAR_TOKEN_H

#include "linear_tiles.h"

/* Eight sums more of the products of 32 codes 0 … 3 with as many bytes. */
#if BYTE_TOP == 255
INLINE i32x8 token_dot(i32x8 sum, u8x32 codes, const int8_t *bytes) {
    return (i32x8)_mm256_dpbusd_epi32((__m256i)sum, (__m256i)codes, (__m256i)u8x32_load(bytes));
}
#elif defined(__AVX2__)
INLINE i32x8 token_dot(i32x8 sum, u8x32 codes, const int8_t *bytes) {
    const __m256i pairs = _mm256_maddubs_epi16((__m256i)codes, (__m256i)u8x32_load(bytes));
    return sum + (i32x8)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
#elif BYTE_TOP
INLINE i32x8 token_dot(i32x8 sum, u8x32 codes, const int8_t *bytes) { return signed_dot(sum, codes, bytes); }
#endif

/* The exact dot of a row with row i of the activations. */
INLINE int32_t token_row_dot(packed_encoding e, const uint8_t *row, activations a, int64_t i) {
    i32x8 sum[4] = {{0}, {0}, {0}, {0}};
    const int16_t *q = a.q + i * a.columns;
    for (int64_t block = 0; block < a.runs; block += e.block_runs) {
        __builtin_prefetch(row + block / e.block_runs * e.block_bytes + AHEAD);
#pragma clang loop unroll(full)
        for (int r = 0; r < e.block_runs; r++) {
            const int64_t run = block + r;
#if BYTE_TOP
            if (e.bytes) {
                sum[r % 4] = token_dot(sum[r % 4], e.bytes(row, run), a.bytes + (i * a.runs + run) * RUN_SIZE);
                continue;
            }
#endif
            i16x16 codes[2];
            run_codes(e, row, run, codes);
            for (int half = 0; half < 2; half++) sum[r % 4] = i16_dot(sum[r % 4], codes[half], i16_load(q + run * RUN + 16 * half));
        }
    }
    const int32_t dot = i32_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
    return BYTE_TOP && e.bytes ? dot - e.offset * a.sums[i * a.stride] : dot;
}

/* out[k] = the tile times activation row `row` + k, for `tokens` of them. Rows past the last are computed too, but not given. */
INLINE void token_tile_dot(tile t, tile_floats scale, activations a, int64_t row, int tokens, float (*out)[TILE]) {
    const int16_t *q = a.q + row * a.columns;
    tile_sums dot[TOKENS];
    for (int k = 0; k < tokens; k++) dot[k] = (tile_sums){0};
    for (int64_t p = 0; p < a.columns / 2; p++)
        for (int k = 0; k < tokens; k++) dot[k] = pair_dot(dot[k], t.pairs[p], q + (p * TOKENS + k) * 2);
    for (int k = 0; k < tokens && row + k < a.n; k++) {
        const tile_floats value = (__builtin_convertvector(dot[k], tile_floats) / a.s[(row + k) * a.stride]) * scale;
        memcpy(out[k], &value, sizeof value);
    }
}

/* `rows` weight rows from `first` on against n activation rows: → out[n][strip width]. */
INLINE void token_strip(packed_encoding e, const ms_weight *w, int64_t first, int rows, activations a, int64_t n, char *scratch, float *out) {
    const float *scales = w->row_scales + first;
    if (n < TILE_FROM) {
        for (int64_t i = 0; i < n; i++)
            for (int r = 0; r < rows; r++)
                out[i * STRIP + r] = ((float)token_row_dot(e, w->data + (first + r) * w->row_bytes, a, i) / a.s[i * a.stride]) * scales[r];
        return;
    }
    const tile t = tile_in(scratch, w->columns, w->columns / e.width);
    unpack_tile(e, w, first, rows, t);
    tile_floats scale = {0};
    memcpy(&scale, scales, (size_t)rows * sizeof *scales);
    for (int64_t row = 0; row < n; row += TOKENS)
        if (n - row > 4)
            token_tile_dot(t, scale, a, row, TOKENS, (float(*)[TILE])out + row);
        else
            token_tile_dot(t, scale, a, row, 4, (float(*)[TILE])out + row);
}

#endif
