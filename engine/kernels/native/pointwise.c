/* Norms, rotary positions and elementary functions. */
#include "millstream.h"
#include "pool.h"
#include "simd.h"

/* The eight lanes of a sum of n squares; a tail shorter than eight fills the first lanes. */
INLINE float sum_of_squares(const float *x, int64_t n) {
    f8 lanes = f8_set(0.0f);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        f8 v = f8_load(x + i);
        lanes = lanes + v * v;
    }
    for (int lane = 0; i < n; i++, lane++) lanes[lane] += x[i] * x[i];
    return f8_tree(lanes);
}

typedef struct {
    const float *x, *weight;
    float eps;
    int64_t group, groups_per_row;
    const float *residual;
    float *out;
} norm_job;

static void norm_groups(void *data, int64_t first, int64_t last, int thread) {
    (void)thread;
    const norm_job *job = data;
    const int64_t n = job->group;
    for (int64_t g = first; g < last; g++) {
        const float *x = job->x + g * n;
        float *out = job->out + g * n;
        float r = 1.0f / sqrtf(sum_of_squares(x, n) / (float)n + job->eps);
        for (int64_t i = 0; i < n; i++) out[i] = (x[i] * r) * job->weight[i];
        if (job->residual)
            for (int64_t i = 0; i < n; i++) out[i] += job->residual[g * n + i];
    }
}

int ms_rms_norm(ms_pool *pool, const float *x, const float *weight, float eps, int64_t n, int64_t width, int64_t group,
                const float *residual, float *out) {
    norm_job job = {x, weight, eps, group, width / group, residual, out};
    int64_t grain = 16384 / group;
    pool_run(pool, norm_groups, &job, n * job.groups_per_row, grain ? grain : 1);
    return MS_OK;
}

typedef struct {
    const float *x, *cosines, *sines;
    int64_t n_heads, head_dim, half, interleaved;
    float *out;
} rotary_job;

static void rotary_rows(void *data, int64_t first, int64_t last, int thread) {
    (void)thread;
    const rotary_job *job = data;
    const int64_t half = job->half, dim = job->head_dim;
    for (int64_t row = first; row < last; row++) {
        const float *c = job->cosines + row * half, *s = job->sines + row * half;
        for (int64_t head = 0; head < job->n_heads; head++) {
            const float *x = job->x + (row * job->n_heads + head) * dim;
            float *out = job->out + (row * job->n_heads + head) * dim;
            const int64_t step = job->interleaved ? 2 : 1, other = job->interleaved ? 1 : half;
            for (int64_t i = 0; i < half; i++) {
                float a = x[i * step], b = x[i * step + other];
                out[i * step] = a * c[i] - b * s[i];
                out[i * step + other] = a * s[i] + b * c[i];
            }
            if (out != x) memcpy(out + 2 * half, x + 2 * half, (size_t)(dim - 2 * half) * sizeof(float));
        }
    }
}

int ms_rotary(ms_pool *pool, const float *x, int64_t n, int64_t start, int64_t n_heads, int64_t head_dim, const float *cosines,
              const float *sines, int64_t half, int64_t interleaved, float *out) {
    rotary_job job = {x, cosines + start * half, sines + start * half, n_heads, head_dim, half, interleaved, out};
    pool_run(pool, rotary_rows, &job, n, 16);
    return MS_OK;
}

void ms_function(int which, const float *x, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i += 8) {
        float buffer[8] = {0};
        const size_t bytes = (size_t)(n - i < 8 ? n - i : 8) * sizeof(float);
        memcpy(buffer, x + i, bytes);
        f8 v = f8_load(buffer);
        switch (which) {
        case 0: v = f8_exp(v); break;
        case 1: v = f8_silu(v); break;
        case 2: v = f8_tanh(v); break;
        case 3: v = f8_erf(v); break;
        case 4: v = f8_gelu_tanh(v); break;
        default: v = f8_gelu_erf(v);
        }
        f8_store(buffer, v);
        memcpy(out + i, buffer, bytes);
    }
}
