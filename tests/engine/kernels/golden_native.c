/* Runs the golden vectors through the C interface: for processors that no Python runs on here, under an emulator.
 *
 *     golden_native CASES THREADS
 *
 * CASES is written by test_arm.py. Prints a line for each case that differs and exits with 1, or with 0 where none does.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "millstream.h"

enum { FUNCTION, QUANTISE, LINEAR, RMS_NORM, ROTARY, ATTENTION, TOKEN };

typedef struct {
    int64_t kind, ints[10];
    float floats[4];
    void *arrays[5];
    int64_t bytes[5];
    char name[64];
} test_case;

static int read_case(FILE *file, test_case *c) {
    int64_t count;
    if (fread(&c->kind, sizeof c->kind, 1, file) != 1) return 0;
    if (fread(c->ints, sizeof c->ints, 1, file) != 1 || fread(c->floats, sizeof c->floats, 1, file) != 1) exit(3);
    if (fread(c->name, sizeof c->name, 1, file) != 1 || fread(&count, sizeof count, 1, file) != 1) exit(3);
    for (int i = 0; i < count; i++) {
        if (fread(&c->bytes[i], sizeof c->bytes[i], 1, file) != 1) exit(3);
        c->arrays[i] = malloc((size_t)c->bytes[i] + 1);
        if (fread(c->arrays[i], 1, (size_t)c->bytes[i], file) != (size_t)c->bytes[i]) exit(3);
    }
    return 1;
}

/* Equal bits, all NaNs being one value. */
static int same(const float *a, const float *b, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (memcmp(a + i, b + i, sizeof *a) && !(isnan(a[i]) && isnan(b[i]))) return 0;
    return 1;
}

static int linear(ms_pool *pool, const test_case *c, float *out) {
    const int64_t n = c->ints[0], rows = c->ints[1], columns = c->ints[2];
    const int token = c->kind == TOKEN;
    const float *x = c->arrays[0], *expected = c->arrays[token ? 3 : 2];
    const ms_weight w = {c->arrays[1], rows, columns, c->bytes[1] / rows, c->ints[3], token ? c->arrays[2] : NULL, 1.0f, 0, rows};
    ms_linear(pool, x, n, 1, &w, NULL, NULL, out, NULL, NULL, NULL, NULL, 0.0f, 0);
    int ok = same(out, expected, n * rows);
    for (int64_t i = 0; i < n; i++) {
        ms_linear(pool, x + i * columns, 1, 1, &w, NULL, NULL, out, NULL, NULL, NULL, NULL, 0.0f, 0);
        ok &= same(out, expected + i * rows, rows);
    }
    return ok;
}

static int attention(ms_pool *pool, const test_case *c, float *out) {
    const int64_t n = c->ints[0], start = c->ints[1], heads = c->ints[2], kv = c->ints[3], kd = c->ints[4], vd = c->ints[5];
    const int64_t kind = c->ints[6], window = c->ints[7], length = start + n;
    const float *q = c->arrays[0], *k = c->arrays[1], *v = c->arrays[2];
    int ok = 1;
    for (int64_t chunk = 1; chunk <= 512; chunk = chunk * 8 - 1) { /* 1, 7, 55, 439 */
        const size_t room = (size_t)(kv * ((length + 63) / 64 * 64)); /* whole chunks */
        ms_cache cache = {calloc(room * (size_t)kd, 4), calloc(room * (size_t)vd, 4), length, kv, kd, vd, kind};
        for (int64_t first = 0; first < length; first += chunk) {
            const int64_t rows = length - first < chunk ? length - first : chunk;
            ms_attention(pool, q + first * heads * kd, k + first * kv * kd, v + first * kv * vd, &cache, rows, first, heads, c->floats[0],
                         window, c->floats[1], c->ints[8] ? c->arrays[3] : NULL, NULL, out + first * heads * vd);
        }
        ok &= same(out + start * heads * vd, c->arrays[4], n * heads * vd);
        free(cache.keys);
        free(cache.values);
    }
    return ok;
}

static int run(ms_pool *pool, const test_case *c) {
    const int64_t *i = c->ints;
    float *out = calloc(1 << 20, sizeof *out);
    int16_t *q = calloc(1 << 20, sizeof *q);
    int ok = 0;
    switch (c->kind) {
    case FUNCTION:
        ms_function((int)i[0], c->arrays[0], i[1], out);
        ok = same(out, c->arrays[1], i[1]);
        break;
    case QUANTISE:
        ms_quantise(c->arrays[0], i[0], i[1], q, out);
        ok = !memcmp(q, c->arrays[1], (size_t)c->bytes[1]) && same(out, c->arrays[2], c->bytes[2] / 4);
        break;
    case LINEAR:
    case TOKEN: ok = linear(pool, c, out); break;
    case RMS_NORM:
        ms_rms_norm(pool, c->arrays[0], c->arrays[1], c->floats[0], i[0], i[1], i[1], NULL, out);
        ok = same(out, c->arrays[2], i[0] * i[1]);
        break;
    case ROTARY:
        ms_rotary(pool, c->arrays[0], i[0], i[4], i[1], i[2], c->arrays[1], c->arrays[2], i[3], i[5], out);
        ok = same(out, c->arrays[3], i[0] * i[1] * i[2]);
        break;
    case ATTENTION: ok = attention(pool, c, out); break;
    }
    free(out);
    free(q);
    return ok;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    FILE *file = fopen(argv[1], "rb");
    ms_pool *pool = ms_pool_new(atoi(argv[2]));
    if (!file || !pool) return 2;
    int cases = 0, wrong = 0;
    for (test_case c; read_case(file, &c); cases++)
        if (!run(pool, &c)) {
            printf("%s differs\n", c.name);
            wrong++;
        }
    ms_pool_free(pool);
    printf("%d of %d cases agree\n", cases - wrong, cases);
    return wrong || !cases;
}
