/* Linear layers of heads: each run of an activation row against weight rows of its own (CONTRACT.md, section 6).
 *
 * The runs of one head, of all rows, are laid together, as the rows of a linear are; then strips go as there.
 */
#include "linear.h"
#include "pool.h"
#include "simd.h"

/* Activation rows, and vectors of each weight row, that are summed together. */
enum { ROWS = 4, VECTORS = 4 };

typedef struct {
    const float *x;
    int64_t n, heads, width; /* heads of a row of x; weight rows of a strip */
    const ms_stack *stack;
    float *runs;     /* [matrices][n][columns] */
    char *quantised; /* [matrices][bytes], for packed weights */
    int64_t bytes;
    activation_bytes packing;
    char *scratch; /* per thread: a strip's, then a result [n][width] */
    int64_t strip_bytes, scratch_bytes;
    float *out;
} heads_job;

static activations activations_of(const heads_job *job, int64_t head) {
    return activations_in(job->quantised + head * job->bytes, job->n, job->stack->first.columns, job->packing);
}

static int64_t strips(const heads_job *job) { return (job->stack->first.rows + job->width - 1) / job->width; }

/* Items: heads. */
static void gather_runs(void *data, int64_t first, int64_t last, int thread) {
    (void)thread;
    const heads_job *job = data;
    const int64_t columns = job->stack->first.columns;
    for (int64_t head = first; head < last; head++) {
        float *runs = job->runs + head * job->n * columns;
        for (int64_t i = 0; i < job->n; i++)
            memcpy(runs + i * columns, job->x + (i * job->heads + head) * columns, (size_t)columns * sizeof(float));
        if (job->bytes) quantise_rows(runs, activations_of(job, head), 0, job->n);
    }
}

/* Items: strips of all heads. */
static void head_strips(void *data, int64_t first, int64_t last, int thread) {
    const heads_job *job = data;
    char *scratch = job->scratch + thread * job->scratch_bytes;
    float *result = (float *)(scratch + job->strip_bytes);
    const int64_t rows = job->stack->first.rows, n = job->n;
    for (int64_t item = first; item < last; item++) {
        const int64_t head = item / strips(job), row = item % strips(job) * job->width, count = rows - row < job->width ? rows - row : job->width;
        const ms_weight w = matrix_of(job->stack, head);
        activations a = {0};
        if (job->bytes) a = activations_of(job, head);
        strip_dot(&w, row, job->runs + head * n * w.columns, &a, n, scratch, result);
        for (int64_t i = 0; i < n; i++)
            memcpy(job->out + (i * job->heads + head) * rows + row, result + i * job->width, (size_t)count * sizeof(float));
    }
}

static int64_t rounded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/* Matrices the other way round: the rows of a head are decoded, then weighted and summed. */
typedef struct {
    const float *x;
    int64_t n, heads;
    const ms_stack *stack;
    float *decoded; /* per thread: [rows][columns] */
    float *out;
} sums_job;

/* `count` <= ROWS activation rows, `stride` apart, against `width` <= VECTORS vectors of each weight row. */
INLINE void sum_vectors(const float *x, int64_t stride, int count, const float *weights, int64_t rows, int64_t columns, int width, float *out,
                        int64_t out_stride) {
    f8 sum[ROWS][VECTORS];
    for (int i = 0; i < count; i++)
        for (int v = 0; v < width; v++) sum[i][v] = f8_set(0.0f);
    for (int64_t r = 0; r < rows; r++)
        for (int v = 0; v < width; v++) {
            const f8 weight = f8_load(weights + r * columns + 8 * v);
            for (int i = 0; i < count; i++) sum[i][v] = sum[i][v] + weight * x[i * stride + r];
        }
    for (int i = 0; i < count; i++)
        for (int v = 0; v < width; v++) f8_store(out + i * out_stride + 8 * v, sum[i][v]);
}

INLINE void sum_rows(const float *x, int64_t stride, int count, const float *weights, int64_t rows, int64_t columns, float *out,
                     int64_t out_stride) {
    int64_t c = 0;
    for (; c + 8 * VECTORS <= columns; c += 8 * VECTORS)
        sum_vectors(x, stride, count, weights + c, rows, columns, VECTORS, out + c, out_stride);
    for (; c + 8 <= columns; c += 8) sum_vectors(x, stride, count, weights + c, rows, columns, 1, out + c, out_stride);
    for (; c < columns; c++)
        for (int i = 0; i < count; i++) {
            float sum = 0.0f;
            for (int64_t r = 0; r < rows; r++) sum += weights[r * columns + c] * x[i * stride + r];
            out[i * out_stride + c] = sum;
        }
}

/* Items: heads. */
static void head_sums(void *data, int64_t first, int64_t last, int thread) {
    const sums_job *job = data;
    const int64_t rows = job->stack->first.rows, columns = job->stack->first.columns, heads = job->heads;
    float *decoded = job->decoded + thread * rows * columns;
    for (int64_t head = first; head < last; head++) {
        const ms_weight w = matrix_of(job->stack, head);
        for (int64_t r = 0; r < rows; r++) decode_row(&w, r, decoded + r * columns);
        const float *x = job->x + head * rows;
        float *out = job->out + head * columns;
        int64_t i = 0;
        for (; i + ROWS <= job->n; i += ROWS)
            sum_rows(x + i * heads * rows, heads * rows, ROWS, decoded, rows, columns, out + i * heads * columns, heads * columns);
        for (; i < job->n; i++) sum_rows(x + i * heads * rows, heads * rows, 1, decoded, rows, columns, out + i * heads * columns, heads * columns);
    }
}

static int run_transposed(ms_pool *pool, const float *x, int64_t n, const ms_stack *stack, int64_t heads, float *out) {
    sums_job job = {.x = x, .n = n, .heads = heads, .stack = stack, .out = out};
    job.decoded = pool_scratch(pool, 1, pool_threads(pool) * stack->first.rows * stack->first.columns * (int64_t)sizeof(float));
    if (!job.decoded) return MS_NO_MEMORY;
    pool_run(pool, head_sums, &job, stack->count, 1);
    return MS_OK;
}

static int run_plain(ms_pool *pool, const float *x, int64_t n, const ms_stack *stack, int64_t heads, float *out) {
    const int64_t columns = stack->first.columns, count = stack->count;
    heads_job job = {.x = x, .n = n, .heads = heads, .width = n < TILE_FROM ? STRIP : TILE, .stack = stack, .out = out};
    job.packing = n < TILE_FROM ? strip_bytes(stack->first.encoding) : NO_BYTES;
    if (stack->first.encoding > MS_BF16) job.bytes = rounded(activations_size(n, columns, job.packing));
    const int64_t runs_bytes = rounded(count * n * columns * (int64_t)sizeof(float));
    job.runs = pool_scratch(pool, 0, runs_bytes + count * job.bytes);
    job.strip_bytes = strip_scratch(columns);
    job.scratch_bytes = job.strip_bytes + rounded(n * job.width * (int64_t)sizeof(float));
    job.scratch = pool_scratch(pool, 1, pool_threads(pool) * job.scratch_bytes);
    if (!job.runs || !job.scratch) return MS_NO_MEMORY;
    job.quantised = (char *)job.runs + runs_bytes;
    const int64_t items = count * strips(&job);
    pool_run(pool, gather_runs, &job, count, 1);
    pool_run(pool, head_strips, &job, items, strip_grain(pool, n, items));
    return MS_OK;
}

int ms_head_linears(ms_pool *pool, const float *x, int64_t n, const ms_stack *stack, int64_t first, int64_t heads, int64_t transposed,
                    float *out) {
    const int64_t rows = stack->first.rows, columns = stack->first.columns;
    if (transposed) return run_transposed(pool, x + first * rows, n, stack, heads, out + first * columns);
    return run_plain(pool, x + first * columns, n, stack, heads, out + first * rows);
}
