/* Norms, rotary positions and elementary functions. */
#include "functions.h"
#include "pool.h"

/* Elements that a thread takes at once. */
enum { GRAIN = 8192 };

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
    const float *x, *weight, *bias;
    float eps;
    int64_t width;
    float *out;
} layer_norm_job;

static void layer_norm_rows(void *data, int64_t first, int64_t last, int thread) {
    (void)thread;
    const layer_norm_job *job = data;
    const int64_t n = job->width;
    for (int64_t row = first; row < last; row++) {
        const float *x = job->x + row * n;
        float *out = job->out + row * n;
        f8 lanes = f8_set(0.0f);
        for (int64_t i = 0; i < n; i += 8) lanes = lanes + load_some(x + i, n - i);
        const float mean = f8_tree(lanes) / (float)n;
        for (int64_t i = 0; i < n; i++) out[i] = x[i] - mean;
        const float r = 1.0f / sqrtf(sum_of_squares(out, n) / (float)n + job->eps);
        for (int64_t i = 0; i < n; i++) out[i] = (out[i] * r) * job->weight[i] + job->bias[i];
    }
}

int ms_layer_norm(ms_pool *pool, const float *x, const float *weight, const float *bias, float eps, int64_t n, int64_t width,
                  float *out) {
    layer_norm_job job = {x, weight, bias, eps, width, out};
    const int64_t grain = GRAIN / width;
    pool_run(pool, layer_norm_rows, &job, n, grain ? grain : 1);
    return MS_OK;
}

typedef struct {
    const float *x, *y;
    float factor;
    ms_activation activation;
    int64_t run;
    float *out;
} elements_job;

static void add_elements(void *data, int64_t first, int64_t last, int thread) {
    (void)thread;
    const elements_job *job = data;
    for (int64_t i = first; i < last; i++) job->out[i] = job->x[i] + job->y[i];
}

int ms_add(ms_pool *pool, const float *x, const float *y, int64_t count, float *out) {
    elements_job job = {.x = x, .y = y, .out = out};
    pool_run(pool, add_elements, &job, count, GRAIN);
    return MS_OK;
}

static void scale_elements(void *data, int64_t first, int64_t last, int thread) {
    (void)thread;
    const elements_job *job = data;
    for (int64_t i = first; i < last; i++) job->out[i] = job->x[i] * job->factor;
}

int ms_scale(ms_pool *pool, const float *x, float factor, int64_t count, float *out) {
    elements_job job = {.x = x, .factor = factor, .out = out};
    pool_run(pool, scale_elements, &job, count, GRAIN);
    return MS_OK;
}

static void activate_elements(void *data, int64_t first, int64_t last, int thread) {
    (void)thread;
    const elements_job *job = data;
    for (int64_t i = first; i < last; i += 8) {
        const int64_t n = last - i;
        store_some(job->out + i, n, f8_activate(job->activation, load_some(job->x + i, n)));
    }
}

int ms_activate(ms_pool *pool, const float *x, int64_t activation, int64_t count, float *out) {
    elements_job job = {.x = x, .activation = (ms_activation)activation, .out = out};
    pool_run(pool, activate_elements, &job, count, GRAIN);
    return MS_OK;
}

static void gate_elements(void *data, int64_t first, int64_t last, int thread) {
    (void)thread;
    const elements_job *job = data;
    for (int64_t i = first; i < last; i += 8) {
        const int64_t n = last - i;
        store_some(job->out + i, n, f8_gated(job->activation, load_some(job->x + i, n), load_some(job->y + i, n)));
    }
}

/* Items: elements of x. */
static void gate_runs(void *data, int64_t first, int64_t last, int thread) {
    (void)thread;
    const elements_job *job = data;
    for (int64_t item = first; item < last; item++) {
        const f8 gate = f8_set(job->x[item]);
        for (int64_t i = item * job->run, end = i + job->run; i < end; i += 8) {
            const int64_t n = end - i;
            store_some(job->out + i, n, f8_gated(job->activation, gate, load_some(job->y + i, n)));
        }
    }
}

int ms_gate(ms_pool *pool, const float *x, const float *y, int64_t activation, int64_t count, int64_t run, float *out) {
    elements_job job = {.x = x, .y = y, .activation = (ms_activation)activation, .run = run, .out = out};
    const int64_t grain = GRAIN / run;
    pool_run(pool, run == 1 ? gate_elements : gate_runs, &job, count, grain ? grain : 1);
    return MS_OK;
}

typedef struct {
    const float *x, *y;
    int64_t x_run, x_from, x_take, y_run, y_from, y_take;
    float *out;
} splice_job;

static void splice_runs(void *data, int64_t first, int64_t last, int thread) {
    (void)thread;
    const splice_job *job = data;
    for (int64_t item = first; item < last; item++) {
        float *out = job->out + item * (job->x_take + job->y_take);
        memcpy(out, job->x + item * job->x_run + job->x_from, (size_t)job->x_take * sizeof(float));
        if (job->y_take) memcpy(out + job->x_take, job->y + item * job->y_run + job->y_from, (size_t)job->y_take * sizeof(float));
    }
}

int ms_splice(ms_pool *pool, const float *x, int64_t x_run, int64_t x_from, int64_t x_take, const float *y, int64_t y_run,
              int64_t y_from, int64_t y_take, int64_t count, float *out) {
    splice_job job = {x, y, x_run, x_from, x_take, y_run, y_from, y_take, out};
    const int64_t grain = GRAIN / (x_take + y_take);
    pool_run(pool, splice_runs, &job, count, grain ? grain : 1);
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
        const int64_t count = n - i;
        f8 v = load_some(x + i, count);
        switch (which) {
        case 0: v = f8_exp(v); break;
        case 1: v = f8_silu(v); break;
        case 2: v = f8_tanh(v); break;
        case 3: v = f8_erf(v); break;
        case 4: v = f8_gelu_tanh(v); break;
        case 5: v = f8_gelu_erf(v); break;
        case 6: v = f8_sigmoid(v); break;
        case 7: v = f8_relu_squared(v); break;
        case 8: v = f8_log(v); break;
        default: v = f8_softplus(v);
        }
        store_some(out + i, count, v);
    }
}
