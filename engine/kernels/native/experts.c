/* The experts of a mixture (CONTRACT.md, section 11).
 *
 * A pair is a token with one of its experts; a group is the pairs of one expert, in the order of their tokens. Each chosen expert is
 * read once, against all rows of its group: first the gates and what they gate of all groups in one job, then the last matrices of all of
 * them in another, whose threads own rows of the result and so add in ascending order of the experts.
 *
 * Where an expert's bytes come in pieces, a plan has its group alone, and both jobs run for each piece.
 */
#include <string.h>

#include "functions.h"
#include "linear.h"
#include "pool.h"

/* Rows of a group from which they go through a tile. Below, unpacking an expert costs more than the tile saves. */
enum { TOGETHER_FROM = 8 };
_Static_assert((int)TOGETHER_FROM >= (int)TILE_FROM, "a tile needs activations in its own order");

/* `base` counts the rows before a group's: of small groups, whose rows are multiplied one by one, those of small groups; of large ones
 * those of large groups, each rounded up to whole blocks of activations. */
typedef struct {
    int64_t expert, first, count, base;
} group;

typedef struct {
    int64_t n, pairs, groups, largest, small_rows, large_rows;
    group *group;      /* [groups], by ascending expert */
    int32_t *group_of; /* [pairs] */
    int32_t *token;    /* [pairs] */
    float *weight;     /* [pairs] */
} plan;

static int is_large(const group *g) { return g->count >= TOGETHER_FROM; }

/* The groups of `experts` experts from `from` on. `weights` may be NULL where nothing is added. */
static int make_plan(ms_pool *pool, const int32_t *ids, const float *weights, int64_t n, int64_t k, int64_t from, int64_t experts, plan *p) {
    const int64_t pairs = n * k, most = pairs < experts ? pairs : experts;
    char *memory = pool_scratch(pool, 0, most * (int64_t)sizeof(group) + (experts + 3 * pairs) * 4);
    if (!memory) return MS_NO_MEMORY;
    *p = (plan){.n = n, .group = (group *)memory};
    p->group_of = (int32_t *)(p->group + most);
    p->token = p->group_of + pairs;
    p->weight = (float *)(p->token + pairs);
    int32_t *at = (int32_t *)(p->weight + pairs); /* of each expert: its pairs, then its group */
    memset(at, 0, (size_t)experts * sizeof *at);
    for (int64_t i = 0; i < pairs; i++) {
        const int64_t e = ids[i] - from;
        if (e >= 0 && e < experts) at[e]++;
    }
    for (int64_t e = 0, first = 0; e < experts; e++) {
        if (!at[e]) continue;
        group *g = p->group + p->groups;
        *g = (group){.expert = from + e, .first = first, .count = at[e]};
        int64_t *rows = is_large(g) ? &p->large_rows : &p->small_rows;
        g->base = *rows;
        *rows += is_large(g) ? (g->count + TOKENS - 1) / TOKENS * TOKENS : g->count;
        if (g->count > p->largest) p->largest = g->count;
        first += g->count;
        p->pairs += g->count;
        at[e] = (int32_t)p->groups++;
    }
    for (int64_t i = 0; i < p->groups; i++) p->group[i].count = 0;
    for (int64_t i = 0; i < pairs; i++) {
        const int64_t e = ids[i] - from;
        if (e < 0 || e >= experts) continue;
        group *g = p->group + at[e];
        const int64_t pair = g->first + g->count++;
        p->group_of[pair] = at[e];
        p->token[pair] = (int32_t)(i / k);
        if (weights) p->weight[pair] = weights[i];
    }
    return MS_OK;
}

/* The rows that a matrix of each group is multiplied with: those of the pairs' tokens, or one for each pair. A token is `shared` where
 * several groups may have it. */
typedef struct {
    const plan *plan;
    const float *x;
    int by_token, shared, packed, floats, bytes;
    int64_t columns, alone_size, row_size;
    char *alone;    /* quantised one by one: all tokens, or the rows of small groups */
    char *together; /* quantised by large groups */
    float *copied;  /* rows of large groups as they are, where they lie apart */
} inputs;

static activations alone(const inputs *in, int64_t row) {
    return activations_in(in->alone + row * in->alone_size, 1, in->columns, in->bytes);
}

static activations together(const inputs *in, const group *g) {
    return activations_in(in->together + g->base * in->row_size, g->count, in->columns, NO_BYTES);
}

/* Items: all tokens, where they are quantised one by one; then the pairs. */
static void prepare(void *data, int64_t first, int64_t last, int thread) {
    (void)thread;
    const inputs *in = data;
    const plan *p = in->plan;
    const int64_t tokens = in->shared ? p->n : 0, columns = in->columns;
    for (int64_t item = first; item < last; item++) {
        if (item < tokens) {
            if (in->packed && p->small_rows) quantise_row(in->x + item * columns, alone(in, item), 0);
            continue;
        }
        const int64_t pair = item - tokens;
        const group *g = p->group + p->group_of[pair];
        const int64_t within = pair - g->first;
        const float *x = in->x + (in->by_token ? p->token[pair] : pair) * columns;
        if (!is_large(g)) {
            if (in->packed && !in->shared) quantise_row(x, alone(in, g->base + within), 0);
            continue;
        }
        if (in->packed) quantise_row(x, together(in, g), within);
        if (in->floats && in->by_token) memcpy(in->copied + (g->base + within) * columns, x, (size_t)columns * sizeof *x);
    }
}

/* `again`: they were made before, for this plan and these weights, and are only found. */
static int make_inputs(ms_pool *pool, const plan *p, const float *x, int by_token, const ms_stack *a, const ms_stack *b, int again, inputs *in) {
    const int64_t columns = a->first.columns, kinds[2] = {a->first.encoding, b->first.encoding};
    *in = (inputs){.plan = p, .x = x, .by_token = by_token, .shared = by_token && p->groups > 1, .columns = columns};
    for (int i = 0; i < 2; i++) {
        *(kinds[i] > MS_BF16 ? &in->packed : &in->floats) = 1;
        in->bytes |= strip_bytes(kinds[i]);
    }
    int64_t alone_bytes = 0, together_bytes = 0, copied_bytes = 0;
    if (in->packed) {
        in->alone_size = (activations_size(1, columns, in->bytes) + 63) / 64 * 64;
        in->row_size = activations_size(TOKENS, columns, NO_BYTES) / TOKENS;
        alone_bytes = (in->shared && p->small_rows ? p->n : p->small_rows) * in->alone_size;
        together_bytes = p->large_rows * in->row_size;
    }
    if (in->floats && by_token) copied_bytes = p->large_rows * columns * (int64_t)sizeof(float);
    char *memory = pool_scratch(pool, 1, alone_bytes + together_bytes + copied_bytes + 64);
    if (!memory) return MS_NO_MEMORY;
    in->alone = memory;
    in->together = memory + alone_bytes;
    in->copied = (float *)(in->together + together_bytes);
    const int64_t grain = 8192 / columns;
    if (!again) pool_run(pool, prepare, in, (in->shared ? p->n : 0) + p->pairs, grain ? grain : 1);
    return MS_OK;
}

/* TILE weight rows from `first` on against all rows of a group: → out[count][TILE]. */
static void group_strip(const inputs *in, const ms_weight *w, const group *g, int64_t first, char *scratch, float *out) {
    const int64_t columns = in->columns;
    const int packed = w->encoding > MS_BF16;
    activations a = {0};
    if (is_large(g)) {
        if (packed) a = together(in, g);
        const float *x = in->by_token ? in->copied + g->base * columns : in->x + g->first * columns;
        strip_dot(w, first, x, &a, g->count, scratch, out);
        return;
    }
    for (int64_t part = 0; part < TILE && first + part < w->rows; part += STRIP)
        for (int64_t i = 0; i < g->count; i++) {
            const int64_t row = in->by_token ? in->plan->token[g->first + i] : g->first + i;
            if (packed) a = alone(in, in->shared ? row : g->base + i);
            strip_dot(w, first + part, in->x + row * columns, &a, 1, scratch, out + i * TILE + part);
        }
}

typedef struct {
    inputs in;
    const ms_stack *gate, *up, *down;
    const float *gate_bias, *up_bias, *down_bias;
    ms_activation activation;
    float *gated, *out; /* [pairs, rows of a gate], [n, rows of down] */
    int adds;           /* to what is in `out` */
    int64_t grain;      /* strips that a thread takes at once */
    char *scratch;      /* per thread: that of a strip, then results [2][grain][largest group][TILE] */
    int64_t scratch_bytes, result_bytes;
} experts_job;

static int64_t strips(const ms_stack *stack) { return (stack->first.rows + TILE - 1) / TILE; }

static void add_bias(float *values, const float *bias, int64_t count) {
    for (int64_t r = 0; r < count; r++) values[r] += bias[r];
}

/* Strips first … last-1 of one group: of the gates, then of what they gate, each read in one stream. */
static void gated_strips(const experts_job *job, const group *g, int64_t first, int64_t last, char *scratch, float *result) {
    const ms_weight gate = matrix_of(job->gate, g->expert), up = matrix_of(job->up, g->expert);
    const int64_t rows = gate.rows, total = gate.total, size = g->count * TILE;
    float *gates = result, *ups = result + (last - first) * size;
    for (int64_t s = first; s < last; s++) group_strip(&job->in, &gate, g, s * TILE, scratch, gates + (s - first) * size);
    for (int64_t s = first; s < last; s++) group_strip(&job->in, &up, g, s * TILE, scratch, ups + (s - first) * size);
    for (int64_t s = first; s < last; s++)
        for (int64_t i = 0; i < g->count; i++)
            for (int64_t row = s * TILE; row < (s + 1) * TILE && row < rows; row += 8) {
                const int64_t count = rows - row < 8 ? rows - row : 8, at = (s - first) * size + i * TILE + row - s * TILE;
                const int64_t column = gate.first + row;
                if (job->gate_bias) add_bias(gates + at, job->gate_bias + g->expert * total + column, count);
                if (job->up_bias) add_bias(ups + at, job->up_bias + g->expert * total + column, count);
                const f8 value = f8_gated(job->activation, f8_load(gates + at), f8_load(ups + at));
                memcpy(job->gated + (g->first + i) * total + column, &value, (size_t)count * sizeof(float));
            }
}

/* Items: the strips of all groups, one group after the other. */
static void gate_experts(void *data, int64_t first, int64_t last, int thread) {
    const experts_job *job = data;
    const int64_t each = strips(job->gate);
    char *scratch = job->scratch + thread * (job->scratch_bytes + job->result_bytes);
    while (first < last) {
        const int64_t which = first / each, end = (which + 1) * each < last ? (which + 1) * each : last;
        for (int64_t at = first, stop; at < end; at = stop) {
            stop = at + job->grain < end ? at + job->grain : end;
            gated_strips(job, job->in.plan->group + which, at - which * each, stop - which * each, scratch,
                         (float *)(scratch + job->scratch_bytes));
        }
        first = end;
    }
}

/* Items: strips of the result, of which every group's part is added. */
static void add_experts(void *data, int64_t first, int64_t last, int thread) {
    const experts_job *job = data;
    const plan *p = job->in.plan;
    const int64_t rows = job->down->first.rows, total = job->down->first.total, column = job->down->first.first;
    const int64_t from = first * TILE, to = last * TILE < rows ? last * TILE : rows;
    char *scratch = job->scratch + thread * (job->scratch_bytes + job->result_bytes);
    float *result = (float *)(scratch + job->scratch_bytes);
    for (int64_t token = 0; token < p->n && !job->adds; token++)
        memset(job->out + token * total + column + from, 0, (size_t)(to - from) * sizeof(float));
    for (const group *g = p->group; g < p->group + p->groups; g++) {
        const ms_weight down = matrix_of(job->down, g->expert);
        const float *bias = job->down_bias ? job->down_bias + g->expert * total + column : NULL;
        for (int64_t row = from; row < to; row += TILE) {
            const int64_t count = to - row < TILE ? to - row : TILE;
            group_strip(&job->in, &down, g, row, scratch, result);
            for (int64_t i = 0; i < g->count; i++) {
                float *values = result + i * TILE, *out = job->out + p->token[g->first + i] * total + column + row;
                if (bias) add_bias(values, bias + row, count);
                for (int64_t r = 0; r < count; r++) out[r] += p->weight[g->first + i] * values[r];
            }
        }
    }
}

static int run(ms_pool *pool, experts_job *job, pool_task task, int64_t items) {
    const plan *p = job->in.plan;
    job->grain = strip_grain(pool, p->n, items);
    job->scratch_bytes = strip_scratch(job->in.columns);
    job->result_bytes = 2 * job->grain * p->largest * TILE * (int64_t)sizeof(float);
    job->scratch = pool_scratch(pool, 2, pool_threads(pool) * (job->scratch_bytes + job->result_bytes));
    if (!job->scratch) return MS_NO_MEMORY;
    pool_run(pool, task, job, items, job->grain);
    return MS_OK;
}

int ms_experts(ms_pool *pool, const float *x, const int32_t *ids, const float *weights, int64_t n, int64_t k, int64_t activation,
               const ms_stack *gate, const ms_stack *up, const ms_stack *down, const float *gate_bias, const float *up_bias,
               const float *down_bias, float *out) {
    plan p;
    experts_job job = {.gate = gate, .up = up, .down = down, .gate_bias = gate_bias, .up_bias = up_bias, .down_bias = down_bias,
                       .activation = (ms_activation)activation, .out = out};
    int status = make_plan(pool, ids, weights, n, k, 0, gate->count, &p);
    if (status == MS_OK) {
        job.gated = pool_scratch(pool, 3, p.pairs * gate->first.rows * (int64_t)sizeof(float));
        status = job.gated ? make_inputs(pool, &p, x, 1, gate, up, 0, &job.in) : MS_NO_MEMORY;
    }
    if (status == MS_OK) status = run(pool, &job, gate_experts, p.groups * strips(gate));
    if (status == MS_OK) status = make_inputs(pool, &p, job.gated, 0, down, down, 0, &job.in);
    if (status == MS_OK) status = run(pool, &job, add_experts, strips(down));
    return status;
}

int ms_expert_gates(ms_pool *pool, const float *x, const int32_t *ids, int64_t n, int64_t k, int64_t expert, int64_t activation,
                    const ms_weight *gate, const ms_weight *up, const float *gate_bias, const float *up_bias, int64_t again, float *gated) {
    plan p;
    const ms_stack gates = {.first = *gate}, ups = {.first = *up}; /* wherever an expert is, `apart` being 0 */
    experts_job job = {.gate = &gates, .up = &ups, .gate_bias = gate_bias, .up_bias = up_bias, .activation = (ms_activation)activation,
                       .gated = gated};
    int status = make_plan(pool, ids, NULL, n, k, expert, 1, &p);
    if (status == MS_OK) status = make_inputs(pool, &p, x, 1, &gates, &ups, again != 0, &job.in);
    return status == MS_OK ? run(pool, &job, gate_experts, p.groups * strips(&gates)) : status;
}

int ms_expert_adds(ms_pool *pool, const float *gated, const int32_t *ids, const float *weights, int64_t n, int64_t k, int64_t expert,
                   const ms_weight *down, const float *down_bias, int64_t again, float *out) {
    plan p;
    const ms_stack downs = {.first = *down};
    experts_job job = {.down = &downs, .down_bias = down_bias, .out = out, .adds = 1};
    int status = make_plan(pool, ids, weights, n, k, expert, 1, &p);
    if (status == MS_OK) status = make_inputs(pool, &p, gated, 0, &downs, &downs, again != 0, &job.in);
    return status == MS_OK ? run(pool, &job, add_experts, strips(&downs)) : status;
}
