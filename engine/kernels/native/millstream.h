/* The C interface of the native kernels. Every function follows CONTRACT.md to the bit.
 *
 * Activations are float32, row-major [n, width]. Weights need no alignment, other pointers that of their type. No function keeps a
 * pointer after it returns.
 * Functions that take a pool split their work over its threads and return when all of it is done; one call at a time per pool.
 */
#ifndef MILLSTREAM_H
#define MILLSTREAM_H

#include <stdint.h>

#ifdef _WIN32
#define MS_API __declspec(dllexport)
#else
#define MS_API __attribute__((visibility("default")))
#endif

#define MS_INTERFACE 8

typedef struct ms_pool ms_pool;

/* The encodings that have kernels, in the order of `ms_encoding_name`. */
#define MS_PACKED(each) \
    each(Q4_0) each(Q4_1) each(Q5_0) each(Q5_1) each(Q8_0) each(Q2_K) each(Q3_K) each(Q4_K) each(Q5_K) each(Q6_K) each(IQ4_NL) \
    each(IQ4_XS) each(MXFP4) each(TQ1_0) each(TQ2_0) each(IQ1_S) each(IQ1_M) each(IQ2_XXS) each(IQ2_XS) each(IQ2_S) each(IQ3_XXS) \
    each(IQ3_S) each(NVFP4) each(Q1_0)
#define MS_NAME(name) MS_##name,
typedef enum { MS_F32, MS_F16, MS_BF16, MS_PACKED(MS_NAME) MS_ENCODINGS } ms_encoding;
#undef MS_NAME

/* Packed rows as they lie on disk: rows first … first + rows - 1 of a matrix that has `total`, all of them where it is in memory. Results
 * go to these columns of rows as wide as `total`; biases and residuals are those of the whole matrix. `row_scales` [rows] belong to ternary
 * codes whose activations are int8, one scale a token, and are NULL for all other weights; those of one call agree in that. `scale`, 1 for
 * none, multiplies the results. */
typedef struct {
    const uint8_t *data;
    int64_t rows, columns, row_bytes;
    int64_t encoding;
    const float *row_scales;
    float scale;
    int64_t first, total;
} ms_weight;

/* One layer's keys and values, [n_kv_heads][chunks of 64 positions] of the layout in cache.h. A chunk of width dim takes 64 * dim elements,
 * and q8_0 another 64 * dim / 32 float16; q8_0 asks for widths that 32 divides. Where `values` is `keys`, the first value_dim elements of a
 * key are its value (latent attention). */
typedef enum { MS_CACHE_F32, MS_CACHE_F16, MS_CACHE_Q8_0 } ms_cache_kind;
typedef struct {
    void *keys, *values;
    int64_t capacity, n_kv_heads, key_dim, value_dim, kind;
} ms_cache;

enum { MS_OK = 0, MS_NO_MEMORY = 1, MS_OVERFLOW = 2, MS_UNKNOWN = 3 };

MS_API int ms_interface(void);
MS_API const char *ms_encoding_name(int encoding); /* NULL past the last */
MS_API int ms_processor(void);                     /* bit 0: AVX2 and its kin, bit 1: AVX-512 with VNNI, bit 2: Arm dot product */

MS_API ms_pool *ms_pool_new(int threads); /* NULL where threads or memory are refused */
MS_API void ms_pool_free(ms_pool *pool);
MS_API int64_t ms_pool_bytes(const ms_pool *pool); /* of scratch memory that the pool holds on to */

/* out[n, width]: RMS norm over each run of `group` elements (+ residual); `group` divides `width`, `residual` may be NULL. */
MS_API int ms_rms_norm(ms_pool *pool, const float *x, const float *weight, float eps, int64_t n, int64_t width, int64_t group,
                       const float *residual, float *out);

/* out[n, columns] = the rows of `table` that `tokens` name, decoded, times `scale`. */
MS_API int ms_embed(ms_pool *pool, const ms_weight *table, const int32_t *tokens, int64_t n, float scale, float *out);

/* out_i[n, total_i] = x @ weight_i^T (+ bias) (+ residual), for `count` <= 3 weights of the same columns.
 * `bias` and `residual` may be NULL and belong to the first weight. Where softcap is not 0, out_i = that softcap of all.
 * `again`: the pool's last call was this one with other rows of the same weights, so that x need not be quantised anew. */
MS_API int ms_linear(ms_pool *pool, const float *x, int64_t n, int64_t count, const ms_weight *w0, const ms_weight *w1,
                     const ms_weight *w2, float *out0, float *out1, float *out2, const float *bias, const float *residual,
                     float softcap, int64_t again);

/* out[n, total] = activation(x @ gate^T) * (x @ up^T), or the clamped SwiGLU of both; the rows of both are the same ones. `again` as there. */
typedef enum { MS_SILU, MS_GELU_TANH, MS_GELU_ERF, MS_SIGMOID, MS_RELU_SQUARED, MS_SWIGLU_CLAMPED } ms_activation;
MS_API int ms_gated(ms_pool *pool, const float *x, int64_t n, int64_t activation, const ms_weight *gate, const ms_weight *up,
                    float *out, int64_t again);

/* x[n, n_heads, head_dim] -> out: pairs turned by rows start ... of the tables cos, sin [context, half]. */
MS_API int ms_rotary(ms_pool *pool, const float *x, int64_t n, int64_t start, int64_t n_heads, int64_t head_dim, const float *cosines,
                     const float *sines, int64_t half, int64_t interleaved, float *out);

/* out[n, width]: layer norm of each row. */
MS_API int ms_layer_norm(ms_pool *pool, const float *x, const float *weight, const float *bias, float eps, int64_t n, int64_t width,
                         float *out);

/* out[count] = x + y. */
MS_API int ms_add(ms_pool *pool, const float *x, const float *y, int64_t count, float *out);

/* out[count] = x * factor. */
MS_API int ms_scale(ms_pool *pool, const float *x, float factor, int64_t count, float *out);

/* out[count] = activation(x); not the clamped SwiGLU, which needs two. */
MS_API int ms_activate(ms_pool *pool, const float *x, int64_t activation, int64_t count, float *out);

/* out[count * run] = activation(x[count]) * y[count * run], each element of x for a run of y, or the clamped SwiGLU of both. */
MS_API int ms_gate(ms_pool *pool, const float *x, const float *y, int64_t activation, int64_t count, int64_t run, float *out);

/* out[count][x_take + y_take]: elements x_from ... of each x[count][x_run], then of each y[count][y_run] from y_from. y may be NULL with y_take 0. */
MS_API int ms_splice(ms_pool *pool, const float *x, int64_t x_run, int64_t x_from, int64_t x_take, const float *y, int64_t y_run,
                     int64_t y_from, int64_t y_take, int64_t count, float *out);

/* Store k, v [n, n_kv_heads, dim] at positions start ..., then out[n, n_heads, value_dim] = causal attention of q.
 * k and v NULL: the cache already holds these positions; v NULL alone: it is latent, and holds no values of their own. window 0: all
 * positions; softcap 0: none; sinks[n_heads] or NULL; until[n], the end of the positions that each row sees, or NULL: its own is the
 * last. MS_OVERFLOW: a finite value does not fit into the cache. */
MS_API int ms_attention(ms_pool *pool, const float *q, const float *k, const float *v, const ms_cache *cache, int64_t n,
                        int64_t start, int64_t n_heads, float scale, int64_t window, float softcap, const float *sinks,
                        const int32_t *until, float *out);

/* out[n, width] = each row rounded to int8 with one scale, and back. */
MS_API int ms_round_tokens(ms_pool *pool, const float *x, int64_t n, int64_t width, float *out);

/* Of each row of logits[n, experts], the k experts that CONTRACT.md, section 11, chooses: ids[n, k] ascending, and their weights[n, k].
 * `bias` may be NULL. `groups` divides the experts; `kept` of them take part, by the sum of their `marks` best choices. */
MS_API int ms_route(ms_pool *pool, const float *logits, const float *bias, int64_t n, int64_t experts, int64_t k, int64_t sigmoid,
                    int64_t groups, int64_t kept, int64_t marks, int64_t normalise, float scale, int32_t *ids, float *weights);

/* Matrices of one shape, those of a mixture's experts or of heads: the first one, how many, and the bytes from one to the next. `scales`
 * [count] multiply what an expert's matrix gives, or are NULL. */
typedef struct {
    ms_weight first;
    int64_t count, apart;
    const float *scales;
} ms_stack;

/* out[n, hidden] = for each row of x the sum over its experts of weight * down(activation(gate(x)), up(x)), by ascending id.
 * ids and weights [n, k] are those of `ms_route`; biases [count, rows of an expert] may be NULL. */
MS_API int ms_experts(ms_pool *pool, const float *x, const int32_t *ids, const float *weights, int64_t n, int64_t k, int64_t activation,
                      const ms_stack *gate, const ms_stack *up, const ms_stack *down, const float *gate_bias, const float *up_bias,
                      const float *down_bias, float *out);

/* The same for one expert after the other, and rows of its matrices. gated[pairs, total] = activation(gate(x)), up(x) of the tokens that
 * chose `expert`, in their order; biases as for `ms_experts`. `again`: the pool's last call was this one with other rows of the same. */
MS_API int ms_expert_gates(ms_pool *pool, const float *x, const int32_t *ids, int64_t n, int64_t k, int64_t expert, int64_t activation,
                           const ms_weight *gate, const ms_weight *up, const float *gate_bias, const float *up_bias, int64_t again,
                           float *gated);

/* out[n, total] += weight * down(gated) of these tokens. By ascending expert onto zeros it becomes what `ms_experts` gives. */
MS_API int ms_expert_adds(ms_pool *pool, const float *gated, const int32_t *ids, const float *weights, int64_t n, int64_t k, int64_t expert,
                          const ms_weight *down, const float *down_bias, int64_t again, float *out);

/* out[n, heads * rows]: run h of x[n, heads * columns] @ the transpose of matrix h. With `transposed`, whose matrices lie transposed
 * in the file, out[n, heads * columns]: run h of x[n, heads * rows] @ matrix h. The stack holds the matrices from head `first` on. */
MS_API int ms_head_linears(ms_pool *pool, const float *x, int64_t n, const ms_stack *stack, int64_t first, int64_t heads,
                           int64_t transposed, float *out);

/* out[n, channels] = activation of the causal depthwise convolution of x by taps [channels][width], the oldest first, width <= 16, over
 * inputs[width - 1, channels], which stand before x and afterwards before what follows it; at start 0 they are taken for zeros. */
MS_API int ms_convolve(ms_pool *pool, const float *x, int64_t n, int64_t channels, const float *taps, int64_t width, float *inputs,
                       int64_t start, int64_t activation, float *out);

/* out[n, heads, value_dim] = the gated delta rule of x [n, queries and keys of key_heads, values of heads], a, b [n, heads] and
 * rate, bias [heads] on memory, which is taken for zeros at start 0: [heads][blocks of at most 32 columns][key_dim][columns]. */
MS_API int ms_delta_rule(ms_pool *pool, const float *x, const float *a, const float *b, const float *rate, const float *bias,
                         float *memory, int64_t n, int64_t start, int64_t key_heads, int64_t heads, int64_t key_dim, int64_t value_dim,
                         float eps, float scale, float *out);

/* A recorded call of one of the functions above: its pointers, integers and floats in the order of its arguments. */
typedef enum {
    MS_EMBED, MS_RMS_NORM, MS_LINEAR, MS_GATED, MS_ROTARY, MS_ATTENTION, MS_LAYER_NORM, MS_ADD, MS_SCALE, MS_ACTIVATE, MS_GATE, MS_SPLICE,
    MS_ROUND_TOKENS, MS_ROUTE, MS_EXPERTS, MS_HEAD_LINEARS, MS_CONVOLVE, MS_DELTA_RULE, MS_EXPERT_GATES,
    MS_EXPERT_ADDS
} ms_function_name;
typedef struct {
    int64_t function;
    void *pointers[16];
    int64_t integers[12];
    float floats[4];
} ms_call;

/* The calls in order, with these tokens and this start in place of the recorded ones. Stops at the first that fails. */
MS_API int ms_replay(ms_pool *pool, const ms_call *calls, int64_t count, const int32_t *tokens, int64_t start);

/* Read `bytes`, a multiple of 32, and do nothing else with them: *mixed is the exclusive or of their 8-byte words. */
MS_API int ms_read(ms_pool *pool, const void *data, int64_t bytes, uint64_t *mixed);

/* Multiply and add int16 in registers for so many rounds: *done counts the multiply-adds, *mixed comes of all of them. */
MS_API int ms_multiply_adds(ms_pool *pool, int64_t rounds, int64_t *done, uint64_t *mixed);

/* The elementary functions, for the tests: 0 exp, 1 silu, 2 tanh, 3 erf, 4 gelu_tanh, 5 gelu_erf, 6 sigmoid, 7 relu_squared,
 * 8 log, 9 softplus. */
MS_API void ms_function(int which, const float *x, int64_t n, float *out);

/* q[n, columns], s[n, columns / 32] of the activations, for the tests. */
MS_API void ms_quantise(const float *x, int64_t n, int64_t columns, int16_t *q, float *s);

#endif
