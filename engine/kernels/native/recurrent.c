/* Recurrent layers (CONTRACT.md, section 12). Tokens follow each other; threads share out channels, heads and columns of the states. */
#include "functions.h"
#include "pool.h"

/* Channels whose taps a thread keeps at hand. */
enum { BLOCK = 64, MAX_TAPS = 16 };

typedef struct {
    const float *x, *taps;
    int64_t n, channels, width; /* `width` taps */
    ms_activation activation;
    float *inputs, *out;
    int64_t start;
} convolution_job;

/* Row `at` of the inputs kept and the rows of x after them. */
INLINE const float *history(const convolution_job *job, int64_t at) {
    const int64_t kept = job->width - 1;
    return at < kept ? job->inputs + at * job->channels : job->x + (at - kept) * job->channels;
}

static void convolve_blocks(void *data, int64_t first, int64_t last, int thread) {
    (void)thread;
    const convolution_job *job = data;
    const int64_t kept = job->width - 1;
    for (int64_t block = first; block < last; block++) {
        const int64_t from = block * BLOCK, count = job->channels - from < BLOCK ? job->channels - from : BLOCK;
        const size_t bytes = (size_t)count * sizeof(float);
        float taps[MAX_TAPS][BLOCK] = {{0}};
        for (int64_t c = 0; c < count; c++)
            for (int64_t tap = 0; tap < job->width; tap++) taps[tap][c] = job->taps[(from + c) * job->width + tap];
        if (job->start == 0)
            for (int64_t at = 0; at < kept; at++) memset(job->inputs + at * job->channels + from, 0, bytes);
        for (int64_t t = 0; t < job->n; t++)
            for (int64_t c = 0; c < count; c += 8) {
                const int64_t some = count - c;
                f8 sum = f8_set(0.0f);
                for (int64_t tap = 0; tap < job->width; tap++)
                    sum = sum + load_some(history(job, t + tap) + from + c, some) * f8_load(&taps[tap][c]);
                store_some(job->out + t * job->channels + from + c, some, f8_activate(job->activation, sum));
            }
        for (int64_t at = 0; at < kept; at++) memcpy(job->inputs + at * job->channels + from, history(job, job->n + at) + from, bytes);
    }
}

int ms_convolve(ms_pool *pool, const float *x, int64_t n, int64_t channels, const float *taps, int64_t width, float *inputs, int64_t start,
                int64_t activation, float *out) {
    if (width < 1 || width > MAX_TAPS) return MS_UNKNOWN;
    convolution_job job = {x, taps, n, channels, width, (ms_activation)activation, inputs, out, start};
    pool_run(pool, convolve_blocks, &job, (channels + BLOCK - 1) / BLOCK, n < 16 ? 4 : 1);
    return MS_OK;
}

/* Columns of a state that are learnt together: their part of it, [key_dim][COLUMNS], lies together and stays in the first cache. */
enum { COLUMNS = 32, VECTORS = COLUMNS / 8 };

typedef struct {
    const float *x, *a, *b, *rate, *bias;
    float *memory, *out;
    int64_t n, start, key_heads, heads, key_dim, value_dim;
    float eps, scale;
    int64_t blocks;
    float *scratch; /* per thread: a query and a key */
} delta_job;

INLINE void l2_norm(const float *x, int64_t n, float eps, float scale, int scaled, float *out) {
    const float r = 1.0f / sqrtf(sum_of_squares(x, n) + eps);
    for (int64_t i = 0; i < n; i++) out[i] = x[i] * r;
    for (int64_t i = 0; scaled && i < n; i++) out[i] = out[i] * scale;
}

/* One token's step of a whole block of columns. */
INLINE void learn_block(float *state, const float *q, const float *k, const float *v, int64_t dim, float decay, float beta, float *out) {
    f8 known[VECTORS], error[VECTORS], read[VECTORS];
    for (int j = 0; j < VECTORS; j++) known[j] = read[j] = f8_set(0.0f);
    for (int64_t i = 0; i < dim; i++)
        for (int j = 0; j < VECTORS; j++) known[j] = known[j] + (f8_load(state + i * COLUMNS + 8 * j) * decay) * k[i];
    for (int j = 0; j < VECTORS; j++) error[j] = (f8_load(v + 8 * j) - known[j]) * beta;
    for (int64_t i = 0; i < dim; i++)
        for (int j = 0; j < VECTORS; j++) {
            const f8 s = f8_load(state + i * COLUMNS + 8 * j) * decay + error[j] * k[i];
            f8_store(state + i * COLUMNS + 8 * j, s);
            read[j] = read[j] + s * q[i];
        }
    for (int j = 0; j < VECTORS; j++) f8_store(out + 8 * j, read[j]);
}

/* The same for fewer columns, one after the other. */
static void learn_columns(float *state, int64_t columns, const float *q, const float *k, const float *v, int64_t dim, float decay, float beta,
                          float *out) {
    for (int64_t c = 0; c < columns; c++) {
        float known = 0.0f, read = 0.0f;
        for (int64_t i = 0; i < dim; i++) known += (state[i * columns + c] * decay) * k[i];
        const float error = (v[c] - known) * beta;
        for (int64_t i = 0; i < dim; i++) {
            const float s = state[i * columns + c] * decay + k[i] * error;
            state[i * columns + c] = s;
            read += s * q[i];
        }
        out[c] = read;
    }
}

/* Items: blocks of columns, head by head. */
static void learn(void *data, int64_t first, int64_t last, int thread) {
    const delta_job *job = data;
    const int64_t dim = job->key_dim, keys = job->key_heads * dim, width = 2 * keys + job->heads * job->value_dim;
    float *q = job->scratch + thread * 2 * dim, *k = q + dim;
    for (int64_t item = first; item < last; item++) {
        const int64_t head = item / job->blocks, from = item % job->blocks * COLUMNS;
        const int64_t columns = job->value_dim - from < COLUMNS ? job->value_dim - from : COLUMNS;
        float *state = job->memory + head * dim * job->value_dim + from * dim;
        if (job->start == 0) memset(state, 0, (size_t)(dim * columns) * sizeof(float));
        for (int64_t t = 0; t < job->n; t++) {
            const float *row = job->x + t * width, *shared = row + head % job->key_heads * dim;
            l2_norm(shared, dim, job->eps, job->scale, 1, q);
            l2_norm(shared + keys, dim, job->eps, job->scale, 0, k);
            const f8 a = f8_set(job->a[t * job->heads + head] + job->bias[head]), b = f8_set(job->b[t * job->heads + head]);
            const float decay = f8_exp(f8_softplus(a) * job->rate[head])[0], beta = f8_sigmoid(b)[0];
            const float *v = row + 2 * keys + head * job->value_dim + from;
            float *out = job->out + (t * job->heads + head) * job->value_dim + from;
            if (columns == COLUMNS) learn_block(state, q, k, v, dim, decay, beta, out);
            else learn_columns(state, columns, q, k, v, dim, decay, beta, out);
        }
    }
}

int ms_delta_rule(ms_pool *pool, const float *x, const float *a, const float *b, const float *rate, const float *bias, float *memory,
                  int64_t n, int64_t start, int64_t key_heads, int64_t heads, int64_t key_dim, int64_t value_dim, float eps, float scale,
                  float *out) {
    const int64_t blocks = (value_dim + COLUMNS - 1) / COLUMNS;
    float *scratch = pool_scratch(pool, 0, pool_threads(pool) * 2 * key_dim * (int64_t)sizeof(float));
    if (!scratch) return MS_NO_MEMORY;
    delta_job job = {x, a, b, rate, bias, memory, out, n, start, key_heads, heads, key_dim, value_dim, eps, scale, blocks, scratch};
    pool_run(pool, learn, &job, heads * blocks, n == 1 ? 4 : 1);
    return MS_OK;
}
