#include "token.h"

#include "millstream.h"
#include "pool.h"
#include "simd.h"

/* a of a row. */
static float token_step(const float *x, int64_t columns) {
    f8 top = f8_set(1e-5f);
    i32x8 broken = {0};
    for (int64_t i = 0; i < columns; i += 8) {
        const f8 size = f8_abs(load_some(x + i, columns - i));
        broken |= (i32x8)size >= 0x7f800000;
        top = f8_max(size, top);
    }
    float m = top[0];
    int32_t bad = broken[0];
    for (int i = 1; i < 8; i++) {
        m = top[i] > m ? top[i] : m;
        bad |= broken[i];
    }
    return bad ? NAN : 127.0f / m;
}

INLINE f8 token_codes(f8 x, float step) {
    const f8 top = f8_set(127.0f), bottom = f8_set(-128.0f), q = f8_rint(x * step);
    return f8_select((i32x8)(q > top), top, f8_select((i32x8)(q < bottom), bottom, q));
}

static void token_row(const float *x, activations a, int64_t row) {
    const float step = token_step(x, a.columns);
    int32_t sum = 0;
    for (int64_t r = 0; r < a.runs; r++) {
        i16x16 codes[2] = {{0}, {0}};
        for (int i = 0; i < 4 && step == step; i++) {
            const i32x8 eight = __builtin_convertvector(token_codes(f8_load(x + 32 * r + 8 * i), step), i32x8);
            for (int j = 0; j < 8; j++) codes[i / 2][i % 2 * 8 + j] = (int16_t)eight[j];
            sum += i32_sum(eight);
        }
        store_codes(a, row, r, codes);
        if (!a.bytes) continue;
        for (int half = 0; half < 2; half++) {
            const i8x16 bytes = __builtin_convertvector(codes[half], i8x16);
            memcpy(a.bytes + (row * a.runs + r) * RUN_SIZE + 16 * half, &bytes, sizeof bytes);
        }
    }
    a.s[row * a.stride] = step;
    a.sums[row * a.stride] = sum;
}

void token_rows(const float *x, activations a, int64_t first, int64_t last) {
    for (int64_t row = first; row < last; row++) token_row(x + row * a.columns, a, row);
}

typedef struct {
    const float *x;
    int64_t width;
    float *out;
} round_job;

static void round_rows(void *data, int64_t first, int64_t last, int thread) {
    (void)thread;
    const round_job *job = data;
    for (int64_t row = first; row < last; row++) {
        const float *x = job->x + row * job->width, step = token_step(x, job->width);
        for (int64_t i = 0; i < job->width; i += 8) {
            const f8 value = token_codes(load_some(x + i, job->width - i), step) / step; /* NaN throughout where the step is */
            store_some(job->out + row * job->width + i, job->width - i, value);
        }
    }
}

int ms_round_tokens(ms_pool *pool, const float *x, int64_t n, int64_t width, float *out) {
    round_job job = {x, width, out};
    pool_run(pool, round_rows, &job, n, 1);
    return MS_OK;
}
