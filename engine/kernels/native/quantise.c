#include "quantise.h"

#include "millstream.h"
#include "simd.h"

static void quantise_block(const float *x, int16_t *q, float *scale, int32_t *sum, int32_t halves[2]) {
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
    *sum = halves[0] = halves[1] = 0;
    if (bad || top < 0x1p-100f) {
        *scale = bad ? NAN : 0.0f;
        memset(q, 0, 32 * sizeof *q);
        return;
    }
    const float s = top / 32512.0f;
    i32x8 total[2] = {{0}, {0}};
    for (int i = 0; i < 4; i++) {
        i32x8 code = __builtin_convertvector(f8_rint(v[i] / s), i32x8);
        i32x8 high = code > 32512, low = code < -32512;
        code = (high & 32512) | (~high & code);
        code = (low & -32512) | (~low & code);
        total[i / 2] += code;
        for (int j = 0; j < 8; j++) q[8 * i + j] = (int16_t)code[j];
    }
    for (int half = 0; half < 2; half++) halves[half] = i32_sum(total[half]);
    *sum = halves[0] + halves[1];
    *scale = s;
}

static void split_octet(const int16_t *q, int8_t *low, int8_t *high) {
    for (int run = 0; run < OCTET; run++)
        for (int k = 0; k < 8; k++)
            for (int i = 0; i < 4; i++) {
                const int16_t value = q[run * 32 + 4 * k + i];
                const int at = (k * OCTET + run) * 4 + i;
                low[at] = (int8_t)value;
                high[at] = (int8_t)((value - low[at]) >> 8);
            }
}

void quantise_rows(const float *x, activations a, int64_t first, int64_t last) {
    const int64_t octets = a.runs / OCTET;
    for (int64_t row = first; row < last; row++) {
        int16_t *q = a.q + row * a.columns;
        for (int64_t r = 0; r < a.runs; r++) {
            const int64_t at = row * a.runs + r;
            quantise_block(x + row * a.columns + 32 * r, q + 32 * r, a.s + at, a.sums + at, a.halves + 2 * at);
        }
        if (!a.low) continue;
        int8_t *low = a.low + row * (octets + 1) * OCTET_BYTES, *high = a.high + row * (octets + 1) * OCTET_BYTES;
        for (int64_t o = 0; o <= octets; o++)
            split_octet(q + (o < octets ? o * OCTET : a.runs - OCTET) * 32, low + o * OCTET_BYTES, high + o * OCTET_BYTES);
    }
}

void ms_quantise(const float *x, int64_t n, int64_t columns, int16_t *q, float *s) {
    int32_t sum, halves[2];
    for (int64_t block = 0; block < n * columns / 32; block++)
        quantise_block(x + 32 * block, q + 32 * block, s + block, &sum, halves);
}
