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

static void split_octet(const int16_t *q, int8_t *low, int8_t *high) {
    for (int unit = 0; unit < OCTET; unit++)
        for (int k = 0; k < 8; k++)
            for (int i = 0; i < 4; i++) {
                const int16_t value = q[unit * 32 + 4 * k + i];
                const int at = (k * OCTET + unit) * 4 + i;
                low[at] = (int8_t)value;
                high[at] = (int8_t)((value - low[at]) >> 8);
            }
}

void quantise_rows(const float *x, activations a, int64_t first, int64_t last) {
    const int64_t octets = a.units / OCTET;
    for (int64_t row = first; row < last; row++) {
        int16_t *q = a.q + row * a.columns;
        for (int64_t u = 0; u < a.units; u++)
            quantise_block(x + row * a.columns + 32 * u, q + 32 * u, a.s + row * a.units + u, a.sums + row * a.units + u);
        if (!a.low) continue;
        int8_t *low = a.low + row * (octets + 1) * OCTET_BYTES, *high = a.high + row * (octets + 1) * OCTET_BYTES;
        for (int64_t o = 0; o <= octets; o++)
            split_octet(q + (o < octets ? o * OCTET : a.units - OCTET) * 32, low + o * OCTET_BYTES, high + o * OCTET_BYTES);
    }
}

void ms_quantise(const float *x, int64_t n, int64_t columns, int16_t *q, float *s) {
    int32_t sum;
    for (int64_t block = 0; block < n * columns / 32; block++) quantise_block(x + 32 * block, q + 32 * block, s + block, &sum);
}
