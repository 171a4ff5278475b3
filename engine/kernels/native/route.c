/* The choice of experts (CONTRACT.md, section 11). */
#include "functions.h"
#include "pool.h"

typedef struct {
    const float *logits, *bias;
    int64_t experts, k, sigmoid, groups, kept, marks, normalise;
    float scale;
    int32_t *ids;
    float *weights;
    char *scratch;
    int64_t scratch_bytes; /* per thread: scores, choice and taken of each expert, then the groups' marks and which are taken */
} route_job;

/* The largest value not taken, ties to the lower index; it is taken then. */
static int64_t take(const float *values, char *taken, int64_t first, int64_t last) {
    int64_t best = -1;
    for (int64_t i = first; i < last; i++)
        if (!taken[i] && (best < 0 || values[i] > values[best])) best = i;
    taken[best] = 1;
    return best;
}

/* NaN is chosen last, as -Inf is. */
static float ranked(float value) { return value == value ? value : -INFINITY; }

static void softmax(const float *x, int64_t n, float *out) {
    float top = -INFINITY;
    for (int64_t i = 0; i < n; i++) top = x[i] > top ? x[i] : top;
    f8 lanes = f8_set(0.0f);
    for (int64_t i = 0; i < n; i += 8) {
        store_some(out + i, n - i, f8_exp(load_some(x + i, n - i) - top));
        lanes = lanes + load_some(out + i, n - i);
    }
    const float sum = f8_tree(lanes);
    for (int64_t i = 0; i < n; i++) out[i] = out[i] / sum;
}

static void score(const route_job *job, const float *logits, float *scores) {
    const int64_t n = job->experts;
    int broken = 0;
    for (int64_t i = 0; i < n; i++) broken |= logits[i] != logits[i];
    if (broken)
        for (int64_t i = 0; i < n; i++) scores[i] = NAN;
    else if (job->sigmoid)
        for (int64_t i = 0; i < n; i += 8) store_some(scores + i, n - i, f8_sigmoid(load_some(logits + i, n - i)));
    else
        softmax(logits, n, scores);
}

/* Experts of all groups but the best ones are chosen last. */
static void close_groups(const route_job *job, float *choice, char *taken, float *marks, char *open) {
    const int64_t size = job->experts / job->groups;
    for (int64_t g = 0; g < job->groups; g++) {
        float mark = 0.0f;
        for (int64_t i = 0; i < job->marks && i < size; i++) mark += choice[take(choice, taken, g * size, (g + 1) * size)];
        marks[g] = ranked(mark);
    }
    memset(taken, 0, (size_t)job->experts);
    memset(open, 0, (size_t)job->groups);
    for (int64_t i = 0; i < job->kept; i++) take(marks, open, 0, job->groups);
    for (int64_t e = 0; e < job->experts; e++)
        if (!open[e / size]) choice[e] = -INFINITY;
}

static void route_row(const route_job *job, int64_t row, char *scratch) {
    const int64_t n = job->experts, k = job->k;
    float *scores = (float *)scratch, *choice = scores + n, *marks = choice + n;
    char *taken = (char *)(marks + job->groups), *open = taken + n;
    score(job, job->logits + row * n, scores);
    for (int64_t e = 0; e < n; e++) choice[e] = ranked(job->bias ? scores[e] + job->bias[e] : scores[e]);
    memset(taken, 0, (size_t)n);
    if (job->groups > 1) close_groups(job, choice, taken, marks, open);
    for (int64_t i = 0; i < k; i++) take(choice, taken, 0, n);
    int32_t *ids = job->ids + row * k;
    float *weights = job->weights + row * k, sum = 0.0f;
    for (int64_t e = 0, i = 0; i < k; e++) {
        if (!taken[e]) continue;
        ids[i] = (int32_t)e;
        weights[i] = scores[e];
        sum += scores[e];
        i++;
    }
    for (int64_t i = 0; i < k; i++) weights[i] = (job->normalise ? weights[i] / sum : weights[i]) * job->scale;
}

static void route_rows(void *data, int64_t first, int64_t last, int thread) {
    const route_job *job = data;
    for (int64_t row = first; row < last; row++) route_row(job, row, job->scratch + thread * job->scratch_bytes);
}

int ms_route(ms_pool *pool, const float *logits, const float *bias, int64_t n, int64_t experts, int64_t k, int64_t sigmoid,
             int64_t groups, int64_t kept, int64_t marks, int64_t normalise, float scale, int32_t *ids, float *weights) {
    route_job job = {logits, bias, experts, k, sigmoid, groups, kept, marks, normalise, scale, ids, weights, NULL, 0};
    job.scratch_bytes = ((2 * experts + groups) * (int64_t)sizeof(float) + experts + groups + 63) / 64 * 64;
    job.scratch = pool_scratch(pool, 0, pool_threads(pool) * job.scratch_bytes);
    if (!job.scratch) return MS_NO_MEMORY;
    pool_run(pool, route_rows, &job, n, 16);
    return MS_OK;
}
