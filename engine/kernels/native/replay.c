/* A recorded step in one call. */
#include "millstream.h"

static int replay(ms_pool *pool, const ms_call *call, const int32_t *tokens, int64_t start) {
    void *const *p = call->pointers;
    const int64_t *i = call->integers;
    const float *f = call->floats;
    switch ((ms_function_name)call->function) {
    case MS_EMBED: return ms_embed(pool, p[0], tokens, i[0], f[0], p[2]);
    case MS_RMS_NORM: return ms_rms_norm(pool, p[0], p[1], f[0], i[0], i[1], i[2], p[2], p[3]);
    case MS_LINEAR: return ms_linear(pool, p[0], i[0], i[1], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], f[0], i[2]);
    case MS_GATED: return ms_gated(pool, p[0], i[0], i[1], p[1], p[2], p[3], i[2]);
    case MS_ROTARY: return ms_rotary(pool, p[0], i[0], start, i[2], i[3], p[1], p[2], i[4], i[5], p[3]);
    case MS_ATTENTION: return ms_attention(pool, p[0], p[1], p[2], p[3], i[0], start, i[2], f[0], i[3], f[1], p[4], p[5], p[6]);
    case MS_LAYER_NORM: return ms_layer_norm(pool, p[0], p[1], p[2], f[0], i[0], i[1], p[3]);
    case MS_ADD: return ms_add(pool, p[0], p[1], i[0], p[2]);
    case MS_SCALE: return ms_scale(pool, p[0], f[0], i[0], p[1]);
    case MS_ACTIVATE: return ms_activate(pool, p[0], i[0], i[1], p[1]);
    case MS_GATE: return ms_gate(pool, p[0], p[1], i[0], i[1], i[2], p[2]);
    case MS_ROUND_TOKENS: return ms_round_tokens(pool, p[0], i[0], i[1], p[1]);
    case MS_SPLICE: return ms_splice(pool, p[0], i[0], i[1], i[2], p[1], i[3], i[4], i[5], i[6], p[2]);
    case MS_ROUTE: return ms_route(pool, p[0], p[1], i[0], i[1], i[2], i[3], i[4], i[5], i[6], i[7], f[0], p[2], p[3]);
    case MS_EXPERTS:
        return ms_experts(pool, p[0], p[1], p[2], i[0], i[1], i[2], p[3], p[4], p[5], p[6], p[7], p[8], p[9]);
    case MS_HEAD_LINEARS: return ms_head_linears(pool, p[0], i[0], p[1], i[1], i[2], i[3], p[2]);
    case MS_CONVOLVE: return ms_convolve(pool, p[0], i[0], i[1], p[1], i[2], p[2], start, i[4], p[3]);
    case MS_DELTA_RULE:
        return ms_delta_rule(pool, p[0], p[1], p[2], p[3], p[4], p[5], i[0], start, i[2], i[3], i[4], i[5], f[0], f[1], p[6]);
    case MS_EXPERT_GATES: return ms_expert_gates(pool, p[0], p[1], i[0], i[1], i[2], i[3], p[2], p[3], p[4], p[5], i[4], p[6]);
    case MS_EXPERT_ADDS: return ms_expert_adds(pool, p[0], p[1], p[2], i[0], i[1], i[2], p[3], p[4], i[3], p[5]);
    }
    return MS_UNKNOWN;
}

int ms_replay(ms_pool *pool, const ms_call *calls, int64_t count, const int32_t *tokens, int64_t start) {
    for (int64_t i = 0; i < count; i++) {
        const int status = replay(pool, calls + i, tokens, start);
        if (status != MS_OK) return status;
    }
    return MS_OK;
}
