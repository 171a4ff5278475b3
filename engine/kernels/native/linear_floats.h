/* Eight rows of float weights against all activation rows, element i to lane i mod 8 (CONTRACT.md, section 6). */
#ifndef MILLSTREAM_LINEAR_FLOATS_H
#define MILLSTREAM_LINEAR_FLOATS_H

#include "linear_tiles.h"

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

#endif
