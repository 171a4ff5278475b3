#include "quantise.h"

#include "millstream.h"
#include "simd.h"

/* The codes of 32 numbers: → their scale. */
INLINE float quantise_block(const float *x, i16x16 q[2]) {
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
    q[0] = q[1] = (i16x16){0};
    if (bad) return NAN;
    if (top < 0x1p-100f) return 0.0f;
    const float s = top / 32512.0f;
    for (int i = 0; i < 4; i++) {
        i32x8 code = __builtin_convertvector(f8_rint(v[i] / s), i32x8);
        const i32x8 high = code > 32512, low = code < -32512;
        code = (high & 32512) | (~high & code);
        code = (low & -32512) | (~low & code);
        for (int j = 0; j < 8; j++) q[i / 2][i % 2 * 8 + j] = (int16_t)code[j];
    }
    return s;
}

INLINE int32_t sum_of_codes(i16x16 q) { return i32_sum(i16_dot((i32x8){0}, q, (i16x16){0} + 1)); }

INLINE void split_run(const i16x16 q[2], int8_t *out) {
    for (int half = 0; half < 2; half++) {
        const i16x16 low = (q[half] << 8) >> 8, high = (q[half] - low) >> 8;
        const i8x16 low_bytes = __builtin_convertvector(low, i8x16), high_bytes = __builtin_convertvector(high, i8x16);
        memcpy(out + 16 * half, &low_bytes, 16);
        memcpy(out + 32 + 16 * half, &high_bytes, 16);
    }
}

/* Eight runs' bytes together; NULL stands for a run of zeros. */
static void join_octet(const int8_t *const runs[OCTET], int8_t *out) {
    for (int high = 0; high < 2; high++) {
        i32x8 v[OCTET];
        for (int i = 0; i < OCTET; i++) v[i] = runs[i] ? (i32x8)u8x32_load(runs[i] + 32 * high) : (i32x8){0};
        transpose(v);
        for (int k = 0; k < 8; k++) memcpy(out + 64 * k + 32 * high, &v[k], sizeof v[k]);
    }
}

void quantise_row(const float *x, activations a, int64_t row) {
    float *s = a.s + row * a.stride;
    int32_t *sums = a.sums + row * a.stride, *halves = a.halves + row * 2 * a.runs;
    int8_t *bytes = a.bytes ? a.bytes + row * a.runs * RUN_SIZE : NULL;
    for (int64_t r = 0; r < a.runs; r++) {
        i16x16 codes[2];
        s[r] = quantise_block(x + 32 * r, codes);
        store_codes(a, row, r, codes);
        for (int half = 0; half < 2; half++) halves[2 * r + half] = sum_of_codes(codes[half]);
        sums[r] = halves[2 * r] + halves[2 * r + 1];
        if (bytes) split_run(codes, bytes + r * RUN_SIZE);
    }
    const int64_t whole = a.runs / OCTET * OCTET, rest = a.runs % OCTET, repeated = rest * rows_per_octet(a.runs);
    const int8_t *last[OCTET];
    for (int64_t i = 0; i < OCTET; i++) {
        const int64_t r = i < repeated ? whole + i % rest : -1;
        s[a.runs + i] = r < 0 ? 0.0f : s[r];
        sums[a.runs + i] = r < 0 ? 0 : sums[r];
        last[i] = r < 0 || !bytes ? NULL : bytes + r * RUN_SIZE;
    }
    if (!a.octets) return;
    int8_t *octets = a.octets + row * (a.runs / OCTET + 1) * OCTET_SIZE;
    for (int64_t o = 0; o < a.runs / OCTET; o++) {
        const int8_t *runs[OCTET];
        for (int64_t i = 0; i < OCTET; i++) runs[i] = bytes + (o * OCTET + i) * RUN_SIZE;
        join_octet(runs, octets + o * OCTET_SIZE);
    }
    join_octet(last, octets + a.runs / OCTET * OCTET_SIZE);
}

void quantise_rows(const float *x, activations a, int64_t first, int64_t last) {
    for (int64_t row = first; row < last; row++) quantise_row(x + row * a.columns, a, row);
}

/* The next `bytes` of `memory`, which is NULL while they are only counted. */
static void *part(char *memory, int64_t *at, int64_t bytes) {
    char *place = memory ? memory + *at : NULL;
    *at += bytes;
    return place;
}

static activations lay_out(char *memory, int64_t n, int64_t columns, int bytes, int64_t *size) {
    activations a = {.n = n, .columns = columns, .runs = columns / RUN, .stride = columns / RUN + OCTET};
    if (n >= TILE_FROM) n = (n + TOKENS - 1) / TOKENS * TOKENS; /* whole blocks */
    *size = 0;
    a.q = part(memory, size, n * columns * 2);
    a.s = part(memory, size, n * a.stride * 4);
    a.sums = part(memory, size, n * a.stride * 4);
    a.halves = part(memory, size, n * a.runs * 8);
    if (bytes) a.bytes = part(memory, size, n * a.runs * RUN_SIZE);
    if (bytes & OCTET_BYTES) a.octets = part(memory, size, n * (a.runs / OCTET + 1) * OCTET_SIZE);
    return a;
}

int64_t activations_size(int64_t n, int64_t columns, int bytes) {
    int64_t size;
    lay_out(NULL, n, columns, bytes, &size);
    return size;
}

activations activations_in(char *memory, int64_t n, int64_t columns, int bytes) {
    int64_t size;
    return lay_out(memory, n, columns, bytes, &size);
}

void ms_quantise(const float *x, int64_t n, int64_t columns, int16_t *q, float *s) {
    for (int64_t block = 0; block < n * columns / RUN; block++) {
        i16x16 codes[2];
        s[block] = quantise_block(x + RUN * block, codes);
        memcpy(q + RUN * block, codes, sizeof codes);
    }
}
