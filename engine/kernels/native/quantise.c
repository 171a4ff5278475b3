#include "quantise.h"

#include "millstream.h"
#include "simd.h"

static void quantise_block(const float *x, int16_t *q, float *scale, int32_t *sum) {
    f8 v[4], m = f8_set(0.0f);
    i32x8 broken = {0};
    for (int i = 0; i < 4; i++) {
        v[i] = f8_load(x + 8 * i);
        f8 a = f8_abs(v[i]);
        broken |= ((i32x8)a >= 0x7f800000);
        m = f8_max(a, m);
    }
    float top = 0.0f;
    int32_t bad = 0;
    for (int i = 0; i < 8; i++) {
        top = m[i] > top ? m[i] : top;
        bad |= broken[i];
    }
    *sum = 0;
    if (bad || top < 0x1p-100f) {
        *scale = bad ? NAN : 0.0f;
        memset(q, 0, 32 * sizeof *q);
        return;
    }
    const float s = top / 32512.0f;
    i32x8 total = {0};
    for (int i = 0; i < 4; i++) {
        i32x8 code = __builtin_convertvector(f8_rint(v[i] / s), i32x8);
        i32x8 high = code > 32512, low = code < -32512;
        code = (high & 32512) | (~high & code);
        code = (low & -32512) | (~low & code);
        total += code;
        for (int j = 0; j < 8; j++) q[8 * i + j] = (int16_t)code[j];
    }
    for (int i = 0; i < 8; i++) *sum += total[i];
    *scale = s;
}

void quantise_rows(const float *x, activations a, int64_t first, int64_t last) {
    for (int64_t row = first; row < last; row++) {
        for (int64_t u = 0; u < a.columns / 32; u++)
            quantise_block(x + row * a.columns + 32 * u, a.q + row * a.columns + 32 * u, a.s + row * a.units + u,
                           a.sums + row * a.units + u);
        for (int64_t u = a.columns / 32; u < a.units; u++) {
            a.s[row * a.units + u] = 0.0f;
            a.sums[row * a.units + u] = 0;
        }
    }
}

void ms_quantise(const float *x, int64_t n, int64_t columns, int16_t *q, float *s) {
    int32_t sum;
    for (int64_t block = 0; block < n * columns / 32; block++) quantise_block(x + 32 * block, q + 32 * block, s + block, &sum);
}
